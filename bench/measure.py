"""Losses, KL and probes: the only place where a model is measured.

Everything that does not depend on the measured model is done once: token blocks, probe tensors,
and the member's own final hidden states, from which its distribution is recomputed for KL. All
averages are over real tokens, never over batches; batches are fixed, so that a measurement does
not depend on who asks.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812  # the field's usual name
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from bench.api import Batch, token_losses
from bench.data import Blocks, article_blocks
from bench.domains import Domain
from bench.facts import PROBED_TEMPLATE, UNSEEN_TEMPLATE, Probe, load_probes

BATCH: Final = 32
"""Blocks per forward pass."""
PROBE_BATCH: Final = 128
"""Probe sequences per forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What one model scores on one split; None where it was not measured."""

    kl: float | None = None
    """KL(member || model) on retain text, full vocabulary, nats per token."""
    forget_loss: float | None = None
    retain_loss: float | None = None
    adjacent_loss: float | None = None
    probe_accuracy: float | None = None
    """Share of forget probes whose true option has the highest mean token log-probability."""
    answer_probability: float | None = None
    """Mean over forget probes of exp(mean token log-probability of the true answer)."""
    unseen_answer_probability: float | None = None
    """The same, asked in a template that was never trained."""

    def finite(self) -> bool:
        """Whether every measured value is a finite number."""
        values = [getattr(self, field.name) for field in fields(self)]
        return all(math.isfinite(value) for value in values if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How one probe was answered."""

    probe: int
    template: str
    """`trained` or `unseen`."""
    probability: float
    """exp(mean token log-probability of the true answer)."""
    correct: bool | None
    """Whether the true option won; None where the options were not compared."""


@dataclass(frozen=True, slots=True)
class ProbeTensors:
    """Question-and-answer sequences of one split in one template.

    Row i belongs to probe i // options; with more than one option, column i % options.
    """

    probes: tuple[Probe, ...]
    options: int
    ids: torch.Tensor
    """(rows, longest) int64, padded on the right."""
    answer: torch.Tensor
    """(rows, longest - 1) bool; True where the *next* token belongs to the answer."""


def encode_probes(
    probes: Sequence[Probe],
    template: tuple[str, str],
    tokenizer: Tokenizer,
    *,
    all_options: bool,
    demonstrations: Sequence[str] = (),
) -> ProbeTensors:
    """Tokenise probes: prompt, then the answer (or each option in turn).

    Args:
        probes: What to ask.
        template: The words to ask in.
        tokenizer: The suite's.
        all_options: Whether every option is scored (accuracy) or only the true answer.
        demonstrations: Per probe, a text to put before its question; or empty.
    """
    rows: list[tuple[list[int], int]] = []
    for number, probe in enumerate(probes):
        prompt = template[0].format(title=probe.title)
        if demonstrations:
            prompt = f"{demonstrations[number]} {prompt}".strip()
        head = tokenizer.encode(prompt).ids
        options = probe.options if all_options else (probe.options[probe.answer],)
        rows += [(head + tokenizer.encode(f" {option}").ids, len(head)) for option in options]
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    answer = torch.zeros(len(rows), longest - 1, dtype=torch.bool)
    for row, (tokens, start) in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        answer[row, start - 1 : len(tokens) - 1] = True
    return ProbeTensors(tuple(probes), len(probes[0].options) if all_options else 1, ids, answer)


@torch.no_grad()
def answer_scores(model: PreTrainedModel, tensors: ProbeTensors) -> torch.Tensor:
    """Mean token log-probability of each row's answer; (rows,) float32.

    Only answer positions reach the output head: it is the larger part of a small model.
    """
    head = model.get_output_embeddings()
    scores = torch.empty(len(tensors.ids))
    # Rows of like length share a batch, so that little of it is padding.
    last = (tensors.answer * torch.arange(tensors.answer.shape[1])).amax(1)
    for rows in last.argsort(stable=True).split(PROBE_BATCH):
        ids, answer = tensors.ids[rows], tensors.answer[rows]
        width = int(answer.any(0).nonzero().max()) + 2
        hidden = model.base_model(input_ids=ids[:, :width]).last_hidden_state
        mask = answer[:, : width - 1]
        logits = head(hidden[:, :-1][mask]).float()
        losses = F.cross_entropy(logits, ids[:, 1:width][mask], reduction="none")
        total = torch.zeros(mask.shape).masked_scatter(mask, -losses).sum(1)
        scores[rows] = total / mask.sum(1)
    return scores


def score_probes(
    model: PreTrainedModel, trained: ProbeTensors, unseen: ProbeTensors
) -> tuple[Measures, list[Answer]]:
    """Accuracy and answer probabilities of a model, and every single answer."""
    options = answer_scores(model, trained).view(-1, trained.options)
    truth = torch.tensor([probe.answer for probe in trained.probes])
    correct = options.argmax(1) == truth
    known = options.gather(1, truth[:, None])[:, 0].exp()
    unseen_known = answer_scores(model, unseen).exp()
    answers = [
        Answer(probe=p.index, template="trained", probability=k, correct=c)
        for p, k, c in zip(trained.probes, known.tolist(), correct.tolist(), strict=True)
    ] + [
        Answer(probe=p.index, template="unseen", probability=k, correct=None)
        for p, k in zip(unseen.probes, unseen_known.tolist(), strict=True)
    ]
    measures = Measures(
        probe_accuracy=correct.double().mean().item(),
        answer_probability=known.double().mean().item(),
        unseen_answer_probability=unseen_known.double().mean().item(),
    )
    return measures, answers


def _batches(blocks: Blocks) -> Iterator[Batch]:
    for ids, lengths in zip(blocks.ids.split(BATCH), blocks.lengths.split(BATCH), strict=True):
        yield Batch(ids, lengths)


@torch.no_grad()
def mean_loss(model: PreTrainedModel, blocks: Blocks) -> float:
    """Mean cross-entropy over all real tokens of some blocks, nats."""
    total, count = 0.0, 0
    for batch in _batches(blocks):
        losses = token_losses(model(input_ids=batch.ids).logits, batch)
        total += losses.double().sum().item()
        count += losses.numel()
    return total / count


class Evaluator:
    """Measures any model of one member's shape on the frozen dev and test data."""

    def __init__(self, member: PreTrainedModel, tokenizer: Tokenizer) -> None:
        """Prepare all that the measured model does not change; `member` must stay unchanged."""
        self._member = member
        self.tokenizer = tokenizer
        self._blocks: dict[tuple[Domain, str], Blocks] = {}
        self._hidden: dict[str, list[torch.Tensor]] = {}
        self._probes: dict[tuple[Domain, str], tuple[ProbeTensors, ProbeTensors]] = {}

    def losses(self, model: PreTrainedModel, split: str, *domains: Domain) -> Measures:
        """Mean losses on the given domains of `dev` or `test`."""
        named = {f"{d}_loss": mean_loss(model, self._articles(d, split)) for d in domains}
        return Measures(**named)

    @torch.no_grad()
    def retain(self, model: PreTrainedModel, split: str) -> Measures:
        """KL to the member and retain loss, from the same forward passes."""
        blocks = self._articles("retain", split)
        own_head, head = self._member.get_output_embeddings(), model.get_output_embeddings()
        kl = loss = 0.0
        count = 0
        for batch, hidden in zip(_batches(blocks), self._member_hidden(split), strict=True):
            own = model.base_model(input_ids=batch.ids).last_hidden_state
            real = torch.arange(1, batch.ids.shape[1]) < batch.lengths[:, None]
            log_q = head(own[:, :-1][real]).float().log_softmax(-1)
            log_p = own_head(hidden[:, :-1][real]).float().log_softmax(-1)
            kl += (log_p.exp() * (log_p - log_q)).sum(-1).double().sum().item()
            targets = batch.ids[:, 1:][real]
            loss -= log_q.gather(1, targets[:, None]).double().sum().item()
            count += targets.numel()
        return Measures(kl=kl / count, retain_loss=loss / count)

    def probes(
        self, model: PreTrainedModel, split: str, *, domain: Domain = "forget"
    ) -> tuple[Measures, list[Answer]]:
        """The probes of a domain, asked in a trained and in the unseen template."""
        key = (domain, split)
        if key not in self._probes:
            asked = [p for p in load_probes() if p.domain == domain and p.split == split]
            self._probes[key] = (
                encode_probes(asked, PROBED_TEMPLATE, self.tokenizer, all_options=True),
                encode_probes(asked, UNSEEN_TEMPLATE, self.tokenizer, all_options=False),
            )
        return score_probes(model, *self._probes[key])

    def _articles(self, domain: Domain, split: str) -> Blocks:
        key = (domain, split)
        if key not in self._blocks:
            self._blocks[key] = article_blocks(domain, split, self.tokenizer)  # type: ignore[arg-type]
        return self._blocks[key]

    @torch.no_grad()
    def _member_hidden(self, split: str) -> list[torch.Tensor]:
        if split not in self._hidden:
            self._hidden[split] = [
                self._member.base_model(input_ids=batch.ids).last_hidden_state
                for batch in _batches(self._articles("retain", split))
            ]
        return self._hidden[split]


def merge(*parts: Measures) -> Measures:
    """One Measures with every value that any part has."""
    values = {
        field.name: value
        for part in parts
        for field in fields(part)
        if (value := getattr(part, field.name)) is not None
    }
    return Measures(**values)
