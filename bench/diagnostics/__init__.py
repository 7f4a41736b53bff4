"""Representation metrics: what changed inside a model, beside what it says."""
