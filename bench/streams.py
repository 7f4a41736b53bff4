"""The token streams a submission draws from: seeded, endless, counted.

The same seed gives the same batches in the same order to every submission, whatever it does with
random numbers of its own.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from bench.api import Batch, Data
from bench.data import TRAINED, Blocks, Split, load_tokenizer, text_blocks
from bench.domains import Domain


@cache
def _blocks(folder: Path, domain: Domain, splits: tuple[Split, ...]) -> Blocks:
    return text_blocks(domain, splits, 0, load_tokenizer(folder))


class Meter:
    """Hands out batches and counts their tokens; the streams end at the limit."""

    def __init__(self, limit: int) -> None:
        """Start at zero tokens."""
        self.tokens = 0
        self._limit = limit

    def stream(self, blocks: Blocks, size: int, seed: int) -> Iterator[Batch]:
        """Batches of `size` blocks, reshuffled every pass, until the common limit is drawn."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.empty(0, dtype=torch.int64)
        while self.tokens < self._limit:
            while len(order) < size:
                order = torch.cat([order, torch.randperm(len(blocks.ids), generator=generator)])
            rows, order = order[:size], order[size:]
            batch = Batch(blocks.ids[rows], blocks.lengths[rows])
            self.tokens += int(batch.lengths.sum())
            yield batch


def open_streams(meter: Meter, folder: Path, batch_blocks: int, seed: int) -> Data:
    """A submission's two streams: all trained forget text, and retain text that is its to keep.

    The attacker's retain documents (`relearn`) are never in the retain stream.

    Args:
        meter: Counts what is drawn.
        folder: The member's folder, for its tokenizer.
        batch_blocks: Blocks per batch.
        seed: Order of the batches.
    """
    forget = _blocks(folder, "forget", TRAINED)
    retain = _blocks(folder, "retain", ("train",))
    return Data(
        forget=meter.stream(forget, batch_blocks, 2 * seed + 1),
        retain=meter.stream(retain, batch_blocks, 2 * seed + 2),
    )
