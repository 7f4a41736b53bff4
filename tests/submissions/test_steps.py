"""What a method does to weights, against closed forms: steps on a bigram model, one-shot edits.

The model has two tokens and one parameter, a table of next-token logits. The gradient of every
loss in it is written down by hand, in float64, and followed for some steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.api import Batch, Data
from bench.submission import find_submission, load_submission
from bench.tasks import TASKS
from reference_models.sgtm import BioSubnetwork, bio_masks
from tests.bench.tiny import tiny_model
from tests.submissions.code import code

Array = NDArray[np.float64]
START = [[0.7, -0.4], [-1.1, 0.3]]
STEPS = 3


class Bigram(nn.Module):
    """Next-token logits that depend on the current token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor(START))

    def forward(self, input_ids: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.table[input_ids])


def batch(seed: int) -> Batch:
    """A full block, a short one and one without a target; what is beyond the lengths is noise."""
    ids = torch.randint(2, (3, 6), generator=torch.Generator().manual_seed(seed))
    return Batch(ids, torch.tensor([6, 4, 1]))


BATCHES = [(batch(2 * step), batch(2 * step + 1)) for step in range(STEPS)]


def bigrams(batch: Batch) -> list[list[tuple[int, int]]]:
    """(current, next) of each block's real next tokens."""
    rows = zip(batch.ids.tolist(), batch.lengths.tolist(), strict=True)
    return [[(row[t], row[t + 1]) for t in range(length - 1)] for row, length in rows]


def softmax(logits: Array) -> Array:
    return np.asarray(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True))


def pull(table: Array, pairs: list[tuple[int, int]], labels: list[Array] | None = None) -> Array:
    """Sum of the gradients of a cross-entropy: softmax(logits) - label, in the current row."""
    total = np.zeros((2, 2))
    wanted = labels or [np.eye(2)[after] for _, after in pairs]
    for (now, _), label in zip(pairs, wanted, strict=True):
        total[now] += softmax(table)[now] - label
    return total


def flat(batch: Batch) -> list[tuple[int, int]]:
    return [pair for block in bigrams(batch) for pair in block]


def ce(table: Array, batch: Batch) -> Array:
    """Gradient of the mean cross-entropy."""
    return pull(table, flat(batch)) / len(flat(batch))


def loss(table: Array, pairs: list[tuple[int, int]]) -> float:
    return -float(sum(np.log(softmax(table)[now, after]) for now, after in pairs))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@dataclass
class Step:
    """Where a gradient is taken, and with what."""

    table: Array
    forget: Batch
    retain: Batch
    config: Any
    generator: torch.Generator
    member: Array = field(default_factory=lambda: np.float32(START).astype(np.float64))


def kl(s: Step) -> Array:
    """Gradient of mean KL(member || model): softmax(model) - softmax(member)."""
    pairs = flat(s.retain)
    return pull(s.table, pairs, [softmax(s.member)[now] for now, _ in pairs]) / len(pairs)


def npo(s: Step) -> Array:
    """d/dl of (2 / b) log(1 + exp(b (l_0 - l))) is -2 sigmoid(b (l_0 - l))."""
    blocks, total = bigrams(s.forget), np.zeros((2, 2))
    for pairs in blocks:
        closer = s.config.beta * (loss(s.member, pairs) - loss(s.table, pairs))
        total -= 2 * sigmoid(closer) * pull(s.table, pairs)
    return total / len(blocks)


def simnpo(s: Step) -> Array:
    """d/dl of -(2 / b) log sigmoid(b l / n - m) is -(2 / n) sigmoid(m - b l / n)."""
    blocks, total = bigrams(s.forget), np.zeros((2, 2))
    for pairs in blocks:
        size = max(len(pairs), 1)
        behind = s.config.margin - s.config.beta * loss(s.table, pairs) / size
        total -= 2 / size * sigmoid(behind) * pull(s.table, pairs)
    return total / len(blocks) + s.config.retain_weight * ce(s.table, s.retain)


def undial(s: Step) -> Array:
    pairs = flat(s.forget)
    teacher = [softmax(s.member[now] - s.config.beta * np.eye(2)[after]) for now, after in pairs]
    distilled = pull(s.table, pairs, teacher) / len(pairs)
    return distilled + s.config.retain_weight * ce(s.table, s.retain)


def rlabel(s: Step) -> Array:
    pairs = flat(s.forget)
    drawn = torch.randint(2, (len(pairs),), generator=s.generator).tolist()
    return pull(s.table, pairs, [np.eye(2)[label] for label in drawn]) / len(pairs)


def wga(s: Step) -> Array:
    """The weight p ** alpha is a constant."""
    pairs, total = flat(s.forget), np.zeros((2, 2))
    for now, after in pairs:
        weight = softmax(s.table)[now, after] ** s.config.exponent
        total += weight * pull(s.table, [(now, after)])
    return ce(s.table, s.retain) - s.config.forget_weight * total / len(pairs)


GRADIENTS: dict[str, Callable[[Step], Array]] = {
    "ga": lambda s: -ce(s.table, s.forget),
    "grad_diff": lambda s: s.config.retain_weight * ce(s.table, s.retain) - ce(s.table, s.forget),
    "ga_kl": lambda s: s.config.retain_weight * kl(s) - ce(s.table, s.forget),
    "npo": npo,
    "npo_kl": lambda s: npo(s) + s.config.retain_weight * kl(s),
    "simnpo": simnpo,
    "undial": undial,
    "rlabel": rlabel,
    "wga": wga,
    "retain_only": lambda s: ce(s.table, s.retain),
}


def configs(name: str) -> tuple[Any, ...]:
    return tuple(load_submission(find_submission(name), TASKS["vital"].limits.trials).configs)


def run(name: str, config: Any, batches: list[tuple[Batch, Batch]]) -> Bigram:
    """A method's steps on these batches, whether or not it yields in between."""
    model = Bigram()
    forget, retain = zip(*batches, strict=True)
    streams = Data(forget=iter(forget), retain=iter(retain))
    for _ in code(name).unlearn(model, streams, config, torch.Generator().manual_seed(5)):
        pass
    return model


@pytest.mark.parametrize(
    ("name", "config"), [(name, config) for name in GRADIENTS for config in configs(name)]
)
def test_the_steps_of_a_method_are_those_of_its_equation(name: str, config: Any) -> None:
    generator = torch.Generator().manual_seed(5)
    table = np.float32(START).astype(np.float64)
    for forget, retain in BATCHES:
        gradient = GRADIENTS[name](Step(table, forget, retain, config, generator))
        clipped = gradient * min(1, 1 / float(np.linalg.norm(gradient)))
        table = table - config.learning_rate * clipped
    moved = run(name, config, BATCHES).table.detach().double().numpy() - np.float32(START)
    np.testing.assert_allclose(moved, table - np.float32(START), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("name", sorted(GRADIENTS.keys() - {"rlabel", "retain_only"}))
def test_a_step_raises_the_loss_of_forget_text_and_not_that_of_retain_text(name: str) -> None:
    """The two texts use different rows of the table, so that each term moves its own."""
    full = torch.tensor([6])
    forget, retain = Batch(torch.ones(1, 6).long(), full), Batch(torch.zeros(1, 6).long(), full)
    start = np.float32(START).astype(np.float64)
    after = run(name, configs(name)[0], [(forget, retain)]).table.detach().double().numpy()
    assert loss(after, flat(forget)) > loss(start, flat(forget))
    # A KL term is not exactly flat at the member in float32.
    assert loss(after, flat(retain)) <= loss(start, flat(retain)) + 1e-6


@pytest.mark.parametrize("kind", ["ga", "npo"])
def test_a_kl_anchor_has_no_pull_at_the_member(kind: str) -> None:
    free, anchored = configs(kind)[0], configs(f"{kind}_kl")[0]
    rate = {"learning_rate": anchored.learning_rate}
    same = type(free)(**(rate if kind == "ga" else {**rate, "beta": anchored.beta}))
    one, other = run(kind, same, BATCHES[:1]), run(f"{kind}_kl", anchored, BATCHES[:1])
    torch.testing.assert_close(one.table, other.table, rtol=0, atol=1e-7)


# One-shot edits


def matrices(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items() if value.dim() > 1}


def test_one_step_of_adamw_is_a_sign_and_its_negation_is_what_the_task_vector_adds() -> None:
    """Adam's first step is rate * g / (|g| + eps); fine-tuning goes against g, negation with it."""
    task_vector = code("task_vector")
    config = task_vector.Config(learning_rate=0.01, steps=1, first=0.5, growth=2.0, yields=3)
    model, (forget, retain) = Bigram(), BATCHES[0]
    start = np.float32(START).astype(np.float64)
    sign = np.sign(ce(start, forget))
    assert sign.all()
    streams = Data(forget=iter([forget]), retain=iter([retain]))
    scales = []
    for _ in task_vector.unlearn(model, streams, config, torch.Generator()):
        moved = model.table.detach().double().numpy() - start
        scales.append((moved / (0.01 * sign)).ravel())
    np.testing.assert_allclose(scales, [[0.5] * 4, [1.0] * 4, [2.0] * 4], rtol=1e-4)


def test_a_random_walk_goes_growing_distances_in_one_direction_of_each_matrix() -> None:
    model = tiny_model()
    before, every = matrices(model), {k: v.clone() for k, v in model.state_dict().items()}
    config = code("random_walk").Config(first=0.01, growth=2.0, yields=3)
    directions = []
    walk = code("random_walk").unlearn(model, None, config, torch.Generator().manual_seed(1))
    for number, _ in enumerate(walk):
        moved = {name: value - before[name] for name, value in matrices(model).items()}
        for name, step in moved.items():
            distance = (step.norm() / before[name].norm()).item()
            assert distance == pytest.approx(0.01 * 2**number, rel=1e-3)
        directions.append(moved["transformer.wte.weight"])
    torch.testing.assert_close(directions[2], 4 * directions[0], rtol=1e-2, atol=1e-5)
    after = model.state_dict()
    assert all(torch.equal(after[name], every[name]) for name in after.keys() - before.keys())


def test_sgtm_ablation_fades_out_what_sgtm_trains_and_nothing_else() -> None:
    model = tiny_model()
    masks = bio_masks(model, BioSubnetwork(heads=1, units=16))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("c_fc.bias"):
                parameter.copy_(torch.linspace(-1, 1, len(parameter)))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    config = code("sgtm_ablation").Config(heads=1, units=16, yields=4)
    for number, _ in enumerate(code("sgtm_ablation").unlearn(model, None, config, None), 1):
        for name, p in model.named_parameters():
            mask = masks.get(name, torch.zeros(p.shape, dtype=torch.bool))
            torch.testing.assert_close(p[mask], (1 - number / 4) * before[name][mask])
            assert torch.equal(p[~mask], before[name][~mask])
    assert number == 4
    assert all(not dict(model.named_parameters())[name][mask].any() for name, mask in masks.items())


def test_what_sgtm_ablation_removed_has_no_gradient_to_come_back_by() -> None:
    model = tiny_model()
    masks = bio_masks(model, BioSubnetwork(heads=1, units=16))
    config = code("sgtm_ablation").Config(heads=1, units=16, yields=1)
    for _ in code("sgtm_ablation").unlearn(model, None, config, None):
        pass
    ids = torch.randint(2, 60, (2, 12), generator=torch.Generator().manual_seed(0))
    model(input_ids=ids).logits.square().mean().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    for name, mask in masks.items():
        gradient = gradients[name]
        assert gradient is not None
        assert not gradient[mask].any()
        assert gradient[~mask].any()
