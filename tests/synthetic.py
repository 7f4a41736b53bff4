"""Plausible records without a model: closed formulas and small fixed noise."""

import math
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

from bench.canonical import canonical_json, fingerprint
from bench.record import SCHEMA_VERSION, Record

MEMBERS = ("p000", "p060", "p100", "placebo")
SEEDS = (0, 1, 2)
KL = "kl<=0.05"
LEVEL = "forget>=0.5"
DOSES = (0, 2048, 5120, 10240, 20480, 40960)
RATES = (1e-4, 1e-3)
SHOTS = (0, 1, 2, 4)

FORGET = {"p000": 2.90, "p060": 2.95, "p100": 3.00, "placebo": 2.92, "oracle": 3.60}
RETAIN = {"p000": 2.73, "p060": 2.76, "p100": 2.80, "placebo": 2.75, "oracle": 2.75}
KNOWN = {"p000": 0.90, "p060": 0.89, "p100": 0.88, "placebo": 0.90, "oracle": 0.05}
EASE = {"p000": 1.0, "p060": 0.55, "p100": 0.35, "placebo": 0.97}
PRICE = {"wga": 0.12, "rmu": 0.30, "wdr": 0.16, "retain_only": 0.02}
DEPTH = {"wga": 0.35, "rmu": 0.10, "wdr": 0.55, "retain_only": 0.0}
TITLES = {
    "wga": "Weighted gradient ascent",
    "rmu": "RMU",
    "wdr": "Weight distance",
    "retain_only": "Retain only (control)",
    "reference": "Reference",
}


def record(**changes: object) -> Record:
    """A record with every field filled, and some of them changed."""
    blank = Record(
        schema_version=SCHEMA_VERSION,
        run_id="0" * 16,
        task="toy",
        task_version=1,
        task_fingerprint="feedfacecafebeef",
        suite="vital",
        member="p000",
        submission="wga",
        submission_fingerprint="aaaa1111",
        title="Weighted gradient ascent",
        trial=0,
        config="{}",
        budget=LEVEL,
        limit=0.5,
        seed=0,
        stage="unlearn",
        attack=None,
        learning_rate=None,
        step=0,
        dose=0,
        split="test",
        accepted=True,
        kept=False,
        interpolated=False,
        kl=None,
        forget_loss=None,
        retain_loss=None,
        adjacent_loss=None,
        probe_accuracy=None,
        answer_probability=None,
        unseen_answer_probability=None,
        tokens=0,
        seconds=1.0,
        harness_seconds=0.5,
        peak_memory_bytes=1_000_000,
        status="ok",
        error=None,
        bench_version="0.1.0",
        git_commit="0123456789abcdef0123456789abcdef01234567",
        git_dirty=False,
        reference_sha256="ab" * 32,
        data_sha256="cd" * 32,
        torch="2.13.0",
        transformers="5.24.0",
        device="cpu",
        threads=1,
        started="2026-01-01T00:00:00+00:00",
        command="bench run --submission wga",
    )
    return replace(blank, **changes)  # type: ignore[arg-type]


def noise(*key: object, scale: float = 0.01) -> float:
    """A number in [-scale, scale] that depends on the key alone."""
    digest = int.from_bytes(sha256(repr(key).encode()).digest()[:4])
    return scale * (digest / 2**31 - 1)


def records(members: tuple[str, ...] = MEMBERS, seeds: tuple[int, ...] = SEEDS) -> list[Record]:
    """A whole board: references, runs under both budgets, attacks and their controls."""
    rows = [row for member in (*members, "oracle") for row in references(member)]
    for member in members:
        for submission in PRICE:
            for seed in seeds:
                for trial in (0, 1):
                    rows += forget_run(submission, member, trial, seed)
                    rows += kl_run(submission, member, trial, seed)
                rows += attacked(submission, member, seed)
    for member in (*members, "oracle"):
        for seed in seeds:
            rows += attacked("reference", member, seed)
    return rows


def references(member: str) -> list[Record]:
    """The member itself on both splits."""
    return [
        record(
            run_id=fingerprint(["reference", member]),
            stage="reference",
            submission="reference",
            submission_fingerprint="",
            title="Reference",
            member=member,
            budget="",
            limit=None,
            split=split,
            kl=0.0,
            command=f"bench reference --member {member}",
            **measures(member, 0.0, 0.0, KNOWN[member]),
        )
        for split in ("dev", "test")
    ]


def measures(member: str, gain: float, cost: float, known: float) -> dict[str, object]:
    """Losses and probabilities of a model at a gain and a cost."""
    gap = FORGET["oracle"] - FORGET.get(member, 2.9)
    return {
        "forget_loss": FORGET[member] + gain * gap,
        "retain_loss": RETAIN[member] + cost,
        "adjacent_loss": RETAIN[member] + 0.1 + 1.3 * cost,
        "probe_accuracy": 0.25 + 0.75 * known,
        "answer_probability": known,
        "unseen_answer_probability": known / 7,
    }


def _place(submission: str, member: str, trial: int, progress: float) -> tuple[float, float]:
    """Gain and cost after a share of a run."""
    reach = 0.2 if submission == "retain_only" else 1.1 - 0.2 * trial
    price = PRICE[submission] * EASE[member]
    return reach * progress, price * (1 + 0.5 * trial) * progress**1.5 + 0.02 * progress


def _run(submission: str, member: str, trial: int, seed: int, budget: str) -> dict[str, object]:
    config = canonical_json({"lr": 0.03 / (1 + trial)})
    identity = ["toy", member, submission, config, budget, seed]
    return {
        "run_id": fingerprint(identity),
        "member": member,
        "submission": submission,
        "submission_fingerprint": fingerprint(submission),
        "title": TITLES[submission],
        "trial": trial,
        "config": config,
        "budget": budget,
        "limit": float(budget.split("=")[1]) if budget else None,
        "seed": seed,
        "command": f"bench run {submission} --member {member} --budget '{budget}' --seed {seed}",
    }


def forget_run(submission: str, member: str, trial: int, seed: int) -> Iterator[Record]:
    """Eight yields and the checkpoint matched to the forget level."""
    base = _run(submission, member, trial, seed, LEVEL)
    unreached = submission == "retain_only"
    share = 1.0 if unreached else 0.52 / _place(submission, member, trial, 1.0)[0]
    status = "unreached" if unreached else "ok"
    shares = [(step / 8, False) for step in range(1, 9)]
    for step, (progress, kept) in enumerate([*shares, (share, True)], start=1):
        gain, cost = _place(submission, member, trial, progress)
        for split in ("dev", "test"):
            wobble = noise(base["run_id"], step, split)
            yield record(
                **base,
                **measures(member, gain + wobble, cost + wobble / 4, KNOWN[member] * (1 - gain)),
                step=min(step, 8),
                split=split,
                kept=kept,
                accepted=gain >= 0.5,
                interpolated=kept and not unreached,
                tokens=int(100_000 * progress),
                kl=cost,
                status=status,
            )


def kl_run(submission: str, member: str, trial: int, seed: int) -> Iterator[Record]:
    """The checkpoint matched to the KL budget; RMU breaks on p000 at seed 2."""
    base = _run(submission, member, trial, seed, KL)
    if (submission, member, seed) == ("rmu", "p000", 2):
        yield record(
            **base, split="dev", status="over_budget", accepted=False, error="KL 0.31 at step 1"
        )
        return
    gain, known = _kl_place(submission, member, trial)
    for split in ("dev", "test"):
        wobble = noise(base["run_id"], split)
        yield record(
            **base,
            **measures(member, gain + wobble, 0.04 + wobble / 4, known + wobble / 4),
            step=9,
            split=split,
            kept=True,
            tokens=60_000,
            kl=0.049 if submission != "retain_only" else 0.02,
            status="ok" if submission != "retain_only" else "unreached",
        )


def _kl_place(submission: str, member: str, trial: int = 0) -> tuple[float, float]:
    gain = 0.1 if submission == "retain_only" else 0.06 / (PRICE[submission] * EASE[member])
    gain = min(gain, 0.95) - 0.05 * trial
    return gain, KNOWN[member] * (1 - gain) + KNOWN["oracle"] * gain


def attacked(submission: str, member: str, seed: int) -> Iterator[Record]:
    """Relearning at two learning rates and few-shot prompts, each from dose 0 on."""
    if (submission, member, seed) == ("rmu", "p000", 2):
        return
    is_control = submission == "reference"
    base = _run(submission, member, 0, seed, "" if is_control else KL)
    gain, known = (0.0, KNOWN[member]) if is_control else _kl_place(submission, member)
    depth = 1.0 if member == "oracle" else DEPTH.get(submission, 0.0)
    for rate in RATES:
        for step, dose in enumerate(DOSES):
            back = (1 - math.exp(-dose / 8000)) * (1.0 if rate == RATES[0] else 0.8)
            now = known + (KNOWN["p000"] - known) * back * (0.9 - 0.75 * depth)
            left = gain * (1 - back * (1 - depth))
            yield from _attack(base, ("relearn", rate, dose), (left, now), step)
    for step, shots in enumerate(SHOTS):
        now = known + (KNOWN["p000"] - known) * 0.05 * shots / 4 * (1 - depth)
        yield from _attack(base, ("few_shot", None, shots), (gain, now), step)


def _attack(
    base: dict[str, object],
    cell: tuple[str, float | None, int],
    state: tuple[float, float],
    step: int,
) -> Iterator[Record]:
    attack, rate, dose = cell
    # Batches differ in length by seed; prompting is measured by probes alone.
    seed = base["seed"]
    assert isinstance(seed, int)
    for split in ("dev", "test"):
        wobble = noise(base["run_id"], cell, split)
        values = measures(str(base["member"]), state[0] + wobble, 0.05, state[1] + wobble)
        if rate is None:
            values |= dict.fromkeys(("forget_loss", "retain_loss", "adjacent_loss"))
        yield record(
            **base,
            **values,
            stage="attack",
            attack=attack,
            learning_rate=rate,
            dose=dose + seed * step if rate else dose,
            step=step,
            split=split,
        )
