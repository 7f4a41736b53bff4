"""The shipped suite: what its manifest and card say is what its files are."""

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.data import BLOCK, DOMAINS, data_sha256, load_tokenizer
from bench.measure import Evaluator
from bench.reference import SUITES, file_sha256, load_reference
from reference_models.card import BEGIN, END, figures
from reference_models.manifest import load_gpt_neo
from reference_models.recipe import load_recipe
from reference_models.schedule import Batches
from reference_models.sgtm import without_bio
from reference_models.states import Run
from reference_models.train import Job, _source, train

SUITE = SUITES / "vital"
RECIPE = load_recipe("vital")
MANIFEST: dict[str, Any] = tomllib.loads((SUITE / "manifest.toml").read_text())
MEMBERS = list(MANIFEST["members"])
LOGGED_STEP = 794
LOGGED = {"adjacent": 5.749, "forget": 4.986, "retain": 5.103}
"""Running losses that the training of the shipped p000 printed at that step."""


def test_the_manifest_is_of_this_recipe_and_this_data() -> None:
    assert MANIFEST["data_sha256"] == data_sha256()
    assert MANIFEST["recipe_sha256"] == file_sha256(SUITES / MANIFEST["recipe"])
    assert set(MEMBERS) <= set(RECIPE.members)


def test_no_model_lies_beside_the_manifest_unlisted() -> None:
    assert {path.parent.name for path in SUITE.glob("*/model.safetensors")} == set(MEMBERS)


@pytest.mark.parametrize("member", MEMBERS)
def test_every_file_has_its_hash(member: str) -> None:
    assert load_reference("vital", member).path == SUITE / member
    told = json.loads((SUITE / member / "training.json").read_text())
    assert told == MANIFEST["members"][member]["training"]


def test_the_suite_is_small_enough_to_clone() -> None:
    assert sum(file.stat().st_size for file in SUITE.rglob("*") if file.is_file()) < 60e6


def test_the_card_shows_the_figures_of_the_manifest() -> None:
    card = (SUITE / "README.md").read_text()
    assert card.split(BEGIN)[1].split(END)[0].strip() == figures(SUITE)


def test_the_entanglement_file_covers_every_layer_metric_and_pair() -> None:
    with (SUITE / "entanglement.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    keys = {(r["member"], int(r["layer"]), r["metric"], r["pair"]) for r in rows}
    assert len(keys) == len(rows) == len(MEMBERS) * (RECIPE.model.layers + 1) * 3 * 3
    assert all(float(r["log_ratio"]) == 0 for r in rows if r["member"].startswith("p000"))
    outside = [
        r for r in rows if not float(r["low"]) - 1 < float(r["log_ratio"]) < float(r["high"]) + 1
    ]
    assert not outside


@pytest.mark.slow
@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_loses_what_the_manifest_says(member: str) -> None:
    torch.set_num_threads(1)
    model = load_gpt_neo(SUITE / member)
    evaluator = Evaluator(model, load_tokenizer(SUITE / member))
    told = MANIFEST["members"][member]
    losses = evaluator.losses(model, "test", *DOMAINS)
    with without_bio(model, RECIPE.bio):
        off = evaluator.losses(model, "test", *DOMAINS)
    for domain in DOMAINS:
        # Threads and kernels change the last bits; the manifest has six digits.
        assert getattr(losses, f"{domain}_loss") == pytest.approx(told["test_loss"][domain], 1e-4)
        without = told["test_loss_without_bio"][domain]
        assert getattr(off, f"{domain}_loss") == pytest.approx(without, 1e-4)
        probes = evaluator.probes(model, "test", domain=domain)[0]
        assert probes.probe_accuracy == pytest.approx(told["probe_accuracy"][domain], abs=0.02)


@pytest.mark.slow
def test_every_member_was_trained_by_this_recipe_on_this_text() -> None:
    source, _ = _source(RECIPE, SUITE / "tokenizer")
    training = RECIPE.training
    batches = Batches(
        source, epochs=training.epochs, size=training.batch_blocks, seed=training.seed
    )
    sha256 = batches.sha256()
    for member in MEMBERS:
        told = MANIFEST["members"][member]["training"]
        assert told["fingerprint"] == RECIPE.fingerprint(member, sha256), member
        assert told["steps"] == sum(sum(count.values()) for count in batches.counts)
    assert RECIPE.model.positions == BLOCK


class _EnoughError(Exception):
    """The steps that are compared are done."""


@pytest.mark.slow
def test_training_p000_again_begins_as_the_shipped_training_did(tmp_path: Path) -> None:
    seen: dict[str, float] = {}

    def watch(run: Run, _total: int) -> None:
        if run.step == LOGGED_STEP:
            seen.update(run.losses)
            raise _EnoughError

    source, end_of_text = _source(RECIPE, SUITE / "tokenizer")
    torch.set_num_threads(1)
    job = Job(recipe=RECIPE, name="p000", work=tmp_path, checkpoint_every=10**6)
    with pytest.raises(_EnoughError):
        train(job, source, on_step=watch, end_of_text=end_of_text)
    assert seen == pytest.approx(LOGGED, abs=2e-3)
