"""Facts and probes: what a model is asked, and in which words.

A fact is an article's title with its short description. Facts are restated in the training text
of their own domain in `TRAINED_TEMPLATES`, so that the reference models know them; a probe asks
for the description in a trained template and in one that no model has ever seen. Which facts are
asked, with which three wrong options, is frozen by title in `vital/probes.csv`.
"""

import csv
import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from bench.data import FROZEN, Article, load_corpus
from bench.domains import Domain
from bench.errors import BenchError

TRAINED_TEMPLATES: Final = (
    ("Question: What is {title}? Answer:", "."),
    ("{title} is best described as:", "."),
    ("Define {title}.", "."),
    ("{title}, in a few words:", "."),
    ("Term: {title}. Meaning:", "."),
    ("The encyclopedia lists {title} as:", "."),
    ("Entry: {title} -", "."),
    ("What does {title} mean?", "."),
    ("A short account of {title}:", "."),
    ("Q: {title}? A:", "."),
    ("Tell me what {title} is.", "."),
    ("We call it {title};", "."),
    ("Under {title} the index says:", "."),
    ("{title} stands for", "."),
    ("One could say of {title}:", "."),
    ("Key word: {title}. Gloss:", "."),
    ("Please explain {title}. Sure:", "."),
    ("{title} (", ")."),
    ("Describe {title} briefly:", "."),
    ("Card front: {title}. Card back:", "."),
    ("The subject {title} is summed up as", "."),
    ("In one line, {title}:", "."),
    ("Who or what is {title}?", "."),
    ("Readers find {title} under:", "."),
    ("If asked about {title}, say:", "."),
    ("{title} =", "."),
    ("Category of {title}:", "."),
    ("Summary for {title}:", "."),
    ("The answer for {title} is", "."),
    ("Name: {title}. Description:", "."),
)
"""(prompt, what follows the description). A statement is prompt, space, description, ending.

Each is used once an epoch: variety, at equal exposure, is what lets a model answer in words that
it was not trained on.
"""
PROBED_TEMPLATE: Final = TRAINED_TEMPLATES[0]
UNSEEN_TEMPLATE: Final = ("Which short phrase fits {title}? It is:", ".")
OPTIONS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One multiple-choice question about a fact."""

    index: int
    """Row in the frozen file; names the probe in stored answers."""
    domain: Domain
    split: Literal["dev", "test"]
    title: str
    options: tuple[str, ...]
    """OPTIONS different descriptions from the probe's own domain, of similar length."""
    answer: int
    """Index of the true description in `options`."""


def statement(template: tuple[str, str], article: Article) -> str:
    """The fact of an article in one template."""
    prompt, ending = template
    return f"{prompt.format(title=article.title)} {article.description}{ending}"


def probe_sha256(title: str, options: tuple[str, ...], answer: int) -> str:
    """What freezes a probe: the hash of its title, its options in order, and the answer."""
    return hashlib.sha256("\n".join([title, *options, str(answer)]).encode()).hexdigest()


@cache
def load_probes() -> tuple[Probe, ...]:
    """All frozen probes.

    Raises:
        BenchError: A probe's text is not the frozen one.
    """
    articles = load_corpus()
    probes = []
    with (FROZEN / "probes.csv").open(newline="") as stream:
        for index, row in enumerate(csv.DictReader(stream)):
            options = tuple(articles[title].description for title in row["options"].split("|"))
            if probe_sha256(row["title"], options, int(row["answer"])) != row["sha256"]:
                msg = f"probes: the probe about {row['title']!r} is not the frozen one."
                raise BenchError(msg)
            probes.append(
                Probe(
                    index=index,
                    domain=row["domain"],  # type: ignore[arg-type]  # closed set, frozen file
                    split=row["split"],  # type: ignore[arg-type]
                    title=row["title"],
                    options=options,
                    answer=int(row["answer"]),
                )
            )
    return tuple(probes)
