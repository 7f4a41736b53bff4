"""Driving a submission: whatever it does, the harness measures its own model and ends the run."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPTNeoForCausalLM

import bench.unlearn
from bench.api import Data, Reading, mean_loss
from bench.budget import Budget, ForgetBudget, KLBudget
from bench.streams import Meter
from bench.unlearn import Baseline, Drive, Outcome
from bench.weights import State
from tests.bench.tiny import TASK, TinyEvaluator, tiny_model, tiny_streams

Steps = Generator[Any, Reading, None]
FOREVER = 10_000
FREE = KLBudget(limit=1e9)


@pytest.fixture(autouse=True)
def _streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.unlearn, "open_streams", tiny_streams)


@pytest.fixture(scope="module")
def baseline(evaluator: TinyEvaluator) -> Baseline:
    own = evaluator.losses(tiny_model(), "dev", "forget", "retain")
    assert own.forget_loss is not None
    assert own.retain_loss is not None
    return Baseline(
        forget=own.forget_loss, retain=own.retain_loss, oracle_forget=own.forget_loss + 0.5
    )


@pytest.fixture
def drive(evaluator: TinyEvaluator, baseline: Baseline) -> Callable[..., Outcome]:
    def run(
        unlearn: Callable[..., Any],
        budget: Budget = FREE,
        *,
        seed: int = 0,
        stop_cost: float = 1e9,
        **limits: float,
    ) -> Outcome:
        task = replace(
            TASK,
            stop_cost=stop_cost,
            limits=replace(TASK.limits, **limits),  # type: ignore[arg-type]
        )
        one = Drive(
            task=task,
            budget=budget,
            evaluator=evaluator,
            baseline=baseline,
            measured=tiny_model(),
        )
        return one.run(unlearn, tiny_model(), None, Path(), seed)

    return run


def walk(step: float, count: int = FOREVER) -> Callable[..., Steps]:
    """Adds a fixed random direction, scaled, before each yield."""

    def unlearn(model: GPTNeoForCausalLM, _data: Data, _config: None, _generator: object) -> Steps:
        generator = torch.Generator().manual_seed(4)
        direction = [torch.randn(p.shape, generator=generator) for p in model.parameters()]
        for _ in range(count):
            with torch.no_grad():
                for parameter, towards in zip(model.parameters(), direction, strict=True):
                    parameter.add_(towards, alpha=step)
            yield model

    return unlearn


def ascend(model: GPTNeoForCausalLM, data: Data, _config: None, generator: object) -> Steps:
    """Gradient ascent on forget text, with a little noise of its own."""
    assert isinstance(generator, torch.Generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for forget, _ in zip(data.forget, data.retain, strict=False):
        loss = -mean_loss(model, forget) + 1e-3 * torch.rand((), generator=generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield model


def member_state() -> State:
    return tiny_model().state_dict()


# Faults


def test_a_submission_that_raises_fails_with_its_error_in_one_line(
    drive: Callable[..., Outcome],
) -> None:
    def unlearn(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        yield model
        msg = "bad\nday"
        raise ValueError(msg)

    outcome = drive(unlearn)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.startswith("ValueError: bad day")
    assert len(outcome.checkpoints) == 1
    assert outcome.kept is None


def test_a_submission_that_exits_fails_and_the_harness_lives(
    drive: Callable[..., Outcome],
) -> None:
    def unlearn(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        yield model
        raise SystemExit(3)

    outcome = drive(unlearn)
    assert outcome.status == "failed"
    assert "SystemExit: 3" in str(outcome.error)


def test_a_submission_that_returns_a_model_is_told_to_yield(
    drive: Callable[..., Outcome],
) -> None:
    outcome = drive(lambda model, _data, _config, _generator: model)
    assert outcome.status == "failed"
    assert "yield model" in str(outcome.error)


class Wrapper(torch.nn.Module):
    """Names as peft gives them."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.base_model = torch.nn.Module()
        self.base_model.model = model


@pytest.mark.parametrize("wrap", [torch.nn.Sequential, Wrapper])
def test_a_wrapped_model_is_refused(
    wrap: Callable[[torch.nn.Module], torch.nn.Module], drive: Callable[..., Outcome]
) -> None:
    def unlearn(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        yield wrap(model)

    outcome = drive(unlearn)
    assert outcome.status == "failed"
    assert "merge adapters and remove wrappers" in str(outcome.error)


@pytest.mark.parametrize("yielded", [None, {}, "model"])
def test_anything_but_a_model_is_refused(yielded: object, drive: Callable[..., Outcome]) -> None:
    def unlearn(_model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        yield yielded

    outcome = drive(unlearn)
    assert outcome.status == "failed"
    assert "not the model" in str(outcome.error)


def test_an_untied_head_is_refused(drive: Callable[..., Outcome]) -> None:
    def unlearn(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() + 1)
        yield model

    outcome = drive(unlearn)
    assert outcome.status == "failed"
    assert "tied" in str(outcome.error)


def test_another_type_of_numbers_is_refused(drive: Callable[..., Outcome]) -> None:
    def unlearn(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        yield model.to(torch.float64)

    outcome = drive(unlearn)
    assert outcome.status == "failed"
    assert "float64" in str(outcome.error)


def spoil(model: torch.nn.Module) -> None:
    with torch.no_grad():
        next(model.parameters())[:] = torch.nan


@pytest.mark.parametrize("budget", [FREE, ForgetBudget(limit=0.5)])
def test_nan_from_the_start_is_diverged(budget: Budget, drive: Callable[..., Outcome]) -> None:
    def unlearn(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        spoil(model)
        while True:
            yield model

    outcome = drive(unlearn, budget)
    assert (outcome.status, outcome.kept) == ("diverged", None)
    assert len(outcome.checkpoints) == 1
    assert not outcome.checkpoints[0].accepted


def test_nan_later_ends_the_run_and_keeps_the_last_weights_inside(
    drive: Callable[..., Outcome],
) -> None:
    last: dict[str, torch.Tensor] = {}

    def unlearn(model: Any, data: Data, _config: None, generator: object) -> Steps:
        for _ in walk(1e-3, 2)(model, data, None, generator):
            last.update({k: v.clone() for k, v in model.state_dict().items()})
            yield model
        spoil(model)
        while True:
            yield model

    outcome = drive(unlearn)
    assert outcome.status == "ok"
    assert len(outcome.checkpoints) == 3
    assert outcome.kept is not None
    assert outcome.kept.step == 2
    assert outcome.kept_state is not None
    assert all(outcome.kept_state[name].equal(tensor) for name, tensor in last.items())


# Limits


def test_drawing_everything_without_a_yield_fails_at_the_token_limit(
    drive: Callable[..., Outcome],
) -> None:
    def unlearn(model: Any, data: Data, _config: None, _generator: object) -> Steps:
        for _ in data.forget:
            pass
        for _ in data.retain:
            pass
        if model is None:
            yield model

    outcome = drive(unlearn, tokens=1000)
    assert outcome.status == "failed"
    assert outcome.error == "unlearn ended without a yield."
    batch = TASK.batch_blocks * 24
    assert 1000 <= outcome.tokens < 1000 + batch


def test_a_run_that_yields_at_every_draw_ends_at_the_token_limit(
    drive: Callable[..., Outcome],
) -> None:
    outcome = drive(ascend, tokens=300, yields=1000)
    assert outcome.status == "ok"
    assert 300 <= outcome.tokens < 300 + TASK.batch_blocks * 24
    drawn = [c.tokens for c in outcome.checkpoints]
    assert drawn == sorted(set(drawn))


def spin() -> None:
    while True:
        pass


def spin_before(_model: Any, _data: Data, _config: None, _generator: object) -> Steps:
    spin()
    yield


def spin_after(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
    yield model
    spin()


def spin_in_a_plain_function(*_: object) -> None:
    spin()


def swallow(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
    yield model
    while True:
        try:
            spin()
        except Exception:  # noqa: BLE001
            continue


def spin_when_closed(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
    try:
        while True:
            yield model
    finally:
        spin()


@pytest.mark.parametrize(
    "unlearn", [spin_before, spin_after, spin_in_a_plain_function, swallow, spin_when_closed]
)
def test_an_endless_submission_times_out(
    unlearn: Callable[..., Any], drive: Callable[..., Outcome]
) -> None:
    start = time.process_time()
    outcome = drive(unlearn, seconds=0.3, yields=2)
    assert outcome.status == "timed_out"
    assert outcome.kept is None
    assert "time limit" in str(outcome.error)
    assert time.process_time() - start < 20


def test_yields_are_capped_and_the_last_is_kept(drive: Callable[..., Outcome]) -> None:
    outcome = drive(walk(1e-4), yields=3)
    assert outcome.status == "ok"
    assert [c.step for c in outcome.checkpoints] == [1, 2, 3]
    assert outcome.kept is not None
    assert (outcome.kept.step, outcome.kept.interpolated) == (3, False)


# Matching


def on_the_line(kept: State, start: State, end: State) -> float:
    """The one fraction t with kept = start + t (end - start) for every tensor."""
    fractions = []
    for name, tensor in kept.items():
        moved, way = tensor - start[name], end[name] - start[name]
        if way.norm() > 0:
            t = float((moved * way).sum() / (way * way).sum())
            torch.testing.assert_close(moved, t * way, atol=1e-5, rtol=1e-3)
            fractions.append(t)
    assert max(fractions) - min(fractions) < 1e-3
    return fractions[0]


def walked(step: float, count: int) -> State:
    model = tiny_model()
    for _ in walk(step, count)(model, None, None, None):
        pass
    return model.state_dict()


def test_a_kl_budget_ends_at_its_crossing_within_five_percent_of_the_limit(
    drive: Callable[..., Outcome], evaluator: TinyEvaluator
) -> None:
    outcome = drive(walk(0.01), KLBudget(limit=0.05))
    kept = outcome.kept
    assert outcome.status == "ok"
    assert kept is not None
    assert kept.accepted
    assert 0.95 * 0.05 <= kept.value <= 0.05
    *inside, outside = outcome.checkpoints
    assert inside
    assert all(c.value <= 0.05 for c in inside)
    assert outside.value > 0.05
    assert outcome.kept_state is not None
    count = len(inside)
    on_the_line(outcome.kept_state, walked(0.01, count), walked(0.01, count + 1))
    again = tiny_model()
    again.load_state_dict(outcome.kept_state)
    assert evaluator.retain(again, "dev").kl == kept.value == kept.dev.kl


def test_a_first_yield_beyond_the_limit_is_interpolated_from_the_member(
    drive: Callable[..., Outcome],
) -> None:
    outcome = drive(walk(0.1), KLBudget(limit=0.05))
    assert len(outcome.checkpoints) == 1
    assert outcome.kept is not None
    assert outcome.kept.interpolated
    assert 0.95 * 0.05 <= outcome.kept.value <= 0.05
    assert outcome.kept_state is not None
    assert 0 < on_the_line(outcome.kept_state, member_state(), walked(0.1, 1)) < 1


def test_a_forget_budget_is_matched_and_the_run_goes_on_beyond(
    drive: Callable[..., Outcome],
) -> None:
    outcome = drive(walk(0.01), ForgetBudget(limit=0.4))
    kept = outcome.kept
    assert outcome.status == "ok"
    assert kept is not None
    assert kept.accepted
    assert 0.4 <= kept.value <= 1.05 * 0.4
    values = [c.value for c in outcome.checkpoints]
    crossing = next(i for i, value in enumerate(values) if value >= 0.4)
    assert kept.step == crossing + 1
    assert len(values) > crossing + 1
    assert values[-1] >= TASK.stop_gain or len(values) == TASK.limits.yields
    assert all(value < TASK.stop_gain for value in values[:-1])
    assert all(c.test is not None for c in outcome.checkpoints)


def test_the_front_ends_where_retain_loss_is_beyond_the_stop(
    drive: Callable[..., Outcome], baseline: Baseline
) -> None:
    outcome = drive(walk(0.02), ForgetBudget(limit=1e6), stop_cost=0.05)
    costs = [c.dev.retain_loss - baseline.retain for c in outcome.checkpoints if c.dev.retain_loss]
    assert costs[-1] >= 0.05 or outcome.checkpoints[-1].value >= TASK.stop_gain
    assert all(cost < 0.05 for cost in costs[:-1])


def test_a_level_that_is_never_reached_keeps_the_last_checkpoint(
    drive: Callable[..., Outcome],
) -> None:
    outcome = drive(walk(1e-4, 3), ForgetBudget(limit=0.9))
    assert outcome.status == "unreached"
    assert outcome.kept is not None
    assert (outcome.kept.step, outcome.kept.accepted) == (3, False)
    assert outcome.kept_state is not None
    assert all(t.equal(walked(1e-4, 3)[name]) for name, t in outcome.kept_state.items())


def test_the_readings_are_the_measured_values(drive: Callable[..., Outcome]) -> None:
    readings: list[Reading] = []

    def unlearn(model: Any, data: Data, _config: None, generator: object) -> Steps:
        for _ in walk(1e-3, 3)(model, data, None, generator):
            readings.append((yield model))

    outcome = drive(unlearn, KLBudget(limit=7.0))
    assert [r.value for r in readings] == [c.value for c in outcome.checkpoints]
    assert all(r.limit == 7.0 and r.accepted for r in readings)


# What crosses the border


def test_hooks_on_the_given_model_do_not_reach_the_measured_one(
    drive: Callable[..., Outcome],
) -> None:
    def unlearn(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        model.transformer.register_forward_hook(
            lambda _module, _args, output: setattr(output, "last_hidden_state", None)
        )
        yield model

    outcome = drive(unlearn)
    assert outcome.status == "ok"
    assert outcome.checkpoints[0].value == 0.0


def test_changing_the_model_after_its_last_yield_changes_nothing_kept(
    drive: Callable[..., Outcome],
) -> None:
    def unlearn(model: Any, _data: Data, _config: None, _generator: object) -> Steps:
        yield model
        spoil(model)

    outcome = drive(unlearn)
    assert outcome.kept is not None
    assert outcome.kept.value == 0.0


@pytest.mark.parametrize("budget", [KLBudget(limit=0.02), ForgetBudget(limit=0.2)])
def test_one_seed_gives_bitwise_equal_weights_twice_and_another_seed_others(
    budget: Budget, drive: Callable[..., Outcome]
) -> None:
    one, two, other = (drive(ascend, budget, seed=seed) for seed in (3, 3, 4))
    for outcome in (one, two, other):
        assert outcome.kept_state is not None
    assert all(one.kept_state[name].equal(two.kept_state[name]) for name in one.kept_state)
    assert not all(one.kept_state[name].equal(other.kept_state[name]) for name in one.kept_state)
    assert [c.dev for c in one.checkpoints] == [c.dev for c in two.checkpoints]


def test_global_random_numbers_do_not_change_the_order_of_the_data(
    drive: Callable[..., Outcome],
) -> None:
    seen: list[list[torch.Tensor]] = []

    def recording(wasted: int) -> Callable[..., Steps]:
        def unlearn(model: Any, data: Data, _config: None, _generator: object) -> Steps:
            drawn: list[torch.Tensor] = []
            seen.append(drawn)
            for forget, retain in zip(data.forget, data.retain, strict=False):
                torch.rand(wasted)
                drawn += [forget.ids, retain.ids]
            yield model

        return unlearn

    drive(recording(0))
    drive(recording(17))
    one, two = seen
    assert len(one) == len(two) > 10
    assert all(a.equal(b) for a, b in zip(one, two, strict=True))


def test_changing_a_drawn_batch_does_not_change_what_comes_again() -> None:
    def draws(spoiled: bool) -> Iterator[torch.Tensor]:
        meter = Meter(2000)
        for batch in tiny_streams(meter, None, 2, 0).forget:
            yield batch.ids.clone()
            if spoiled:
                batch.ids.zero_()

    assert all(a.equal(b) for a, b in zip(draws(False), draws(True), strict=True))
