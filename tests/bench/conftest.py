"""One thread and no network for every test here: losses are bitwise equal at equal threads only."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch

from tests.bench.tiny import TinyEvaluator, tiny_model


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def evaluator() -> TinyEvaluator:
    """An evaluator of the tiny member; its member must stay unchanged."""
    return TinyEvaluator(tiny_model())
