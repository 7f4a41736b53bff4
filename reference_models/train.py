"""Train one member of a suite: `python -m reference_models.train RECIPE MEMBER`.

Members share a prefix: a member whose last p % are SGTM is, up to there, the member `p000`. When
`p000` trains it leaves its state at each of those steps; the others start from it, or train the
prefix themselves if it is not there, which gives the same bytes at the same number of threads.
A run that is killed continues from its last checkpoint when the same command is given again.
"""

import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, get_args

import torch
import typer
from rich.console import Console
from transformers import GPTNeoForCausalLM

from bench.data import END_OF_TEXT, Blocks, load_tokenizer, training_blocks
from bench.domains import Domain
from bench.errors import BenchError, did_you_mean
from bench.losses import next_token_loss
from bench.neo import fast_attention
from reference_models.model import initialise, logits_of, new_model
from reference_models.progress import watch
from reference_models.recipe import Member, Recipe, Training, load_recipe
from reference_models.schedule import Batches, Source, Step, first_sgtm_step, schedule
from reference_models.sgtm import Frozen, Kind, frozen_by, masked_step, without_bio
from reference_models.states import Run, load_state, save_state, write_member

MEMORY: Final = 0.98
"""Weight of the past in the running losses, per step."""
_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
OnStep = Callable[[Run, int], None]
"""Called after every step with the run and the total number of steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One member to train."""

    recipe: Recipe
    name: str
    work: Path
    """Folder of checkpoints and fork states; members of a suite share it."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""

    @property
    def member(self) -> Member:
        """The member's table of the recipe."""
        return self.recipe.members[self.name]


def learning_rate(step: int, total: int, training: Training) -> float:
    """Linear warm-up from 0 to the peak, then a cosine to `final_share` of it at `total` steps."""
    warmup = min(1.0, (step + 1) / max(1, training.warmup_steps))
    span = max(1, total - training.warmup_steps)
    progress = min(1.0, max(0, step - training.warmup_steps) / span)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    share = training.final_share + (1 - training.final_share) * cosine
    return training.learning_rate * warmup * share


def new_optimizer(model: GPTNeoForCausalLM, training: Training) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only; the learning rate is set at each step."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": training.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, fused=True)


def train(
    job: Job, source: Source, *, on_step: OnStep | None = None, end_of_text: int | None = None
) -> Run:
    """Train a member to the end, from its checkpoint or a shared prefix where there is one.

    Args:
        job: What to train.
        source: Gives the training blocks of a domain and epoch.
        on_step: Called after every step.
        end_of_text: Token id that the model's config names as beginning and end of text.

    Returns:
        The finished run; its checkpoint stays in the work folder.
    """
    recipe, training = job.recipe, job.recipe.training
    seed = recipe.seed_of(job.name)
    batches = Batches(source, epochs=training.epochs, size=training.batch_blocks, seed=seed)
    steps = schedule(
        batches.counts,
        seed=seed,
        p=job.member.p,
        off_share=recipe.sgtm.off_share,
        plain_share=recipe.sgtm.plain_share,
        skip_forget=job.member.role == "oracle",
    )
    model = initialise(new_model(recipe.model, end_of_text=end_of_text), seed)
    data_sha256 = batches.sha256()
    fingerprint = recipe.fingerprint(job.name, data_sha256)
    run = Run(
        model=fast_attention(model).train(),
        optimizer=new_optimizer(model, training),
        fingerprint=fingerprint,
    )
    forks = _Forks(job, len(steps), recipe.prefix_fingerprint(job.name, data_sha256))
    checkpoint = job.work / f"{job.name}-{fingerprint[:12]}.pt"
    if not load_state(run, checkpoint, fingerprint):
        forks.load(run)
    frozen = {
        kind: frozen_by(kind, model, recipe.bio, recipe.sgtm.shared) for kind in get_args(Kind)
    }
    swap_from = first_sgtm_step(len(steps), job.member.p)
    while run.step < len(steps):
        forks.save(run)
        began = time.perf_counter()
        step, swapped = steps[run.step], job.member.role == "placebo" and run.step >= swap_from
        for group in run.optimizer.param_groups:
            group["lr"] = learning_rate(run.step, len(steps), training)
        if step.kind != "skip":
            for blocks in _blocks_of(step, batches, recipe.sgtm.forget_batches, swapped):
                _update(run, recipe, step, blocks, frozen[step.kind])
        run.step += 1
        run.seconds += time.perf_counter() - began
        if run.step % job.checkpoint_every == 0 or run.step == len(steps):
            save_state(run, checkpoint, fingerprint)
        if on_step is not None:
            on_step(run, len(steps))
    return run


def _blocks_of(step: Step, batches: Batches, count: int, swapped: bool) -> Iterator[Blocks]:
    """The batches of a step: one, or `count` on a forget step of the SGTM phase."""
    yield batches.batch(step, placebo=swapped)
    if step.kind == "forget":
        for number in range(1, count):
            yield batches.extra(step, number, placebo=swapped)


def _update(run: Run, recipe: Recipe, step: Step, blocks: Blocks, frozen: Frozen) -> None:
    """One optimizer step on one batch."""
    off = step.kind == "off"
    with without_bio(run.model, recipe.bio) if off else nullcontext():
        loss = next_token_loss(logits_of(run.model, blocks.ids), blocks.ids, blocks.lengths)
    loss.backward()
    masked_step(run.optimizer, frozen, recipe.training.clip)
    run.tokens += int(blocks.lengths.sum())
    if not off:
        value = loss.item()
        past = run.losses.get(step.domain, value)
        run.losses[step.domain] = MEMORY * past + (1 - MEMORY) * value


class _Forks:
    """States of the member without SGTM at the steps where other members part from it."""

    def __init__(self, job: Job, total: int, fingerprint: str) -> None:
        self._job, self._total, self._fingerprint = job, total, fingerprint

    def save(self, run: Run) -> None:
        """Leave the state where another member will look for it, if one parts at this step."""
        trunk = self._job.member
        is_trunk = trunk == Member(seed=trunk.seed)
        others = [m for m in self._job.recipe.members.values() if m.seed == trunk.seed]
        steps = {self._step(other) for other in others if self._forks(other)}
        if is_trunk and run.step in steps and not self._path(run.step).exists():
            save_state(run, self._path(run.step), self._fingerprint)

    def load(self, run: Run) -> bool:
        """Start from the shared prefix; false where the member has none or it is not there."""
        member = self._job.member
        path = self._path(self._step(member))
        return self._forks(member) and load_state(run, path, self._fingerprint)

    def _step(self, member: Member) -> int:
        return first_sgtm_step(self._total, member.p)

    @staticmethod
    def _forks(member: Member) -> bool:
        return 0 < member.p < 100 and member.role != "oracle"  # noqa: PLR2004

    def _path(self, step: int) -> Path:
        return self._job.work / f"fork-{self._fingerprint[:12]}-{step}.pt"


def _source(recipe: Recipe, tokenizer: Path) -> tuple[Source, int | None]:
    """The recipe's corpus as a source of blocks, and its end-of-text token.

    Raises:
        BenchError: The corpus is not bundled, or the tokenizer does not fit the model.
    """
    if recipe.data != "vital":
        msg = (
            f"recipe {recipe.suite}: the corpus {recipe.data!r} is not bundled. "
            "Call reference_models.train.train with a source of your own."
        )
        raise BenchError(msg)
    loaded = load_tokenizer(tokenizer)
    if loaded.get_vocab_size() != recipe.model.vocabulary:
        msg = (
            f"tokenizer {tokenizer}: {loaded.get_vocab_size()} tokens, "
            f"but the recipe says {recipe.model.vocabulary}."
        )
        raise BenchError(msg)

    def source(role: Domain, epoch: int, placebo: bool) -> Blocks:
        return training_blocks(role, epoch, loaded, placebo=placebo)

    return source, loaded.token_to_id(END_OF_TEXT)


def _keep_memory() -> None:
    """Let glibc reuse the large temporaries of each step: a tenth of the time is page faults.

    Changes no number. Other C libraries have no `mallopt` and go without.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def main(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or path to a TOML file.")],
    member: Annotated[str, typer.Argument(help="Member to train, such as p060.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the suite.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Default: OUT/tokenizer.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Changes the last bits of weights.")] = 1,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps.")] = 500,
) -> None:
    """Train one member and write it to OUT/MEMBER; continue where a killed run stopped."""
    loaded = load_recipe(recipe)
    if member not in loaded.members:
        msg = f"recipe {loaded.suite}: no member {member!r}. {did_you_mean(member, loaded.members)}"
        raise BenchError(msg)
    torch.set_num_threads(threads)
    _keep_memory()
    out = out or Path(__file__).parent / loaded.suite
    tokenizer = tokenizer or out / "tokenizer"
    source, end_of_text = _source(loaded, tokenizer)
    work = out / ".work"
    work.mkdir(parents=True, exist_ok=True)
    (work / ".gitignore").write_text("*\n")
    job = Job(recipe=loaded, name=member, work=work, checkpoint_every=checkpoint_every)
    with watch(member) as on_step:
        run = train(job, source, on_step=on_step, end_of_text=end_of_text)
    write_member(run, out / member, tokenizer)


if __name__ == "__main__":
    try:
        typer.run(main)
    except BenchError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
