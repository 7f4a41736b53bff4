"""Load and verify frozen reference models.

A suite is a folder `reference_models/<suite>/` with `manifest.toml` and one folder per member, a
plain Hugging Face checkpoint each. Nothing is loaded unless every file has its frozen SHA-256.
"""

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.errors import BenchError, did_you_mean

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

SUITES: Final = Path(__file__).resolve().parent.parent / "reference_models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One verified member of a suite."""

    suite: str
    member: str
    path: Path
    sha256: str
    """SHA-256 of the weights file."""


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_manifest(suite: str, root: Path = SUITES) -> dict[str, dict[str, dict[str, str]]]:
    """The parsed manifest of a suite; its `members` table maps member to files and figures.

    Raises:
        BenchError: The suite is unknown or its manifest unreadable.
    """
    path = root / suite / "manifest.toml"
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except FileNotFoundError:
        known = [p.parent.name for p in root.glob("*/manifest.toml")]
        msg = f"unknown suite {suite!r}: no {path}. {did_you_mean(suite, known)}"
        raise BenchError(msg) from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        msg = f"manifest: {path} cannot be read ({error})."
        raise BenchError(msg) from error


@cache
def load_reference(suite: str, member: str, root: Path = SUITES) -> Reference:
    """A member, after every one of its files has been checked against the manifest.

    Raises:
        BenchError: Unknown member, or a file is missing or altered.
    """
    members = read_manifest(suite, root)["members"]
    if member not in members:
        msg = f"unknown member {member!r} of suite {suite}. {did_you_mean(member, members)}"
        raise BenchError(msg)
    folder = root / suite / member
    files: dict[str, str] = members[member]["files"]  # type: ignore[assignment]  # TOML table
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            msg = f"{suite}/{member}: {file} is missing; restore it with `git checkout -- {file}`."
            raise BenchError(msg)
        found = file_sha256(file)
        if found != expected:
            msg = (
                f"{suite}/{member}: {file} was altered (SHA-256 {found[:12]}…, expected "
                f"{expected[:12]}…); restore it with `git checkout -- {file}`."
            )
            raise BenchError(msg)
    return Reference(suite=suite, member=member, path=folder, sha256=files["model.safetensors"])


def load_model(folder: Path) -> "PreTrainedModel":
    """A fresh copy of a checkpoint's weights in float32, in evaluation mode."""
    import torch
    from transformers import AutoModelForCausalLM, GPTNeoForCausalLM
    from transformers.utils import logging

    from bench.neo import fast_attention

    logging.disable_progress_bar()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True
    )
    if isinstance(model, GPTNeoForCausalLM):
        fast_attention(model)
    model.eval()
    return model


def load_tokenizer(reference: Reference) -> "Tokenizer":
    """The suite's tokenizer, from the member's own folder."""
    from bench import data

    return data.load_tokenizer(reference.path)
