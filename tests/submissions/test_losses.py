"""Each method's loss against a closed form or an independent float64 computation."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # the field's usual name
from numpy.typing import NDArray
from torch import Tensor

from bench.api import Batch, mean_kl, mean_loss, next_tokens, sequence_losses, token_losses
from tests.bench.tiny import VOCABULARY, tiny_model
from tests.submissions.code import code

LENGTHS = torch.tensor([5, 2, 1])
IDS = torch.randint(2, 6, (3, 5), generator=torch.Generator().manual_seed(0))
BATCH = Batch(IDS, LENGTHS)
TARGETS = [(b, t) for b, n in enumerate(LENGTHS.tolist()) for t in range(n - 1)]
"""Positions that predict a real token: four of the first block, one of the second, none more."""


def random_logits(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 5, 6, generator=generator).requires_grad_()


def log_softmax(logits: Tensor) -> NDArray[np.float64]:
    rows = logits.detach().double().numpy()
    return np.asarray(rows - np.log(np.exp(rows).sum(-1, keepdims=True)))


def losses_by_hand(logits: Tensor) -> dict[tuple[int, int], float]:
    log_p = log_softmax(logits)
    return {(b, t): -log_p[b, t, IDS[b, t + 1]] for b, t in TARGETS}


def test_token_and_sequence_losses_are_those_of_real_next_tokens() -> None:
    logits = random_logits(1)
    by_hand = losses_by_hand(logits)
    assert token_losses(logits, BATCH).tolist() == pytest.approx(list(by_hand.values()))
    sums = [sum(v for (b, _), v in by_hand.items() if b == block) for block in range(3)]
    assert sequence_losses(logits, BATCH).tolist() == pytest.approx(sums)
    assert sums[2] == 0
    rows, targets = next_tokens(logits, BATCH)
    assert rows.shape == (5, 6)
    assert targets.tolist() == [int(IDS[b, t + 1]) for b, t in TARGETS]


def test_kl_is_that_of_the_definition_and_zero_at_the_reference() -> None:
    model, other = random_logits(1), random_logits(2)
    log_p, log_q = log_softmax(other), log_softmax(model)
    by_hand = np.mean([(np.exp(log_p[at]) * (log_p[at] - log_q[at])).sum() for at in TARGETS])
    assert mean_kl(model, other, BATCH).item() == pytest.approx(by_hand, rel=1e-5)
    at_start = mean_kl(model, model.detach(), BATCH)
    assert at_start.item() == pytest.approx(0, abs=1e-7)
    at_start.backward()
    assert model.grad is not None
    assert model.grad.abs().max() < 1e-7  # a minimum


@pytest.mark.parametrize("loss", ["token", "sequence", "kl"])
def test_ignored_positions_have_a_gradient_of_exactly_zero(loss: str) -> None:
    logits = random_logits(3)
    value = {
        "token": lambda: token_losses(logits, BATCH).sum(),
        "sequence": lambda: sequence_losses(logits, BATCH).sum(),
        "kl": lambda: mean_kl(logits, random_logits(4).detach(), BATCH),
    }[loss]()
    value.backward()
    assert logits.grad is not None
    real = torch.zeros(3, 5, dtype=torch.bool)
    for at in TARGETS:
        real[at] = True
    assert logits.grad[real].abs().sum(-1).gt(0).all()
    assert not logits.grad[~real].any()


def test_without_targets_sums_are_zero_and_means_are_nan() -> None:
    logits, empty = random_logits(5), Batch(IDS, torch.tensor([1, 1, 0]))
    assert len(token_losses(logits, empty)) == 0
    assert sequence_losses(logits, empty).tolist() == [0, 0, 0]
    assert math.isnan(mean_kl(logits, logits, empty).item())
    model = tiny_model()
    assert math.isnan(mean_loss(model, Batch(torch.zeros(1, 4).long(), torch.tensor([1]))).item())


# Preferences


def test_npo_begins_at_two_over_beta_log_two_with_half_of_ascents_gradient() -> None:
    npo = code("npo")
    for beta in (0.1, 1.0):
        losses = torch.tensor([3.0, 7.0], requires_grad=True)
        value = npo.preference_loss(losses, losses.detach(), beta)
        assert value.item() == pytest.approx(2 / beta * math.log(2))
        (gradient,) = torch.autograd.grad(value, losses)
        # d/dl of (2 / b) log(1 + exp(b (l0 - l))) = -2 sigmoid(b (l0 - l)) = -1 at the start.
        assert gradient.tolist() == pytest.approx([-0.5, -0.5])


def test_npo_approaches_gradient_ascent_as_beta_goes_to_zero() -> None:
    losses, before = torch.tensor([3.0, 9.0], requires_grad=True), torch.tensor([5.0, 5.0])
    value = code("npo").preference_loss(losses, before, 1e-5)
    (gradient,) = torch.autograd.grad(value, losses)
    assert gradient.tolist() == pytest.approx([-0.5, -0.5], rel=1e-4)


def test_npo_fades_where_the_text_is_forgotten() -> None:
    losses, before = torch.tensor([100.0], requires_grad=True), torch.tensor([5.0])
    value = code("npo").preference_loss(losses, before, 1.0)
    (gradient,) = torch.autograd.grad(value, losses)
    assert value.item() == pytest.approx(0, abs=1e-6)
    assert gradient.item() == pytest.approx(0, abs=1e-6)


def test_simnpo_is_that_of_its_equation() -> None:
    losses, tokens = torch.tensor([6.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0])
    beta, margin = 4.0, 0.5
    value = code("simnpo").preference_loss(losses, tokens, beta, margin)
    arguments = [beta * 2.0 - margin, beta * 0.5 - margin]
    by_hand = np.mean([-2 / beta * -math.log1p(math.exp(-a)) for a in arguments])
    assert value.item() == pytest.approx(by_hand, rel=1e-6)
    (gradient,) = torch.autograd.grad(value, losses)
    assert (gradient < 0).all()  # descending on it raises the loss


# UNDIAL


def test_undial_at_the_teacher_pulls_down_the_true_token_alone() -> None:
    undial = code("undial")
    teacher, targets = torch.tensor([[1.0, -0.5, 0.25]]), torch.tensor([0])
    for beta in (0.0, 2.0):
        logits = teacher.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(
            undial.distillation_loss(logits, teacher, targets, beta), logits
        )
        soft = np.exp([1.0 - beta, -0.5, 0.25])
        hard = np.exp([1.0, -0.5, 0.25])
        # The gradient of a cross-entropy with soft labels: softmax(model) - labels.
        assert gradient[0].tolist() == pytest.approx(
            hard / hard.sum() - soft / soft.sum(), abs=1e-6
        )
        assert bool(gradient[0, 0] > 0) is (beta > 0)


def test_undial_is_the_entropy_of_the_adjusted_teacher_at_its_own_optimum() -> None:
    teacher, targets = (
        torch.randn(4, 5, generator=torch.Generator().manual_seed(1)),
        torch.arange(4),
    )
    adjusted = teacher - 3.0 * F.one_hot(targets, 5)
    value = code("undial").distillation_loss(adjusted, teacher, targets, 3.0)
    labels = adjusted.double().softmax(-1).numpy()
    assert value.item() == pytest.approx(-(labels * np.log(labels)).sum(-1).mean(), rel=1e-6)


# CIR, LWF


def test_the_breaking_loss_counts_aligned_outputs_only() -> None:
    outputs = torch.tensor([[1.0, 0.0], [-2.0, 0.0]])
    before = torch.tensor([[2.0, 0.0], [4.0, 0.0]])
    # Alignments 2 and -8; mean norm of the member's outputs 3.
    assert code("cir").breaking_loss(outputs, before).item() == pytest.approx((2 / 2) / 9)


def test_what_lies_in_the_components_is_removed_and_the_rest_stays() -> None:
    cir = code("cir")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 6, generator=generator) * torch.tensor([9.0, 5.0, 1.0, 1.0, 1.0, 1.0])
    rows = rows + torch.tensor([0.0, 0.0, 4.0, 0.0, 0.0, 0.0])
    basis = cir.components(rows, 2)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(3), atol=1e-5, rtol=0)
    left = cir.without(rows, basis)
    assert (left @ basis).abs().max() < 1e-4
    torch.testing.assert_close(cir.without(left, basis), left, atol=1e-4, rtol=0)
    centred = (rows - rows.mean(0)).double().numpy()
    _, vectors = np.linalg.eigh(centred.T @ centred)
    strongest = torch.tensor(vectors[:, -2:].T.copy()).float()
    assert cir.without(strongest, basis).norm(dim=1).max() < 1e-3


def test_gradients_times_inputs_over_real_tokens_are_the_gradient_of_the_weight() -> None:
    cir, model = code("cir"), tiny_model()
    ids = torch.randint(2, VOCABULARY, (3, 8), generator=torch.Generator().manual_seed(4))
    linears = [block.mlp.c_proj for block in model.transformer.h]
    taps = cir.Taps(linears)
    hidden = taps.run(model, Batch(ids, torch.tensor([8, 5, 1])))
    assert len(hidden) == 7 + 4
    direction = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(5))
    (hidden * direction).sum().backward()
    for number, linear in enumerate(linears):
        rebuilt = taps.gradients[number].mT @ taps.inputs[number]
        torch.testing.assert_close(rebuilt, linear.weight.grad, rtol=1e-4, atol=1e-5)


def test_forgetting_confidence_is_that_of_its_equation() -> None:
    base, gradient = torch.tensor([1.0, 2.0]), torch.tensor([10.0, -20.0])
    optimum, fisher = torch.tensor([0.5, 2.5]), torch.tensor([3.0, 7.0])
    value = code("lwf").confidence([base], [gradient], [optimum], [fisher], 0.01)
    # 1 - .1 - .5 = .4 and 2 + .2 - 2.5 = -.3.
    assert value == pytest.approx(0.5 * (3 * 0.16 + 7 * 0.09))


def test_the_fisher_information_is_a_mean_of_squares_and_not_the_square_of_a_mean() -> None:
    lwf = code("lwf")
    model = tiny_model()
    ids = torch.randint(2, VOCABULARY, (3, 8), generator=torch.Generator().manual_seed(2))
    batch = Batch(ids, torch.tensor([8, 8, 8]))
    config = lwf.Config(learning_rate=0.0, forget_rate=0.1, learning_steps=1)

    class Streams:
        retain = iter([batch, batch])

    _, fisher = lwf.learned(model, Streams, config)
    singles = [
        torch.autograd.grad(
            F.cross_entropy(model(input_ids=row[None]).logits[0, :-1], row[1:]),
            model.transformer.ln_f.weight,
        )[0]
        for row in ids
    ]
    names = [name for name, _ in model.named_parameters()]
    found = fisher[names.index("transformer.ln_f.weight")]
    torch.testing.assert_close(found, torch.stack(singles).pow(2).mean(0), rtol=1e-3, atol=1e-9)


def test_self_written_text_is_the_models_greedy_continuation() -> None:
    lwf = code("lwf")
    model = tiny_model()
    ids = torch.randint(2, VOCABULARY, (4, 8), generator=torch.Generator().manual_seed(3))

    class Streams:
        forget = iter([Batch(ids, torch.full((4,), 8))])

    config = lwf.Config(
        learning_rate=0.1, forget_rate=0.1, texts=2, shots=2, shot_tokens=4, written_tokens=3
    )
    written = lwf.write_texts(model, Streams, config)
    prompts = ids[:, :4].reshape(2, 8)
    by_library = model.generate(
        prompts,
        max_new_tokens=3,
        do_sample=False,
        use_cache=False,
        eos_token_id=None,
        attention_mask=torch.ones_like(prompts),
    )
    assert torch.equal(written, by_library[:, 8:])
