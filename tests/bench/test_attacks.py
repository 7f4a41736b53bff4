"""Attacks: fixed, reproducible, blind to the probes; and they bite."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import GPTNeoForCausalLM

from bench import measure
from bench.api import Batch, mean_loss
from bench.attacks import relearn as module
from bench.attacks.dose import Dose
from bench.attacks.few_shot import demonstrations, few_shot
from bench.attacks.relearn import attack_blocks, relearn
from bench.data import BLOCK, Blocks, Document, load_tokenizer, pack, select
from bench.facts import (
    PROBED_TEMPLATE,
    TRAINED_TEMPLATES,
    UNSEEN_TEMPLATE,
    load_probes,
    statement,
)
from bench.measure import encode_probes
from bench.reference import load_model
from bench.streams import Meter
from bench.tasks import FewShot, Relearn
from bench.weights import State, snapshot
from tests.bench.tiny import TinyEvaluator, tiny_blocks, tiny_model

MEMBER = Path(__file__).parents[2] / "reference_models" / "vital" / "p000"
CONFIG = Relearn(learning_rates=(3e-3,), steps=(0, 5, 10), warmup=3, batch_blocks=2)


@pytest.fixture
def _tiny_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "attack_blocks", lambda _folder: tiny_blocks(30, 8))


def attacked(
    evaluator: TinyEvaluator, config: Relearn = CONFIG, *, seed: int = 0
) -> tuple[list[Dose], State]:
    model = tiny_model()
    doses = list(relearn(model, snapshot(tiny_model()), config, evaluator, Path(), seed))
    return doses, snapshot(model)


def equal(one: State, other: State) -> bool:
    return all(tensor.equal(other[name]) for name, tensor in one.items())


@pytest.mark.usefixtures("_tiny_text")
def test_a_learning_rate_of_zero_leaves_every_byte(evaluator: TinyEvaluator) -> None:
    doses, state = attacked(evaluator, replace(CONFIG, learning_rates=(0.0,)))
    assert equal(state, tiny_model().state_dict())
    assert all(dose.dev == doses[0].dev and dose.test == doses[0].test for dose in doses)


@pytest.mark.usefixtures("_tiny_text")
def test_a_longer_attack_passes_through_the_shorter_one(evaluator: TinyEvaluator) -> None:
    long, _ = attacked(evaluator)
    short, state = attacked(evaluator, replace(CONFIG, steps=(0, 5)))
    assert [d.step for d in long] == [0, 5, 10]
    assert long[:2] == short
    assert long[1].dev != long[2].dev
    unmeasured, again = attacked(evaluator, replace(CONFIG, steps=(0, 1, 2, 5)))
    assert equal(state, again)
    assert unmeasured[-1] == short[-1]


@pytest.mark.usefixtures("_tiny_text")
def test_a_seed_fixes_the_attack_bitwise(evaluator: TinyEvaluator) -> None:
    (one, weights), (two, again), (_, other) = (attacked(evaluator, seed=s) for s in (1, 1, 2))
    assert one == two
    assert equal(weights, again)
    assert not equal(weights, other)


@pytest.mark.usefixtures("_tiny_text")
def test_every_rate_starts_from_the_measures_before_the_attack(evaluator: TinyEvaluator) -> None:
    config = replace(CONFIG, learning_rates=(1e-3, 1e-2))
    doses, _ = attacked(evaluator, config)
    starts = [dose for dose in doses if dose.step == 0]
    assert [(d.learning_rate, d.amount) for d in starts] == [(1e-3, 0), (1e-2, 0)]
    model = tiny_model()
    for start in starts:
        for split, found in (("dev", start.dev), ("test", start.test)):
            probes, _ = evaluator.probes(model, split)
            own = evaluator.losses(model, split, "forget")
            assert found.forget_loss == own.forget_loss
            assert found.answer_probability == probes.answer_probability
            assert found.probe_accuracy == probes.probe_accuracy
    # The second rate is not attacked from where the first one ended.
    alone, _ = attacked(evaluator, replace(CONFIG, learning_rates=(1e-2,)))
    assert [d for d in doses if d.learning_rate == 1e-2] == alone


@pytest.mark.usefixtures("_tiny_text")
def test_doses_count_the_real_tokens_of_the_batches(evaluator: TinyEvaluator) -> None:
    doses, _ = attacked(evaluator)
    meter = Meter(2**62)
    stream = meter.stream(tiny_blocks(30, 8), CONFIG.batch_blocks, 0)
    sizes = [int(next(stream).lengths.sum()) for _ in range(10)]
    assert [d.amount for d in doses] == [0, sum(sizes[:5]), sum(sizes)]


@pytest.mark.usefixtures("_tiny_text")
def test_a_rate_that_destroys_the_model_is_marked_and_stays_so(evaluator: TinyEvaluator) -> None:
    doses, _ = attacked(evaluator, replace(CONFIG, learning_rates=(1e4,)))
    assert [d.diverged for d in doses] == [False, True, True]
    assert all(d.dev.finite() and d.test.finite() for d in doses)


def test_few_shot_starts_from_the_unprompted_model(evaluator: TinyEvaluator) -> None:
    model = tiny_model()
    (dose,) = few_shot(model, FewShot(shots=()), evaluator, 0)
    assert (dose.amount, dose.learning_rate) == (0, None)
    assert dose.dev == evaluator.probes(model, "dev")[0]
    assert dose.test == evaluator.probes(model, "test")[0]


# On the frozen data


def perturbed_member() -> GPTNeoForCausalLM:
    model = load_model(MEMBER)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise, alpha=0.3 * float(parameter.std(unbiased=False)))
    return model


class LossOnly(TinyEvaluator):
    """Measures loss on a few of the attack's own blocks, whatever is asked for."""

    def _articles(self, _domain: str, _split: str) -> Blocks:
        blocks = attack_blocks(MEMBER)
        return Blocks(blocks.ids[:16], blocks.lengths[:16])

    def probes(self, *_: object, **__: object) -> tuple[measure.Measures, list[measure.Answer]]:
        return measure.Measures(), []


def test_relearning_lowers_loss_on_the_attackers_documents() -> None:
    model = perturbed_member()
    config = Relearn(learning_rates=(1e-3,), steps=(0, 10, 25), warmup=5, batch_blocks=4)
    losses = [
        dose.dev.forget_loss
        for dose in relearn(model, snapshot(model), config, LossOnly(model), MEMBER, 0)
    ]
    assert None not in losses
    assert losses[0] - losses[1] > 0.1  # type: ignore[operator]
    assert losses[1] > losses[2]  # type: ignore[operator]


def relearn_texts() -> Iterator[str]:
    for document in select("forget", ["relearn"]):
        yield document.article.text
        if document.fact:
            yield from (statement(t, document.article) for t in TRAINED_TEMPLATES)


def test_attack_text_is_the_relearn_documents_once_and_no_probed_document() -> None:
    tokenizer = load_tokenizer(MEMBER)
    blocks = attack_blocks(MEMBER)
    expected = pack([e.ids for e in tokenizer.encode_batch(list(relearn_texts()))], tokenizer)
    # The order is shuffled; the tokens are the same.
    assert int(blocks.lengths.sum()) == int(expected.lengths.sum())
    count = 2048
    assert torch.equal(
        torch.bincount(blocks.ids.flatten(), minlength=count),
        torch.bincount(expected.ids.flatten(), minlength=count),
    )
    relearned = {d.article.title for d in select("forget", ["relearn"])}
    assert not relearned & {probe.title for probe in load_probes()}


@pytest.fixture(scope="module")
def known() -> list[Document]:
    return [d for d in select("forget", ["relearn"]) if d.fact]


@pytest.mark.parametrize("template", [PROBED_TEMPLATE, UNSEEN_TEMPLATE], ids=["trained", "unseen"])
@pytest.mark.parametrize("shots", [1, 2, 4])
def test_prompts_hold_that_many_relearn_facts_within_the_trained_length(
    template: tuple[str, str], shots: int, known: list[Document]
) -> None:
    tokenizer = load_tokenizer(MEMBER)
    probes = [p for p in load_probes() if p.domain == "forget"]
    texts = demonstrations(probes, template, tokenizer, shots, 0)
    lines = {statement(template, d.article) for d in known}
    opening = template[0].split("{")[0]
    tensors = encode_probes(probes, template, tokenizer, all_options=True, demonstrations=texts)
    assert tensors.ids.shape[1] <= BLOCK
    last = tensors.answer.float() * torch.arange(1, tensors.answer.shape[1] + 1)
    sizes = last.amax(1).view(len(probes), -1).amax(1) + 1
    cheapest = sorted((len(tokenizer.encode(line).ids), line) for line in lines)
    for text, size in zip(texts, sizes.tolist(), strict=True):
        parts = [opening + part.strip() for part in text.split(opening)[1:]]
        assert set(parts) <= lines
        assert len(set(parts)) == len(parts) <= shots
        if len(parts) < shots:
            # Not even the shortest other fact fits: 8 tokens of margin, 2 for every seam.
            shortest = next(length for length, line in cheapest if line not in parts)
            assert size + shortest + 8 + 2 * (shots + 1) > BLOCK
    if shots == 1:
        assert all(texts)


def test_demonstrations_are_fixed_by_the_seed() -> None:
    tokenizer = load_tokenizer(MEMBER)
    probes = [p for p in load_probes() if p.domain == "forget"][:10]
    one, two, other = (demonstrations(probes, PROBED_TEMPLATE, tokenizer, 2, s) for s in (0, 0, 1))
    assert one == two != other


def test_demonstrations_are_drawn_anew_for_each_probe() -> None:
    tokenizer = load_tokenizer(MEMBER)
    probes = [p for p in load_probes() if p.domain == "forget"][:10]
    texts = demonstrations(probes, PROBED_TEMPLATE, tokenizer, 1, 0)
    assert len(set(texts)) > 1


def test_a_step_follows_the_gradient_of_the_mean_loss() -> None:
    model = tiny_model()
    batch = Batch(*tiny_blocks(30, 2))
    before = mean_loss(model, batch).item()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    assert module._step(model, optimizer, 1e-3, batch, 1.0)
    assert mean_loss(model, batch).item() < before
