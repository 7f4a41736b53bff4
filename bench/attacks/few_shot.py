"""Few-shot prompting: solved probes from the attacker's documents before each probe.

Nothing is trained. Demonstrations are asked in the probe's own template, drawn anew for each
probe by the attack seed, and short enough for the trained length.
"""

import random
from collections.abc import Iterator
from typing import Final

from tokenizers import Tokenizer
from transformers import PreTrainedModel

from bench.attacks.dose import Dose
from bench.data import BLOCK, select
from bench.facts import PROBED_TEMPLATE, UNSEEN_TEMPLATE, Probe, load_probes, statement
from bench.measure import Answer, Evaluator, Measures, encode_probes, score_probes
from bench.tasks import FewShot

NAME: Final = "few_shot"


def few_shot(
    model: PreTrainedModel, config: FewShot, evaluator: Evaluator, seed: int
) -> Iterator[Dose]:
    """The unprompted model, then each number of demonstrations.

    Args:
        model: Weights under attack, loaded; not changed.
        config: Numbers of demonstrations.
        evaluator: The member's.
        seed: Draw of the demonstrations.
    """
    for shots in (0, *config.shots):
        measures: dict[str, Measures] = {}
        answers: list[tuple[str, Answer]] = []
        for split in ("dev", "test"):
            measures[split], answered = (
                _prompted(model, evaluator.tokenizer, split, shots, seed)
                if shots
                else evaluator.probes(model, split)
            )
            answers += [(split, answer) for answer in answered]
        yield Dose(
            attack=NAME,
            learning_rate=None,
            step=shots,
            amount=shots,
            dev=measures["dev"],
            test=measures["test"],
            answers=tuple(answers),
        )


def _prompted(
    model: PreTrainedModel, tokenizer: Tokenizer, split: str, shots: int, seed: int
) -> tuple[Measures, list[Answer]]:
    probes = [p for p in load_probes() if p.domain == "forget" and p.split == split]
    tensors = [
        encode_probes(
            probes,
            template,
            tokenizer,
            all_options=template is PROBED_TEMPLATE,
            demonstrations=demonstrations(probes, template, tokenizer, shots, seed),
        )
        for template in (PROBED_TEMPLATE, UNSEEN_TEMPLATE)
    ]
    return score_probes(model, tensors[0], tensors[1])


def demonstrations(
    probes: list[Probe], template: tuple[str, str], tokenizer: Tokenizer, shots: int, seed: int
) -> list[str]:
    """For each probe, `shots` solved facts of relearn documents that leave room for its question.

    Where the question and all its options leave no room for that many, as many as fit.
    """
    known = [d.article for d in select("forget", ["relearn"]) if d.fact]
    lines = [statement(template, article) for article in known]
    sizes = [len(e.ids) for e in tokenizer.encode_batch(lines)]
    texts = []
    for probe in probes:
        prompt = template[0].format(title=probe.title)
        longest = max(probe.options, key=len)
        # Joining adds no token; the margin covers options that are short but hard to encode.
        room = BLOCK - len(tokenizer.encode(f"{prompt} {longest}").ids) - 8
        order = list(range(len(lines)))
        random.Random(f"{seed} {probe.index}").shuffle(order)
        chosen: list[str] = []
        for index in order:
            if len(chosen) < shots and sizes[index] <= min(room, BLOCK // (shots + 1)):
                chosen.append(lines[index])
                room -= sizes[index] + 1
        texts.append(" ".join(chosen))
    return texts
