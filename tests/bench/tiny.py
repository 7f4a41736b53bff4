"""A GPT-Neo of two layers, random text and made-up probes: the whole protocol in milliseconds."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM, PreTrainedModel

from bench.api import Data
from bench.data import Blocks
from bench.domains import Domain
from bench.facts import Probe
from bench.measure import Answer, Evaluator, Measures, ProbeTensors, score_probes
from bench.neo import fast_attention
from bench.streams import Meter
from bench.tasks import TASKS, Limits, Task

VOCABULARY = 64
WIDTH = 32
LENGTH = 24
TASK: Task = replace(
    TASKS["vital"],
    batch_blocks=2,
    limits=Limits(tokens=4000, yields=24, seconds=60.0, trials=6),
)


def tiny_model(
    seed: int = 0, *, fast: bool = True, layers: int = 2, units: int = 64
) -> GPTNeoForCausalLM:
    """Layers of width 32 over 64 tokens; weights large enough for a distribution with shape."""
    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=128,
        hidden_size=WIDTH,
        num_layers=layers,
        num_heads=2,
        intermediate_size=units,
        attention_types=[[["global"], layers]],
        resid_dropout=0.0,
        embed_dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPTNeoForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return (fast_attention(model) if fast else model).eval()


def tiny_blocks(seed: int, count: int = 6, *, lengths: Sequence[int] = ()) -> Blocks:
    """Random tokens in blocks of 24, the last one short; padded with token 1."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, VOCABULARY, (count, LENGTH), generator=generator)
    real = torch.tensor(lengths or [LENGTH] * (count - 1) + [LENGTH // 2])
    ids[torch.arange(LENGTH) >= real[:, None]] = 1
    return Blocks(ids, real)


def tiny_probes(seed: int, count: int = 5) -> ProbeTensors:
    """Probes of four options, with prompts and answers of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    probes = tuple(
        Probe(
            index=index,
            domain="forget",
            split="dev",
            title=f"title {index}",
            options=("a", "b", "c", "d"),
            answer=index % 4,
        )
        for index in range(count)
    )
    rows = count * 4
    ids = torch.zeros(rows, 16, dtype=torch.int64)
    answer = torch.zeros(rows, 15, dtype=torch.bool)
    for row in range(rows):
        start, size = 4 + row // 4, 1 + row % 5
        tokens = torch.randint(2, VOCABULARY, (start + size,), generator=generator)
        ids[row, : start + size] = tokens
        answer[row, start - 1 : start + size - 1] = True
    return ProbeTensors(probes, 4, ids, answer)


class TinyEvaluator(Evaluator):
    """The evaluator itself, on random blocks and probes in place of the frozen ones."""

    def __init__(self, member: PreTrainedModel) -> None:
        super().__init__(member, None)  # type: ignore[arg-type]  # nothing is tokenised

    def _articles(self, domain: Domain, split: str) -> Blocks:
        return tiny_blocks(100 + 10 * len(domain) + len(split))

    def probes(
        self, model: PreTrainedModel, split: str, *, domain: Domain = "forget"
    ) -> tuple[Measures, list[Answer]]:
        asked = tiny_probes(len(split))
        true = torch.tensor([4 * p.index + p.answer for p in asked.probes])
        unseen = ProbeTensors(asked.probes, 1, asked.ids[true], asked.answer[true])
        return score_probes(model, asked, unseen)


def tiny_streams(meter: Meter, _folder: object, size: int, seed: int) -> Data:
    """What `open_streams` gives, on random blocks."""
    return Data(
        forget=meter.stream(tiny_blocks(1, 8), size, 2 * seed + 1),
        retain=meter.stream(tiny_blocks(2, 8), size, 2 * seed + 2),
    )
