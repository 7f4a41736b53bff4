"""Every trial of every shipped submission runs, repeats bit for bit, and yields the bare model."""

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from bench.api import Batch, Data
from bench.data import Blocks
from bench.streams import Meter
from bench.submission import find_submission, list_submissions, load_submission
from bench.tasks import TASKS
from tests.bench.tiny import VOCABULARY, tiny_blocks, tiny_model

TASK = TASKS["vital"]
NO_CHANGE = {"none"}
GPT_NEO_ONLY = {"sgtm_ablation"}
TRIALS = [
    (name, trial)
    for name in list_submissions()
    for trial in range(len(find_submission(name).trials))
]


SHORT = {"adversary_steps": 4, "gradient_steps": 4, "steps": 4, "collected_steps": 2, "texts": 8}
"""Preparations of a method that its trials do at length; all else is a trial's own."""


def shortened(config: Any) -> Any:
    """A trial's config with its preparations cut short."""
    known = {field.name for field in fields(config)}
    return replace(config, **{key: SHORT[key] for key in known & SHORT.keys()})


def four_layers(kind: str) -> PreTrainedModel:
    """A tiny model with the layers that trials name, and heads and units to spare."""
    if kind == "gpt_neo":
        return tiny_model(layers=4, units=128)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=2,
    )
    return LlamaForCausalLM(config).eval()


def padded(seed: int, padding: int) -> Blocks:
    """Twelve blocks, every third of them short, with this token beyond their lengths."""
    ids, lengths = tiny_blocks(seed, 12, lengths=[24, 24, 15] * 4)
    beyond = torch.arange(ids.shape[1]) >= lengths[:, None]
    return Blocks(ids.masked_fill(beyond, padding), lengths)


def data(padding: int = 1) -> Data:
    meter = Meter(10**6)
    return Data(
        forget=meter.stream(padded(30, padding), 4, 0),
        retain=meter.stream(padded(31, padding), 4, 1),
    )


def foreign_hooks(model: PreTrainedModel) -> list[Any]:
    """Forward hooks that are not those by which transformers collects hidden states."""
    hooks = [hook for module in model.modules() for hook in module._forward_hooks.values()]
    return [hook for hook in hooks if not hook.__module__.startswith("transformers.")]


def yields(
    name: str, trial: int, kind: str, *, count: int = 2, padding: int = 1
) -> list[dict[str, Tensor]]:
    """Copies of the first state dicts that a trial yields, and a check that the model is bare."""
    loaded = load_submission(find_submission(name), TASK.limits.trials)
    model = four_layers(kind)
    names, parameters = zip(*model.named_parameters(), strict=True)
    torch.manual_seed(0)
    config = shortened(loaded.configs[trial])
    process = loaded.unlearn(model, data(padding), config, torch.Generator().manual_seed(0))
    states = []
    for yielded in islice(process, count):
        assert yielded is model
        assert not foreign_hooks(model)
        states.append({key: value.clone() for key, value in model.state_dict().items()})
    process.close()
    now_names, now = zip(*model.named_parameters(), strict=True)
    assert now_names == names
    assert all(a is b for a, b in zip(parameters, now, strict=True))
    return states


@pytest.mark.parametrize(("name", "trial"), TRIALS)
def test_a_trial_changes_the_model_and_repeats_bit_for_bit(name: str, trial: int) -> None:
    one, other = yields(name, trial, "gpt_neo"), yields(name, trial, "gpt_neo")
    for first, second in zip(one, other, strict=True):
        assert all(torch.equal(first[key], second[key]) for key in first)
        assert all(torch.isfinite(value).all() for value in first.values())
    start = four_layers("gpt_neo").state_dict()
    moved = {key for key in start if not torch.equal(start[key], one[0][key])}
    assert bool(moved) is (name not in NO_CHANGE)


@pytest.mark.parametrize(("name", "trial"), [t for t in TRIALS if t[0] not in GPT_NEO_ONLY])
def test_a_trial_runs_on_a_model_with_other_names(name: str, trial: int) -> None:
    states = yields(name, trial, "llama", count=1)
    start = four_layers("llama").state_dict()
    assert set(states[0]) == set(start)
    moved = any(not torch.equal(start[key], states[0][key]) for key in start)
    assert moved is (name not in NO_CHANGE)


@pytest.mark.parametrize("name", sorted({name for name, _ in TRIALS} - NO_CHANGE))
def test_padding_has_no_effect_on_a_method(name: str) -> None:
    one, other = (yields(name, 0, "gpt_neo", count=1, padding=token)[0] for token in (1, 7))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_method_for_one_architecture_says_so() -> None:
    with pytest.raises(ValueError, match="llama has no such heads"):
        yields("sgtm_ablation", 0, "llama")


@pytest.mark.parametrize("name", ["repselect", "rmu", "cir"])
def test_methods_of_mlp_weights_move_nothing_else(name: str) -> None:
    start, after = four_layers("gpt_neo").state_dict(), yields(name, 0, "gpt_neo")[-1]
    moved = {key for key in start if not torch.equal(start[key], after[key])}
    assert moved
    assert all(".mlp." in key and key.endswith(".weight") for key in moved)


def test_no_method_gets_more_than_six_trials_and_comparable_ones_get_as_many() -> None:
    counts = {name: len(find_submission(name).trials) for name in list_submissions()}
    controls = {"none", "random_walk", "sgtm_ablation"}
    assert all(counts[name] == 1 for name in controls)
    assert {n for name, n in counts.items() if name not in {*controls, "repselect"}} == {2}
    # Two trials of the method; four ablations that are no attempts of it.
    assert counts["repselect"] == 6


class Watched:
    """A stream that keeps what it gave beside a copy of it."""

    def __init__(self, stream: Iterator[Batch]) -> None:
        self.stream = stream
        self.seen: list[tuple[Tensor, Tensor]] = []

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = next(self.stream)
        self.seen.append((batch.ids, batch.ids.clone()))
        return batch


@pytest.mark.parametrize("name", list_submissions())
def test_the_batches_are_not_changed_by_a_method(name: str) -> None:
    streams = Data(forget=Watched(data().forget), retain=Watched(data().retain))
    loaded = load_submission(find_submission(name), TASK.limits.trials)
    generator = torch.Generator().manual_seed(0)
    next(loaded.unlearn(four_layers("gpt_neo"), streams, shortened(loaded.configs[0]), generator))
    for stream in (streams.forget, streams.retain):
        assert isinstance(stream, Watched)
        assert all(torch.equal(ids, copy) for ids, copy in stream.seen)
