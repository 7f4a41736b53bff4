"""The order of training steps and the blocks of each, as pure functions of recipe and seed.

Everything here follows from the step's number alone, so a run can stop, fork and resume anywhere.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import torch

from bench.data import DOMAINS, Blocks
from bench.domains import Domain
from reference_models.sgtm import Kind

EXTRA_EPOCHS: Final = 1000
"""Extra forget batch k of a step in epoch e is drawn from the packing of epoch e + 1000 k."""
Source = Callable[[Domain, int, bool], Blocks]
"""(role, epoch, placebo) to a fresh packing of the training text in that role."""


class Step(NamedTuple):
    """One position of the schedule."""

    epoch: int
    domain: Domain
    """The domain in whose role the batch is trained on."""
    place: int
    """Number of the batch within its domain and epoch."""
    kind: Kind


def _generator(*key: object) -> torch.Generator:
    """A generator that depends on the key alone and not on the process."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def first_sgtm_step(total: int, p: int) -> int:
    """The step at which the last p % of the steps begin."""
    return total * (100 - p) // 100


def schedule(
    counts: Sequence[Mapping[Domain, int]],
    *,
    seed: int,
    p: int,
    off_share: float,
    plain_share: float = 0.0,
    skip_forget: bool = False,
) -> tuple[Step, ...]:
    """All steps of a member, in order.

    Which batch comes when depends on `counts` and `seed` only, so it is the same for all members;
    so is the draw that makes an adjacent or retain step of the SGTM phase an off step, or a forget
    step a plain one.

    Args:
        counts: Batches of each domain, per epoch.
        seed: The recipe's seed.
        p: The last p % of the steps are the SGTM phase.
        off_share: Probability that an adjacent or retain step of that phase runs with θ_bio off.
        plain_share: Probability that a forget step of that phase runs plain.
        skip_forget: The oracle: forget steps are kept in the count and do nothing.
    """
    order: list[tuple[int, Domain, int]] = []
    for epoch, count in enumerate(counts):
        batches = [(epoch, domain, i) for domain in DOMAINS for i in range(count[domain])]
        permutation = torch.randperm(len(batches), generator=_generator("order", seed, epoch))
        order += [batches[i] for i in permutation.tolist()]
    first = first_sgtm_step(len(order), p)
    draws = torch.rand(len(order), generator=_generator("off", seed)).tolist()

    def kind(number: int, domain: Domain) -> Kind:
        if domain == "forget" and skip_forget:
            return "skip"
        if number < first:
            return "plain"
        if domain == "forget":
            return "plain" if draws[number] < plain_share else "forget"
        return "off" if draws[number] < off_share else "plain"

    return tuple(Step(*place, kind(number, place[1])) for number, place in enumerate(order))


class Batches:
    """The blocks of every step.

    Blocks are shuffled once more per (seed, domain, epoch), and cut into batches of equal size;
    what is left over at the end of an epoch is dropped.
    """

    def __init__(self, source: Source, *, epochs: int, size: int, seed: int) -> None:
        """Keep the source; `size` is blocks per batch."""
        self._source, self._seed, self.size = source, seed, size
        self._packings: dict[tuple[Domain, int, bool], Blocks] = {}
        self._ordered: dict[tuple[Domain, int, bool], Blocks] = {}
        self.counts: tuple[dict[Domain, int], ...] = tuple(
            {domain: len(self._packing(domain, e, False).ids) // size for domain in DOMAINS}
            for e in range(epochs)
        )

    def sha256(self) -> str:
        """Hash of every block of every epoch, before shuffling."""
        digest = hashlib.sha256()
        for epoch in range(len(self.counts)):
            for domain in DOMAINS:
                for tensor in self._packing(domain, epoch, False):
                    digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def batch(self, step: Step, *, placebo: bool = False) -> Blocks:
        """The blocks of a step.

        With `placebo`, roles are swapped: the source gives retain text in the role of forget, and
        true forget text among that of retain; the counts of batches stay.
        """
        return self._cut(self._shuffled(step.domain, step.epoch, placebo), step.place)

    def extra(self, step: Step, number: int, *, placebo: bool = False) -> Blocks:
        """Extra forget batch `number` (1, 2, …) of a forget step, from a stream of its own."""
        blocks = self._shuffled("forget", step.epoch + EXTRA_EPOCHS * number, placebo)
        return self._cut(blocks, step.place % max(1, len(blocks.ids) // self.size))

    def _cut(self, blocks: Blocks, index: int) -> Blocks:
        at = slice(index * self.size, (index + 1) * self.size)
        return Blocks(blocks.ids[at], blocks.lengths[at])

    def _packing(self, role: Domain, epoch: int, placebo: bool) -> Blocks:
        key = (role, epoch, placebo)
        if key not in self._packings:
            self._packings[key] = self._source(*key)
        return self._packings[key]

    def _shuffled(self, role: Domain, epoch: int, placebo: bool) -> Blocks:
        key = (role, epoch, placebo)
        if key not in self._ordered:
            blocks = self._packing(*key)
            count = len(blocks.ids)
            order = torch.randperm(count, generator=_generator("blocks", self._seed, *key))
            # The placebo's text need not be of the same length; begin again where it is short.
            wanted = self.counts[epoch % EXTRA_EPOCHS][role] * self.size
            order = order.repeat(max(1, -(-wanted // count)))
            self._ordered[key] = Blocks(blocks.ids[order], blocks.lengths[order])
        return self._ordered[key]
