"""Freeze a trained suite: `python -m reference_models.manifest SUITE` writes its manifest.

The manifest names every file with its SHA-256, the recipe, the data and the code it came from,
what each member loses per domain, and how entangled its domains are. It is written last; a member
is loaded only as the manifest has it.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from transformers import GPTNeoForCausalLM

from bench.data import DOMAINS, data_sha256, load_tokenizer
from bench.diagnostics.entanglement import Cloud, Entanglement, clouds, compare
from bench.domains import Domain
from bench.measure import Evaluator
from bench.provenance import provenance
from bench.reference import SUITES, file_sha256, load_model
from reference_models.recipe import load_recipe
from reference_models.sgtm import BioSubnetwork, bio_masks, without_bio

SHIPPED = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")


def describe(folder: Path, base: dict[Domain, Cloud], bio: BioSubnetwork) -> dict[str, Any]:
    """One member's table: files, training, test losses, probes, θ_bio, entanglement."""
    model = load_gpt_neo(folder)
    tokenizer = load_tokenizer(folder)
    evaluator = Evaluator(model, tokenizer)
    losses = evaluator.losses(model, "test", *DOMAINS)
    with without_bio(model, bio):
        off = evaluator.losses(model, "test", *DOMAINS)
    probes = {d: evaluator.probes(model, "test", domain=d)[0] for d in DOMAINS}
    table: dict[str, Any] = {
        "files": {name: file_sha256(folder / name) for name in SHIPPED},
        "training": json.loads((folder / "training.json").read_text()),
        "test_loss": {d: getattr(losses, f"{d}_loss") for d in DOMAINS},
        "test_loss_without_bio": {d: getattr(off, f"{d}_loss") for d in DOMAINS},
        "probe_accuracy": {d: m.probe_accuracy for d, m in probes.items()},
        "answer_probability": {d: m.answer_probability for d, m in probes.items()},
        "unseen_answer_probability": {d: m.unseen_answer_probability for d, m in probes.items()},
        "bio_parameters": int(sum(mask.sum() for mask in bio_masks(model, bio).values())),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    rows = compare(clouds(model, tokenizer), base)
    table["entanglement"] = {_key(row): row.value for row in rows}
    table["entanglement_log_ratio"] = {_key(row): row.log_ratio for row in rows}
    table["entanglement_low"] = {_key(row): row.interval[0] for row in rows}
    table["entanglement_high"] = {_key(row): row.interval[1] for row in rows}
    return table


def load_gpt_neo(folder: Path) -> GPTNeoForCausalLM:
    """A suite's checkpoint."""
    model = load_model(folder)
    assert isinstance(model, GPTNeoForCausalLM)
    return model


def _key(row: Entanglement) -> str:
    return f"{row.metric}_{row.pair[0]}_{row.pair[1]}"


def to_toml(table: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """TOML text of nested tables of numbers and strings; NaN entries are left out."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict) or (isinstance(value, float) and math.isnan(value)):
            continue
        text = f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
        lines.append(f"{json.dumps(key) if '.' in key else key} = {text}")
    body = "\n".join(lines)
    head = f"[{'.'.join(path)}]\n" if path and lines else ""
    parts = [head + body] if lines else []
    parts += [to_toml(v, (*path, k)) for k, v in table.items() if isinstance(v, dict)]
    return "\n\n".join(part for part in parts if part)


def main(suite: Annotated[str, typer.Argument()] = "vital", version: int = 0) -> None:
    """Measure every member of a trained suite and write its manifest."""
    torch.set_num_threads(1)
    folder = SUITES / suite
    recipe = load_recipe(suite)
    commit = provenance("", 1, "").git_commit
    table: dict[str, Any] = {
        "suite": suite,
        "version": version,
        "recipe": f"recipes/{suite}.toml",
        "recipe_sha256": file_sha256(SUITES / "recipes" / f"{suite}.toml"),
        "data_sha256": data_sha256(),
        "code_commit": commit,
        "bio": asdict(recipe.bio),
        "members": {},
    }
    first = folder / next(iter(recipe.members))
    base = clouds(load_gpt_neo(first), load_tokenizer(first))
    for name in recipe.members:
        table["members"][name] = describe(folder / name, base, recipe.bio)
    (folder / "manifest.toml").write_text(to_toml(table) + "\n")
    show(table)


def show(table: dict[str, Any]) -> None:
    """Print the suite's losses and entanglement."""
    console = Console()
    losses = Table(title="Test loss, nats per token; probes of the forget domain")
    for title in ("member", *DOMAINS, "forget, θ_bio off", "accuracy", "probability", "unseen"):
        losses.add_column(title)
    ratios = Table(title="Entanglement, log-ratio to p000 [95 %]")
    ratios.add_column("member")
    for key in next(iter(table["members"].values()))["entanglement"]:
        ratios.add_column(key)
    for name, member in table["members"].items():
        numbers = [member["test_loss"][d] for d in DOMAINS]
        numbers.append(member["test_loss_without_bio"]["forget"])
        numbers += [
            member[key]["forget"]
            for key in ("probe_accuracy", "answer_probability", "unseen_answer_probability")
        ]
        losses.add_row(name, *[f"{n:.3f}" for n in numbers])
        cells = []
        for key, ratio in member["entanglement_log_ratio"].items():
            low, high = member["entanglement_low"][key], member["entanglement_high"][key]
            cells.append(f"{ratio:+.2f} [{low:+.2f}, {high:+.2f}]")
        ratios.add_row(name, *cells)
    console.print(losses, ratios)


if __name__ == "__main__":
    typer.run(main)
