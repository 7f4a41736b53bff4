"""The best trial: chosen on dev, by one rule."""

import pytest

from bench.record import Record
from bench.selection import Group, best_trials
from tests.synthetic import KL, LEVEL, record


def kept(trial: int, seed: int = 0, **changes: object) -> Record:
    return record(trial=trial, seed=seed, split="dev", kept=True, **changes)


def best(rows: list[Record], budget: str) -> int:
    return best_trials(rows)[Group("wga", "p000", budget)]


def test_kl_budget_takes_the_highest_mean_forget_loss() -> None:
    rows = [
        kept(trial, seed, budget=KL, forget_loss=loss)
        for trial, losses in enumerate([(3.0, 3.2), (3.5, 2.8), (3.1, 3.1)])
        for seed, loss in enumerate(losses)
    ]
    assert best(rows, KL) == 1


def test_forget_budget_takes_the_lowest_retain_loss() -> None:
    rows = [kept(t, budget=LEVEL, retain_loss=loss) for t, loss in enumerate([2.9, 2.7, 2.8])]
    assert best(rows, LEVEL) == 1


def test_test_rows_and_unkept_rows_have_no_say() -> None:
    rows = [kept(t, budget=KL, forget_loss=3.0 + t / 10) for t in range(2)]
    tempting = {"trial": 0, "budget": KL, "forget_loss": 9.0}
    rows += [record(split="test", kept=True, **tempting), record(split="dev", **tempting)]
    assert best(rows, KL) == 1


@pytest.mark.parametrize("status", ["failed", "diverged", "over_budget", "timed_out"])
def test_failure_at_one_seed_is_worst(status: str) -> None:
    rows = [kept(0, s, budget=KL, forget_loss=9.0) for s in (0, 1)]
    rows += [kept(1, s, budget=KL, forget_loss=3.0) for s in (0, 1, 2)]
    rows.append(record(trial=0, seed=2, split="dev", budget=KL, status=status))
    assert best(rows, KL) == 1


def test_a_seed_that_was_never_run_is_no_advantage() -> None:
    rows = [kept(0, 0, budget=KL, forget_loss=9.0)]
    rows += [kept(1, s, budget=KL, forget_loss=3.0) for s in (0, 1)]
    assert best(rows, KL) == 1


def test_unreached_level_ranks_below_reached_and_above_failed() -> None:
    cheap = kept(0, budget=LEVEL, retain_loss=1.0, status="unreached")
    dear = kept(1, budget=LEVEL, retain_loss=5.0)
    failed = record(trial=2, split="dev", budget=LEVEL, status="failed")
    assert best([cheap, dear, failed], LEVEL) == 1
    assert best([failed, cheap], LEVEL) == 0


def test_unreached_kl_budget_is_no_fault() -> None:
    rows = [
        kept(0, budget=KL, forget_loss=3.0),
        kept(1, budget=KL, forget_loss=3.5, status="unreached"),
    ]
    assert best(rows, KL) == 1


def test_ties_go_to_the_lowest_trial() -> None:
    rows = [kept(t, budget=KL, forget_loss=3.0) for t in (2, 0, 1)]
    assert best(rows, KL) == 0


def test_order_of_rows_does_not_matter() -> None:
    rows = [kept(t, s, budget=KL, forget_loss=3.0 + 0.1 * t) for t in range(3) for s in range(3)]
    assert best_trials(rows) == best_trials(rows[::-1])


def test_groups_are_apart() -> None:
    rows = [kept(t, budget=KL, member=m, forget_loss=3.0) for t, m in ((0, "p000"), (1, "p100"))]
    assert best_trials(rows) == {Group("wga", "p000", KL): 0, Group("wga", "p100", KL): 1}
