"""Freeze a trained suite: `python -m reference_models.manifest SUITE` writes its manifest.

The manifest names every file with its SHA-256, the recipe, the data and the code it came from,
and what each member loses per domain; `entanglement.csv` beside it has the entanglement of every
layer. It is written last; a member is loaded only as the manifest has it.
"""

import csv
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import torch
import typer
from rich.console import Console
from transformers import GPTNeoForCausalLM

from bench.data import DOMAINS, data_sha256, load_tokenizer
from bench.diagnostics.entanglement import Cloud, clouds, compare
from bench.domains import Domain
from bench.measure import Evaluator
from bench.members import ENTANGLED, sibling
from bench.provenance import provenance
from bench.reference import SUITES, file_sha256, load_model
from reference_models.card import write_figures
from reference_models.recipe import load_recipe
from reference_models.sgtm import BioSubnetwork, bio_masks, without_bio

SHIPPED: Final = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
ENTANGLEMENT: Final = "entanglement.csv"
COLUMNS: Final = ("member", "layer", "metric", "pair", "value", "log_ratio", "low", "high")
Layers = list[dict[Domain, Cloud]]


def describe(folder: Path, bio: BioSubnetwork) -> dict[str, Any]:
    """One member's table: files, training, test losses with and without θ_bio, probes."""
    model = load_gpt_neo(folder)
    evaluator = Evaluator(model, load_tokenizer(folder))
    losses = evaluator.losses(model, "test", *DOMAINS)
    with without_bio(model, bio):
        off = evaluator.losses(model, "test", *DOMAINS)
    probes = {d: evaluator.probes(model, "test", domain=d)[0] for d in DOMAINS}
    return {
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


def entanglement(member: str, own: Layers, base: Layers) -> list[dict[str, Any]]:
    """Rows of the CSV: every layer, metric and pair, with the log-ratio to p000 and its interval.

    Args:
        member: Its name.
        own: Its clouds by layer.
        base: Those of the p000 of its seed.
    """
    return [
        {
            "member": member,
            "layer": layer,
            "metric": row.metric,
            "pair": "-".join(row.pair),
            "value": f"{row.value:.6g}",
            "log_ratio": f"{row.log_ratio:.4f}",
            "low": f"{row.interval[0]:.4f}",
            "high": f"{row.interval[1]:.4f}",
        }
        for layer, (here, there) in enumerate(zip(own, base, strict=True))
        for row in compare(here, there)
    ]


def load_gpt_neo(folder: Path) -> GPTNeoForCausalLM:
    """A suite's checkpoint."""
    model = load_model(folder)
    assert isinstance(model, GPTNeoForCausalLM)
    return model


def to_toml(table: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """TOML text of nested tables of numbers and strings; NaN entries are left out."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict) or (isinstance(value, float) and math.isnan(value)):
            continue
        text = f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
        lines.append(f"{_bare(key)} = {text}")
    body = "\n".join(lines)
    head = f"[{'.'.join(map(_bare, path))}]\n" if path and lines else ""
    parts = [head + body] if lines else []
    parts += [to_toml(v, (*path, k)) for k, v in table.items() if isinstance(v, dict)]
    return "\n\n".join(part for part in parts if part)


def _bare(key: str) -> str:
    return json.dumps(key) if "." in key else key


def main(suite: Annotated[str, typer.Argument()] = "vital", version: int = 1) -> None:
    """Measure every trained member of a suite; write its manifest and the figures of its card."""
    torch.set_num_threads(1)
    console = Console()
    folder = SUITES / suite
    recipe = load_recipe(suite)
    trained = [name for name in recipe.members if (folder / name).is_dir()]
    for name in recipe.members.keys() - set(trained):
        console.print(f"{name} is not trained; left out.", highlight=False)
    table: dict[str, Any] = {
        "suite": suite,
        "version": version,
        "recipe": f"recipes/{suite}.toml",
        "recipe_sha256": file_sha256(SUITES / "recipes" / f"{suite}.toml"),
        "data_sha256": data_sha256(),
        "code_commit": provenance("", 1, "").git_commit,
        "bio": asdict(recipe.bio),
        "members": {name: describe(folder / name, recipe.bio) for name in trained},
    }
    layers = {n: clouds(load_gpt_neo(folder / n), load_tokenizer(folder / n)) for n in trained}
    rows = [
        row
        for name in trained
        for row in entanglement(name, layers[name], layers[sibling(ENTANGLED, name)])
    ]
    with (folder / ENTANGLEMENT).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (folder / "manifest.toml").write_text(to_toml(table) + "\n")
    console.print(write_figures(folder), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
