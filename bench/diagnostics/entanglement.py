"""How entangled two domains are in a model's representations: VES, MMD², sliced W₂².

As in the SGTM entanglement paper (arXiv 2609.02285, section 2.2 and appendix C): n held-out texts
per domain, a layer's hidden states averaged over real tokens and scaled to unit norm, then two
clouds of points compared; the paper takes the final layer, here every layer is looked at. Lower
VES, higher MMD² and higher SW₂² mean less entangled. The three have no common scale, so they are
reported as log-ratios to the member `p000`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from bench.data import BLOCK, DOMAINS, Split, select
from bench.domains import Domain

Cloud = NDArray[np.float64]
"""(n, width) unit vectors, one per text."""

PAIRS: Final[tuple[tuple[Domain, Domain], ...]] = (
    ("forget", "retain"),
    ("forget", "adjacent"),
    ("retain", "adjacent"),
)
PROJECTIONS: Final = 512
"""Random directions of the sliced distance."""
DRAWS: Final = 200
"""Half-samples of the texts behind an interval."""


def ves(first: Cloud, second: Cloud) -> float:
    """Variance entanglement score: spread within the clouds over spread between them.

    (mean |x - m₁|² + mean |y - m₂|²) / (½ (|m₁ - m|² + |m₂ - m|²)), m the mean of all points;
    infinite where the two means coincide.
    """
    means = first.mean(0), second.mean(0)
    overall = np.concatenate([first, second]).mean(0)
    within = ((first - means[0]) ** 2).sum(1).mean() + ((second - means[1]) ** 2).sum(1).mean()
    between = 0.5 * sum(float(((mean - overall) ** 2).sum()) for mean in means)
    return float(within) / between if between else float("inf")


def mmd2(first: Cloud, second: Cloud) -> float:
    """Unbiased squared maximum mean discrepancy, RBF kernel exp(-d² / median d²).

    Gretton et al. 2012, equation 3: diagonals left out. May be slightly negative. The median
    is over all pairs of the two clouds together.
    """
    squared = squareform(pdist(np.concatenate([first, second]), "sqeuclidean"))
    median = np.median(squared[np.triu_indices_from(squared, 1)])
    kernel = np.exp(-squared / median)
    n, m = len(first), len(second)
    own = (kernel[:n, :n].sum() - n) / (n * (n - 1))
    other = (kernel[n:, n:].sum() - m) / (m * (m - 1))
    return float(own + other - 2 * kernel[:n, n:].mean())


def sliced_w2(first: Cloud, second: Cloud) -> float:
    """Squared sliced 2-Wasserstein distance over fixed random directions (Bonneel et al. 2015).

    Raises:
        ValueError: The clouds differ in size.
    """
    if len(first) != len(second):
        msg = f"clouds of {len(first)} and {len(second)} points; equal sizes are needed."
        raise ValueError(msg)
    directions = _directions(first.shape[1])
    difference = np.sort(first @ directions, 0) - np.sort(second @ directions, 0)
    return float((difference**2).mean())


@cache
def _directions(width: int) -> NDArray[np.float64]:
    """Random unit vectors, (width, PROJECTIONS), the same for everything."""
    directions = np.random.default_rng(0).standard_normal((width, PROJECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    directions.flags.writeable = False
    return directions


METRICS: Final[dict[str, Callable[[Cloud, Cloud], float]]] = {
    "ves": ves,
    "mmd2": mmd2,
    "sw2": sliced_w2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entanglement:
    """One metric between two domains in one model."""

    metric: str
    pair: tuple[Domain, Domain]
    value: float
    log_ratio: float
    """log(value / the same of p000); NaN where either is not positive."""
    interval: tuple[float, float]
    """95 % interval of the log-ratio over texts, the same texts in both models."""


def clouds(
    model: PreTrainedModel, tokenizer: Tokenizer, splits: Sequence[Split] = ("dev", "test")
) -> list[dict[Domain, Cloud]]:
    """One unit vector per held-out text, equally many of each domain, for every layer.

    Returns:
        By layer: 0 the embeddings, then the output of each block; the last one is normalised by
        the model's final layer norm, as its output head sees it.
    """
    texts = {d: [x.article.text for x in select(d, splits)] for d in DOMAINS}
    count = min(len(t) for t in texts.values())
    by_domain = {d: _layers(model, tokenizer, t[:count]) for d, t in texts.items()}
    return [
        dict(zip(DOMAINS, layer, strict=True))
        for layer in zip(*(by_domain[d] for d in DOMAINS), strict=True)
    ]


@torch.no_grad()
def _layers(model: PreTrainedModel, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Cloud]:
    vectors = []
    for encoding in tokenizer.encode_batch(list(texts)):
        ids = torch.tensor([encoding.ids[:BLOCK]])
        states = model.base_model(input_ids=ids, output_hidden_states=True).hidden_states
        means = torch.stack([state[0].double().mean(0) for state in states])
        vectors.append(torch.nn.functional.normalize(means, dim=1).numpy())
    return list(np.stack(vectors, axis=1))


def compare(member: dict[Domain, Cloud], base: dict[Domain, Cloud]) -> list[Entanglement]:
    """Every metric for every pair of domains, against the base member p000.

    Intervals come from half-samples without replacement, whose spread equals the standard error
    of the whole sample; a bootstrap's repeated texts would put ones off the kernel's diagonal.
    """
    count = len(next(iter(member.values())))
    generator = np.random.default_rng(0)
    draws = [[generator.permutation(count)[: count // 2] for _ in range(2)] for _ in range(DRAWS)]
    rows = []
    for name, metric in METRICS.items():
        for pair in PAIRS:

            def ratio(
                one: NDArray[np.int64],
                two: NDArray[np.int64],
                metric: Callable[[Cloud, Cloud], float] = metric,
                pair: tuple[Domain, Domain] = pair,
            ) -> float:
                here = metric(member[pair[0]][one], member[pair[1]][two])
                there = metric(base[pair[0]][one], base[pair[1]][two])
                return float(np.log(here / there)) if here > 0 < there else float("nan")

            every = np.arange(count)
            low, high = np.nanquantile([ratio(draw[0], draw[1]) for draw in draws], [0.025, 0.975])
            rows.append(
                Entanglement(
                    metric=name,
                    pair=pair,
                    value=metric(member[pair[0]], member[pair[1]]),
                    log_ratio=ratio(every, every),
                    interval=(float(low), float(high)),
                )
            )
    return rows
