"""Attacks: fixed procedures with fixed data that try to bring the knowledge back.

Each is a generator of `Dose`s, measured along the way, so that an attack is a curve and not a
point. Every attack is the same code, data, order and grid for every model; the attacked member
(nothing unlearned) and the attacked oracle (nothing to recover) are its controls.
"""
