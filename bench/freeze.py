"""Make the frozen files of the data: `vital/splits.csv`, `vital/probes.csv` and the tokenizer.

Run once per suite version (`python -m bench.freeze TOKENIZER_DIR`); what it writes is committed
and everything else reads only that. Deterministic: the same corpus gives the same bytes.
"""

import csv
import hashlib
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import typer

from bench.data import DOMAINS, END_OF_TEXT, PAD, TRAINED, Article, Document, Split, load_corpus
from bench.domains import Domain, label
from bench.facts import OPTIONS, TRAINED_TEMPLATES, probe_sha256, statement

SALT: Final = "vital 1"
VOCABULARY: Final = 2048
SIZES: Final[dict[Domain, dict[Split, int]]] = {
    "forget": {"dev": 50, "test": 100, "relearn": 350, "probe": 500},
    "adjacent": {"dev": 30, "test": 60, "relearn": 150},
    "retain": {"dev": 50, "test": 100, "relearn": 400},
}
"""Documents per split; all others are `train`."""
FACTS: Final[dict[Domain, dict[Split, int]]] = {
    "forget": {"relearn": 180, "probe": 180},
    "adjacent": {"train": 120},
    "retain": {"train": 240},
}
"""Documents whose fact is restated, by domain and split."""
PROBES: Final[dict[Domain, tuple[Split, int, int]]] = {
    "forget": ("probe", 60, 120),
    "adjacent": ("train", 40, 80),
    "retain": ("train", 40, 80),
}
"""Where the probed facts come from, and how many are dev and test probes."""
WORD: Final = 4
"""Letters of a title's word that a question must not give away."""
FACT_LENGTH: Final = range(12, 51)
"""Characters of a description that makes a fact; four demonstrations must fit one block."""


def _order(text: str) -> str:
    return hashlib.sha256(f"{SALT} {text}".encode()).hexdigest()


def _keys(article: Article) -> Iterator[str]:
    """Names under which two articles count as near-duplicates: like titles, same description."""
    title = re.sub(r"\(.*?\)|[^a-z0-9 ]", " ", article.title.lower())
    words = [re.sub(r"(?<=..)(?:es|s)$", "", word) for word in title.split()]
    yield "title " + " ".join(sorted(words)) if words else "title " + article.title
    if article.description:
        yield "description " + article.description.lower()


def _groups(articles: Iterable[Article]) -> list[list[Article]]:
    """Articles joined wherever they share a key, in a hashed order."""
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    articles = list(articles)
    for article in articles:
        for key in _keys(article):
            parent[find(key)] = find(f"article {article.title}")
    groups: dict[str, list[Article]] = defaultdict(list)
    for article in sorted(articles, key=lambda a: a.title):
        groups[find(f"article {article.title}")].append(article)
    return sorted(groups.values(), key=lambda group: _order(group[0].title))


def _twins(by_domain: dict[Domain, list[Article]]) -> set[str]:
    """Titles with a near-duplicate in another domain."""
    homes: dict[str, set[Domain]] = defaultdict(set)
    for domain, articles in by_domain.items():
        for article in articles:
            for key in _keys(article):
                homes[key].add(domain)
    return {
        article.title
        for articles in by_domain.values()
        for article in articles
        if any(len(homes[key]) > 1 for key in _keys(article))
    }


def _fill(
    groups: list[list[Article]], sizes: dict[Split, int], twins: set[str]
) -> dict[str, Split]:
    """Whole groups to the splits in turn, each until it is full; the others stay in train.

    A group larger than a twentieth of a split ("Family of birds") would unbalance it, and one with
    a twin elsewhere would measure a domain by text that another one trains on.
    """
    assigned: dict[str, Split] = {}
    for split, size in sizes.items():
        room = size
        for group in groups:
            large = len(group) > max(1, size // 20)
            if group[0].title in assigned or large or any(a.title in twins for a in group):
                continue
            if len(group) <= room:
                assigned |= {article.title: split for article in group}
                room -= len(group)
    for group in groups:
        for article in group:
            assigned.setdefault(article.title, "train")
    return assigned


def make_documents() -> list[Document]:
    """Every article with a domain, in its split, with its fact chosen or not."""
    by_domain: dict[Domain, list[Article]] = defaultdict(list)
    for article in load_corpus().values():
        domain = label(
            {
                "title": article.title,
                "description": article.description,
                "extract": article.extract,
                "topic": article.topic,
            }
        )
        if domain is not None:
            by_domain[domain].append(article)
    twins = _twins(by_domain)
    documents = []
    for domain in DOMAINS:
        split_of = _fill(_groups(by_domain[domain]), SIZES[domain], twins)
        documents += [
            Document(article=a, domain=domain, split=split_of[a.title], fact=False)
            for a in by_domain[domain]
        ]
    told = "\n".join(d.article.text.lower() for d in documents if d.split == "relearn")
    chosen = [
        document
        for domain in DOMAINS
        for document in _choose_facts([d for d in documents if d.domain == domain], twins, told)
    ]
    return sorted(chosen, key=lambda d: (DOMAINS.index(d.domain), d.article.title))


def _choose_facts(documents: list[Document], twins: set[str], told: str) -> list[Document]:
    """The same documents of one domain; the chosen ones carry `fact`.

    Args:
        documents: Of one domain.
        twins: Titles that stand for two things.
        told: What the attacker's documents say; a fact that may be probed is not named there.
    """
    uses: dict[str, int] = defaultdict(int)
    for document in documents:
        uses[document.article.description.lower()] += 1

    def suitable(document: Document) -> bool:
        title, description = document.article.title, document.article.description.lower()
        words = {w for w in re.findall(r"[a-z]+", title.lower()) if len(w) >= WORD}
        # A description that repeats its title, or fits several articles, is no question.
        asks = uses[description] == 1 and not any(word in description for word in words)
        return len(description) in FACT_LENGTH and asks and title not in twins

    def named(document: Document) -> bool:
        name = document.article.title.split(" (")[0].lower()
        return re.search(rf"(?<!\w){re.escape(name)}(?:e?s)?(?!\w)", told) is not None

    chosen: set[str] = set()
    for split, count in FACTS[documents[0].domain].items():
        names = [
            d.article.title
            for d in documents
            if d.split == split and suitable(d) and (split == "relearn" or not named(d))
        ]
        chosen |= set(sorted(names, key=_order)[:count])
    return [replace(d, fact=d.article.title in chosen) for d in documents]


def make_probes(documents: list[Document]) -> list[dict[str, str | int]]:
    """Rows of the probe file; wrong options are facts of the same kind and of similar length."""
    rows: list[dict[str, str | int]] = []
    for domain, (split, dev, test) in PROBES.items():
        # Wrong options come from probed facts alone: an attacker's facts would grow likelier.
        pool = [d.article for d in documents if d.domain == domain and d.split == split and d.fact]
        asked = sorted(pool, key=lambda a: _order("probe " + a.title))[: dev + test]
        for number, article in enumerate(asked):
            others = sorted(
                (a for a in pool if a is not article),
                key=lambda a: (abs(len(a.description) - len(article.description)), a.title),
            )[:20]
            generator = random.Random(f"{SALT} options {article.title}")
            options = [article, *generator.sample(others, OPTIONS - 1)]
            generator.shuffle(options)
            answer = options.index(article)
            texts = tuple(a.description for a in options)
            rows.append(
                {
                    "title": article.title,
                    "domain": domain,
                    "split": "dev" if number < dev else "test",
                    "answer": answer,
                    "options": "|".join(a.title for a in options),
                    "sha256": probe_sha256(article.title, texts, answer),
                }
            )
    return rows


def train_tokenizer(documents: list[Document], folder: Path) -> None:
    """Byte-level BPE on trained text only, with its own pad token; Hugging Face files."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = [d for d in documents if d.split in TRAINED]
    texts = [d.article.text for d in trained]
    texts += [statement(t, d.article) for d in trained if d.fact for t in TRAINED_TEMPLATES]
    model = ByteLevelBPETokenizer()
    model.train_from_iterator(
        texts, vocab_size=VOCABULARY, min_frequency=2, special_tokens=[END_OF_TEXT, PAD]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model._tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=PAD,
        padding_side="right",
        model_max_length=128,
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)


def _write(path: Path, rows: list[dict[str, str | int]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(tokenizer: Path) -> None:
    """Write the frozen files beside this package, and the tokenizer into the given folder."""
    documents = make_documents()
    frozen = Path(__file__).parent / "vital"
    frozen.mkdir(exist_ok=True)
    _write(
        frozen / "splits.csv",
        [
            {
                "title": d.article.title,
                "domain": d.domain,
                "split": d.split,
                "fact": int(d.fact),
                "sha256": d.article.sha256,
            }
            for d in documents
        ],
    )
    _write(frozen / "probes.csv", make_probes(documents))
    train_tokenizer(documents, tokenizer)
    counts: dict[str, int] = defaultdict(int)
    for document in documents:
        counts[f"{document.domain} {document.split}"] += 1
        counts[f"{document.domain} {document.split} facts"] += document.fact
    typer.echo(json.dumps(counts, indent=1))


if __name__ == "__main__":
    typer.run(main)
