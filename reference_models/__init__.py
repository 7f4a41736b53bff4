"""How the reference models were trained, and where the trained ones are kept.

`sgtm.py` is the method (which parameters a step may move), `schedule.py` the order of batches,
`recipe.py` and `recipes/` the numbers, `train.py` the loop and the command line. A folder per suite
holds its members as plain Hugging Face checkpoints.
"""
