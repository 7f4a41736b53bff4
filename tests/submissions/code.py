"""The shipped submissions as modules, so that their parts can be tested."""

import sys
from functools import cache
from types import ModuleType

from bench.submission import find_submission, load_submission
from bench.tasks import TASKS


@cache
def code(name: str) -> ModuleType:
    """The module `submission.py` of a shipped submission."""
    loaded = load_submission(find_submission(name), TASKS["vital"].limits.trials)
    return sys.modules[loaded.unlearn.__module__]
