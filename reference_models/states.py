"""What a training run leaves on disk: states to continue from, and the finished member."""

import copy
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from transformers import GPTNeoForCausalLM

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@dataclass(slots=True, kw_only=True)
class Run:
    """A model on its way."""

    model: GPTNeoForCausalLM
    optimizer: torch.optim.Optimizer
    fingerprint: str
    """Hash of recipe, member and data."""
    step: int = 0
    """Steps of the schedule that are done, skipped ones included."""
    tokens: int = 0
    """Real tokens trained on, extra forget batches included."""
    seconds: float = 0.0
    """Time spent, a shared prefix included."""
    losses: dict[str, float] = field(default_factory=dict)
    """Running mean of the loss by domain, off steps left out."""


def save_state(run: Run, path: Path, fingerprint: str) -> None:
    """Write the whole state of a run; a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "fingerprint": fingerprint,
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "step": run.step,
        "tokens": run.tokens,
        "seconds": run.seconds,
        "losses": dict(run.losses),
    }
    # Members train side by side and may save the same fork.
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with temporary.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def load_state(run: Run, path: Path, fingerprint: str) -> bool:
    """Continue from a saved state, if there is one of this fingerprint.

    Returns:
        Whether there was one; otherwise the run is as it was.
    """
    if not path.is_file():
        return False
    state: dict[str, Any] = torch.load(path, weights_only=True)
    if state["fingerprint"] != fingerprint:
        return False
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.step, run.tokens, run.seconds = state["step"], state["tokens"], state["seconds"]
    run.losses = state["losses"]
    return True


def write_member(run: Run, folder: Path, tokenizer: Path) -> None:
    """Write a finished member as a Hugging Face checkpoint; the folder appears whole or not at all.

    Weights are stored as float16, which changes a loss by some 1e-4, and the config says float32,
    so `AutoModelForCausalLM.from_pretrained(folder)` computes in float32.

    Args:
        run: The finished run.
        folder: Where to write; replaced if it exists.
        tokenizer: Folder whose tokenizer files are copied.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir(parents=True)
    config = copy.deepcopy(run.model.config)
    config.architectures, config.dtype = ["GPTNeoForCausalLM"], torch.float32
    config.save_pretrained(temporary)
    weights = {
        name: tensor.detach().to(torch.float16).contiguous()
        for name, tensor in run.model.state_dict().items()
        if name != "lm_head.weight"  # tied to the token embeddings
    }
    save_file(weights, temporary / "model.safetensors", metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, temporary / name)
    record = {
        "fingerprint": run.fingerprint,
        "steps": run.step,
        "tokens": run.tokens,
        "seconds": round(run.seconds, 1),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "losses": {domain: round(loss, 4) for domain, loss in sorted(run.losses.items())},
    }
    (temporary / "training.json").write_text(json.dumps(record, indent=2) + "\n")
    if folder.exists():
        shutil.rmtree(folder)
    temporary.replace(folder)
