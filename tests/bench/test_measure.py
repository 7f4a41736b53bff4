"""Measuring: equal to the definition in float64, over real tokens alone, whatever the batches."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, rel_entr
from transformers import GPTNeoForCausalLM

from bench import api, measure
from bench.api import Batch, token_losses
from bench.data import Blocks
from bench.measure import Measures, ProbeTensors, answer_scores, mean_loss, merge, score_probes
from tests.bench.tiny import LENGTH, VOCABULARY, TinyEvaluator, tiny_blocks, tiny_model, tiny_probes

LENGTHS = [LENGTH, 3, 11, 2, LENGTH, 7]


@pytest.fixture(scope="module")
def model() -> GPTNeoForCausalLM:
    return tiny_model(3)


def perturbed(scale: float = 0.02) -> GPTNeoForCausalLM:
    changed = tiny_model(0)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return changed


def log_probabilities(model: GPTNeoForCausalLM, tokens: list[int]) -> NDArray[np.float64]:
    """(tokens, vocabulary) of one unpadded sequence, the softmax in float64."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens])).logits[0]
    return np.asarray(log_softmax(logits.numpy().astype(np.float64), axis=-1))


def sequences(blocks: Blocks) -> list[list[int]]:
    return [
        ids[:length]
        for ids, length in zip(blocks.ids.tolist(), blocks.lengths.tolist(), strict=True)
    ]


def naive_losses(model: GPTNeoForCausalLM, blocks: Blocks) -> list[float]:
    return [
        -log_probabilities(model, tokens)[position, tokens[position + 1]]
        for tokens in sequences(blocks)
        for position in range(len(tokens) - 1)
    ]


# Losses


def test_token_losses_are_the_float64_ones_of_each_sequence_alone(
    model: GPTNeoForCausalLM,
) -> None:
    blocks = tiny_blocks(5, lengths=LENGTHS)
    with torch.no_grad():
        found = token_losses(model(input_ids=blocks.ids).logits, Batch(*blocks))
    assert found.shape == (sum(length - 1 for length in LENGTHS),)
    np.testing.assert_allclose(found.numpy(), naive_losses(model, blocks), atol=1e-5)


def test_the_mean_is_over_tokens_and_not_over_batches(
    model: GPTNeoForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = tiny_blocks(5, lengths=LENGTHS)
    expected = np.mean(naive_losses(model, blocks))
    for size in (1, 4, 32):
        monkeypatch.setattr(measure, "BATCH", size)
        assert mean_loss(model, blocks) == pytest.approx(expected, abs=1e-5)
    assert api.mean_loss(model, Batch(*blocks)).item() == pytest.approx(expected, abs=1e-5)


def test_changed_padding_changes_nothing(model: GPTNeoForCausalLM) -> None:
    blocks = tiny_blocks(5, lengths=LENGTHS)
    padding = torch.arange(LENGTH) >= blocks.lengths[:, None]
    other = Blocks(blocks.ids.masked_fill(padding, 17), blocks.lengths)
    assert not other.ids.equal(blocks.ids)
    assert mean_loss(model, other) == mean_loss(model, blocks)


def test_wider_padding_changes_nothing_to_1e_5(model: GPTNeoForCausalLM) -> None:
    blocks = tiny_blocks(5, lengths=LENGTHS)
    wide = Blocks(torch.nn.functional.pad(blocks.ids, (0, 40), value=1), blocks.lengths)
    assert mean_loss(model, wide) == pytest.approx(mean_loss(model, blocks), abs=1e-5)


def test_no_gradient_reaches_an_ignored_position() -> None:
    blocks = tiny_blocks(5, lengths=LENGTHS)
    logits = torch.randn(6, LENGTH, VOCABULARY, requires_grad=True)
    token_losses(logits, Batch(*blocks)).sum().backward()
    assert logits.grad is not None
    counted = torch.arange(1, LENGTH + 1) < blocks.lengths[:, None]
    assert logits.grad[~counted].eq(0).all()
    assert logits.grad[counted].abs().sum(-1).gt(0).all()


# KL


def test_kl_of_the_member_to_itself_is_exactly_zero(evaluator: TinyEvaluator) -> None:
    for split in ("dev", "test"):
        assert evaluator.retain(tiny_model(0), split).kl == 0.0


def test_kl_is_the_full_float64_divergence_from_the_member(evaluator: TinyEvaluator) -> None:
    member, changed = tiny_model(0), perturbed()
    rows = [
        rel_entr(
            np.exp(log_probabilities(member, tokens)[:-1]),
            np.exp(log_probabilities(changed, tokens)[:-1]),
        ).sum(-1)
        for tokens in sequences(evaluator._articles("retain", "dev"))
    ]
    expected = np.concatenate(rows).mean()
    assert expected > 1e-4
    assert evaluator.retain(changed, "dev").kl == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_retain_loss_beside_kl_is_the_loss_measured_alone(evaluator: TinyEvaluator) -> None:
    changed = perturbed()
    alone = evaluator.losses(changed, "test", "retain").retain_loss
    assert evaluator.retain(changed, "test").retain_loss == pytest.approx(alone, abs=1e-6)


# Probes


def test_answer_scores_equal_a_loop_over_sequences(model: GPTNeoForCausalLM) -> None:
    tensors = tiny_probes(1)
    expected = []
    for ids, answer in zip(tensors.ids.tolist(), tensors.answer.tolist(), strict=True):
        positions = [i for i, counts in enumerate(answer) if counts]
        table = log_probabilities(model, ids[: positions[-1] + 2])
        expected.append(np.mean([table[i, ids[i + 1]] for i in positions]))
    np.testing.assert_allclose(answer_scores(model, tensors).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 20])
def test_answer_scores_do_not_depend_on_batches_or_padding(
    size: int, model: GPTNeoForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = tiny_probes(1)
    whole = answer_scores(model, tensors)
    monkeypatch.setattr(measure, "PROBE_BATCH", size)
    wide = ProbeTensors(
        tensors.probes,
        4,
        torch.nn.functional.pad(tensors.ids, (0, 30), value=5),
        torch.nn.functional.pad(tensors.answer, (0, 30), value=False),
    )
    torch.testing.assert_close(answer_scores(model, wide), whole, atol=1e-5, rtol=0)


class Rigged:
    """Gives the next token of chosen rows nearly all probability, and other rows none of it."""

    def __init__(self, favoured: torch.Tensor) -> None:
        self._favoured = {tuple(row) for row in favoured.tolist()}

    def get_output_embeddings(self) -> torch.nn.Module:
        return torch.nn.Identity()

    def base_model(self, input_ids: torch.Tensor) -> SimpleNamespace:
        states = torch.zeros(*input_ids.shape, VOCABULARY)
        for row, ids in enumerate(input_ids.tolist()):
            if any(tuple(ids) == known[: len(ids)] for known in self._favoured):
                for position, token in enumerate(ids[1:]):
                    states[row, position, token] = 40.0
        return SimpleNamespace(last_hidden_state=states)


def rigged(favour: str) -> Measures:
    trained = tiny_probes(1)
    true = torch.tensor([4 * p.index + p.answer for p in trained.probes])
    wrong = torch.tensor([4 * p.index + (p.answer + 1) % 4 for p in trained.probes])
    unseen = ProbeTensors(trained.probes, 1, trained.ids[true], trained.answer[true])
    model = Rigged(trained.ids[true if favour == "true" else wrong])
    return score_probes(model, trained, unseen)[0]  # type: ignore[arg-type]


def test_a_model_that_is_always_right_has_accuracy_and_probability_one() -> None:
    measures = rigged("true")
    assert measures.probe_accuracy == 1.0
    assert measures.answer_probability == pytest.approx(1.0)
    assert measures.unseen_answer_probability == pytest.approx(1.0)


def test_a_model_that_is_always_wrong_has_accuracy_zero_and_uniform_probability() -> None:
    measures = rigged("wrong")
    assert measures.probe_accuracy == 0.0
    assert measures.answer_probability == pytest.approx(1 / VOCABULARY)


def test_single_answers_average_to_the_measures(model: GPTNeoForCausalLM) -> None:
    trained = tiny_probes(2)
    true = torch.tensor([4 * p.index + p.answer for p in trained.probes])
    unseen = ProbeTensors(trained.probes, 1, trained.ids[true], trained.answer[true])
    measures, answers = score_probes(model, trained, unseen)
    asked = [a for a in answers if a.template == "trained"]
    assert [a.probe for a in asked] == [p.index for p in trained.probes]
    assert measures.probe_accuracy == np.mean([bool(a.correct) for a in asked])
    assert measures.answer_probability == pytest.approx(np.mean([a.probability for a in asked]))
    others = [a for a in answers if a.template == "unseen"]
    assert all(a.correct is None for a in others)
    # The unseen rows are the same questions here, so the probabilities agree.
    assert [a.probability for a in others] == pytest.approx([a.probability for a in asked])


# Measures


@pytest.mark.parametrize(
    ("measures", "finite"),
    [
        (Measures(), True),
        (Measures(kl=0.0, forget_loss=3.0), True),
        (Measures(kl=math.nan), False),
        (Measures(kl=0.1, retain_loss=math.inf), False),
        (Measures(answer_probability=-math.inf), False),
    ],
)
def test_measures_are_finite_where_every_measured_value_is(
    measures: Measures, finite: bool
) -> None:
    assert measures.finite() is finite


def test_merging_keeps_zeros_and_what_any_part_has() -> None:
    merged = merge(Measures(kl=0.0), Measures(forget_loss=1.0), Measures(probe_accuracy=0.0))
    assert merged == Measures(kl=0.0, forget_loss=1.0, probe_accuracy=0.0)
