"""Forecasts: what has to hold of them whatever the numbers are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rudel.errors import ClusterError, ModelError, OptionError
from rudel.loop.model_state import ModelState
from rudel.planning import lockstep, planning
from rudel.planning import simulated_rounds as rounds
from rudel.planning import simulated_visits as visits
from rudel.planning.forecast import Desk, Forecast, Link, Speed, Work, sole_steps
from rudel.planning.links import TRIAL_BYTES, Links, links_of
from rudel.planning.planning import alone, in_rounds, plan
from rudel.planning.scenario import parse
from rudel.planning.simulated_rounds import simulate
from rudel.replicas import host_checks as checks
from rudel.replicas.diloco.diloco_options import Diloco
from rudel.replicas.plans import Plans, shared

WORK = Work(steps=8192, batch_size=32, weights=817_000, variables=2_450_000)
FAST = links_of(1e9, 0.0)


def hosts(*steps: float, message: float = 60e3, exchange: float = 0.0) -> list[Speed]:
    return [Speed(f"h{i}", step, exchange, message, 1e9) for i, step in enumerate(steps)]


@pytest.mark.parametrize("steps", [[1e-3] * 4, [1e-3, 2e-3, 4e-3], [1e-3, 1e-2]])
def test_over_links_that_cost_nothing_hosts_add_up(steps: list[float]) -> None:
    forecast = simulate(WORK, hosts(*steps, message=0.0), FAST, 256, message=0.0)
    together = sum(1 / step for step in steps)
    assert forecast.seconds == pytest.approx(WORK.steps / together, rel=0.02)
    assert forecast.waiting < 0.02


def test_what_is_sent_is_hidden_behind_steps_until_it_takes_longer() -> None:
    lengths, four = 256, hosts(*[1e-3] * 4)
    rounds, a_round = 8, 0.256
    hidden = simulate(WORK, four, links_of(100e6, 0.0), lengths, message=60e3)
    slow = Links(rate=4 * 60e3 / (3 * a_round), own=1e9, latency=0.0)  # messages of a round take as long as three
    bound = simulate(WORK, four, slow, lengths, message=60e3)
    assert hidden.seconds == pytest.approx(rounds * a_round, rel=0.05)
    assert bound.seconds == pytest.approx(rounds * 3 * a_round, rel=0.2)
    assert bound.waiting > 0.5
    assert hidden.sent == bound.sent == rounds * 4 * 60e3


def test_latency_alone_is_hidden_up_to_a_round() -> None:
    four, lengths = hosts(*[1e-3] * 4), 256
    without, hidden, bound = (
        simulate(WORK, four, links_of(1e9, latency), lengths, message=20e3).seconds for latency in (0.0, 0.1, 0.4)
    )
    assert hidden == pytest.approx(without + 0.2 + 0.1, abs=0.05)  # the first call and its answer, the last message
    assert bound > 1.3 * without
    larger = simulate(WORK, four, links_of(1e9, 0.1), lengths, message=60e3).seconds
    assert larger == pytest.approx(8 * 0.6, rel=0.15)  # two round trips each way, as a connection that was idle takes


@pytest.mark.parametrize("count", [2, 5, 16])
def test_shares_add_up_and_follow_speed(count: int) -> None:
    seconds = np.random.default_rng(count).uniform(1, 3, count)
    found = np.array(shared(1000, list(1 / seconds)))
    assert found.sum() == 1000
    assert np.all(np.abs(found * seconds - (found * seconds).mean()) <= seconds.max())


def test_one_host_is_best_where_the_link_is_hopeless() -> None:
    short = Work(steps=200, batch_size=32, weights=2_000_000, variables=6_000_000)
    planned = plan(short, hosts(*[1e-3] * 4, message=1e6), links_of(0.2e6, 0.2))
    assert planned.best.strategy == "single"
    assert planned.why.startswith("One host is faster: ")
    assert plan(short, hosts(1e-3), FAST).why == "There is one host."


def test_little_that_more_hosts_gain_is_told_as_that() -> None:
    """A second host is a hundredth as fast."""
    planned = plan(WORK, hosts(1e-3, 98e-3, message=0.0), FAST)
    assert planned.best.strategy == "single"
    assert min(forecast.seconds for forecast in planned.forecasts[1:]) < planned.best.seconds
    assert planned.why == "More hosts would gain too little to be worth it."
    three = plan(WORK, hosts(1e-3, 1e-3, 60e-3, message=0.0), FAST)
    assert len(three.best.hosts) == 2
    assert three.why.endswith("; more would gain too little to be worth it.")


def test_a_host_alone_sends_all_weights_in_rounds_that_leave_the_link_idle_for_half_of_the_time() -> None:
    (host,), rate = hosts(1e-3), 2e5
    long = replace(WORK, steps=100_000)
    steps = sole_steps(long, host.step, rate)
    assert steps * host.step == pytest.approx(4 * long.weights / rate, rel=1e-3)
    assert sole_steps(long, host.step, 1e9) * host.step == pytest.approx(5.0)
    forecast = alone(long, host, Links(rate, rate, latency=0.01))
    rounds = round(100_000 / steps)
    assert forecast.rounds == rounds
    assert forecast.sent == pytest.approx(rounds * 2 * long.weights)
    upload = long.weights / rate
    assert forecast.seconds == pytest.approx(100 + upload, rel=0.01)  # the last weights come when the steps are done
    assert forecast.waiting < 0.01
    assert Diloco(round_steps=steps).chosen_for(1, long.steps, sgd=False).steps == steps


@pytest.mark.parametrize("memory", [0.3e9, 0.5e9, 1e9, 8e9])
@pytest.mark.parametrize("data", [1e6, 0.7e9, 4e9])
@pytest.mark.parametrize("count", [1, 4])
def test_memory_and_disk_are_counted_as_when_the_training_begins(memory: float, data: float, count: int) -> None:
    model = [np.zeros(10_000_000, np.float32)]
    state = ModelState(model, [], [*model, *model], [np.zeros(2, np.float32)])
    work = Work(1, 1, weights=40_000_000, variables=120_000_008, data=int(data))
    description = {"name": "raspi1", "memory": memory, "disk": 2e9}
    on_disk = checks.belongs_on_disk(description, state, data / count, data)
    held = True
    try:
        if on_disk:
            checks.check_disk(description, data / count)
        checks.check_memory(description, state, 0 if on_disk else data / count)
    except (ClusterError, ModelError):
        held = False
    assert work.on_disk(memory, count) == on_disk
    assert work.fits(memory, 2e9, count) == held
    assert work.memory(memory, count) == checks._needed(state, 0 if on_disk else data / count)


def test_hosts_that_cannot_hold_their_share_are_not_counted_on() -> None:
    work = replace(WORK, data=int(3e9))
    small, large = Speed("small", 1e-3, 0, 60e3, 1e9, disk=1.6e9), Speed("large", 2e-3, 0, 60e3, 8e9)
    planned = plan(work, [small, large], FAST)
    assert [(f.strategy, f.hosts) for f in planned.forecasts] == [
        ("single", ("large",)),
        ("diloco", ("small", "large")),
        ("async", ("small", "large")),
    ]  # of a mesh, every host has all of the data
    one, both, _ = planned.forecasts
    assert one.memory == work.replica + 3e9
    assert both.memory == work.replica + 1.5e9  # the other has its share on its disk
    planned = plan(work, [replace(small, disk=1e9), large], FAST)
    assert [f.hosts for f in planned.forecasts] == [("large",)]
    assert planned.why == "One host can hold the data, and the others cannot hold their share of it."
    both = plan(work, [small, replace(large, memory=1e9, disk=2e9)], FAST)
    assert len(both.best.hosts) == 2
    assert "hold what one alone cannot" in both.why
    with pytest.raises(ClusterError, match="can hold the model and the data"):
        plan(work, [replace(small, disk=1e9)], FAST)


def test_a_mesh_that_reads_files_of_this_computer_is_shown_and_not_chosen() -> None:
    work, links = replace(WORK, weights=1000), Links(1e9, 1e9, 0.0)
    two = hosts(1.0, 1.0, message=1e6, exchange=100.0)
    assert plan(work, two, links).best.strategy == "mesh"
    planned = plan(replace(work, streamed=True), two, links)
    assert [f.strategy for f in planned.forecasts if f.needs_files] == ["mesh"]
    assert planned.best.strategy != "mesh"


def test_of_two_strategies_each_has_its_own_margin_to_make_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(**seconds: float) -> str:
        forecasts = [Forecast(name, ("a", "b"), took, 1, 0, 0, 0, 1) for name, took in seconds.items()]
        monkeypatch.setattr(planning, "_all", lambda *arguments: forecasts)
        return plan(WORK, hosts(1e-3), FAST).best.strategy

    assert found(diloco=100.0, **{"async": 94.0}, mesh=89.5) == "async"  # 89.5 is 0.952 times 94, 0.947 is asked for
    assert found(diloco=100.0, **{"async": 94.0}, mesh=88.0) == "mesh"
    assert found(diloco=100.0, **{"async": 96.0}, mesh=91.0) == "diloco"


def test_more_hosts_are_best_where_that_is_so_and_the_fastest_come_first() -> None:
    planned = plan(WORK, hosts(3e-3, 1e-3, 2e-3), links_of(100e6, 1e-3))
    assert planned.best.hosts == ("h1", "h2", "h0")
    taken = [(forecast.strategy, len(forecast.hosts)) for forecast in planned.forecasts]
    assert taken == [("single", 1), *(("diloco", 2), ("async", 2), ("mesh", 2)), *(("diloco", 3), ("async", 3))]
    assert "are 1.8x faster than the fastest" in planned.why


def test_a_forecast_has_the_rounds_that_the_training_will_have() -> None:
    four = hosts(*[1.5e-3] * 4, exchange=0.02)
    forecast = in_rounds(WORK, four, links_of(100e6, 1.5e-3))
    assert forecast.rounds == 39  # of 52 steps each
    assert forecast.sent == pytest.approx(39 * 4 * 60e3)
    slow = Links(2.3e6, 2.3e6, 2e-3, trials=((1, 0.04), (4, 0.14)))  # 20 Mbit/s, and a slow start
    sparser = in_rounds(WORK, hosts(*[1.5e-3] * 4, message=69e3), slow)
    assert sparser.rounds == 62  # of 33 steps each, with a quarter of the elements
    assert sparser.sent == pytest.approx(62 * 4 * 69e3 / 4)


def test_a_host_that_looks_faster_than_it_is_has_the_rounds_by_how_it_looks() -> None:
    slow = [Speed(f"h{i}", 0.05, 0.02, 60e3, 1e9, tried=(0.0015, 0.02)) for i in range(4)]
    assert in_rounds(WORK, slow, links_of(100e6, 1.5e-3)).rounds == 39


def test_what_a_round_takes_beside_its_steps_counts_for_every_round_and_the_first_one_more() -> None:
    costly = [Speed(f"h{i}", 1e-3, 0.05, 0.0, 1e9, first=0.3) for i in range(4)]
    forecast = simulate(WORK, costly, FAST, 256, message=0.0)
    assert forecast.seconds == pytest.approx(8 * (0.256 + 0.05) + 0.3)
    assert forecast.exchanging == pytest.approx((8 * 0.05 + 0.3) / forecast.seconds)


def test_a_coordinator_that_is_slow_holds_up_the_end_and_then_everybody() -> None:
    four, lengths = hosts(*[1e-3] * 4, message=0.0), 256
    none, little, much = (simulate(WORK, four, FAST, lengths, 0.0, Desk(take)).seconds for take in (0.0, 0.01, 0.2))
    assert little == pytest.approx(none + 0.04)
    assert much == pytest.approx(8 * 0.8, rel=0.1)


@pytest.mark.parametrize("steps", [[1e-3] * 4, [1e-3, 2e-3, 10e-3]])
def test_hosts_that_wait_for_nobody_add_up(steps: list[float]) -> None:
    forecast = visits.simulate(WORK, hosts(*steps), FAST, 640, message=60e3)
    assert forecast.seconds == pytest.approx(WORK.steps / sum(1 / step for step in steps), rel=0.1)
    assert forecast.waiting < 0.02
    assert forecast.rounds >= 3 * len(steps)


def test_visits_over_a_slow_link_take_as_long_as_what_is_sent() -> None:
    forecast = visits.simulate(WORK, hosts(*[1e-3] * 4), Links(60e3, 1e9, 0.0), 256, message=60e3)
    assert forecast.seconds == pytest.approx(forecast.rounds, rel=0.1)
    assert forecast.waiting > 0.5


def test_a_step_of_all_together_is_as_long_as_the_slowest_and_what_goes_round_the_ring() -> None:
    work = Work(steps=100, batch_size=32, weights=1_000_000, variables=3_000_000, tensors=1)
    forecast = lockstep.simulate(work, hosts(0.08, 0.08, 0.08, 0.16), Links(6e6, 6e6, 0.01))
    assert forecast
    rings = 3 * 6 * 0.011  # gradients, loss and metric, of six turns each
    assert forecast.seconds == pytest.approx(100 * (0.16 / 4 + 1.0 + rings), rel=0.01)
    assert forecast.sent == 100 * 6e6
    assert lockstep.simulate(work, hosts(0.08, 0.08, 0.08), Links(6e6, 6e6, 0.01)) is None  # 32 do not divide by 3


def test_many_small_tensors_wait_for_the_latency_of_every_ring() -> None:
    few = Work(steps=100, batch_size=32, weights=500_000, variables=1_500_000, tensors=4)
    many = replace(few, tensors=17, averaged=10)
    forecasts = [lockstep.simulate(work, hosts(*[0.02] * 4), Links(12e6, 12e6, 1.5e-3)) for work in (few, many)]
    one, other = [forecast.seconds / 100 for forecast in forecasts if forecast]
    assert other - one == pytest.approx(3 * (2 * 13 + 10 / 2) * 2.5e-3, rel=0.01)


@pytest.mark.parametrize("count", [1, 4, 1000])
@pytest.mark.parametrize(
    ("module", "owner", "each", "most"), [(rounds, Plans, "plan", 500), (visits, visits, "_steps", 60_000)]
)
def test_a_training_of_any_length_takes_few_simulated_rounds(
    module: Any, owner: Any, each: str, most: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, one = 0, getattr(owner, each)

    def counted(*arguments: Any) -> Any:
        nonlocal times
        times += 1
        return one(*arguments)

    monkeypatch.setattr(owner, each, counted)
    long = replace(WORK, steps=10**12)
    forecast = module.simulate(long, hosts(*[1e-3] * count), FAST, 256, message=6e3)
    assert 8 < times < most
    assert forecast.seconds == pytest.approx(long.steps * 1e-3 / count, rel=0.1)
    assert forecast.rounds == pytest.approx(long.steps / 256 / (count if module is rounds else 1), rel=0.1)


@pytest.mark.parametrize("steps", [[1e-3] * 4, [1e-3, 1.7e-3, 4e-3], [1e-3, 50e-3]])
@pytest.mark.parametrize("links", [FAST, links_of(100e6, 1.5e-3), links_of(100e6, 0.4), Links(3e5, 3e5, 2e-3)])
@pytest.mark.parametrize("module", [rounds, visits])
def test_a_long_training_is_forecast_as_if_all_of_it_were_simulated(module: Any, links: Links, steps: Any) -> None:
    long, some, lengths = replace(WORK, steps=1_234_567), hosts(*steps, exchange=0.01), 256
    soon = module.simulate(long, some, links, lengths, 60e3)
    whole = module.simulate.__wrapped__(long, some, links, lengths, 60e3, Desk())
    for name in ("seconds", "sent", "rounds"):
        assert getattr(soon, name) == pytest.approx(getattr(whole, name), rel=0.01)
    for name in ("computing", "exchanging", "waiting", "sending"):
        assert getattr(soon, name) == pytest.approx(getattr(whole, name), abs=0.01)


def test_many_steps_that_are_slow_are_planned_too() -> None:
    planned = plan(replace(WORK, steps=10**12), hosts(5.0, 5.0, exchange=0.01), links_of(100e6, 1.5e-3))
    assert planned.forecasts[0].seconds == pytest.approx(5e12, rel=0.01)
    assert planned.best.seconds == pytest.approx(2.5e12, rel=0.05)


def linked(rate: float, step: float = 0.02, latency: float = 1.5e-3, up: float | None = None) -> Speed:
    return Speed(f"{rate:g}", step, 0.02, 8e6, 1e9, link=Link(rate, up or rate, latency))


def test_a_host_on_a_bad_link_comes_last_and_spoils_nothing_for_the_others() -> None:
    work, links = replace(WORK, steps=2048, weights=20_000_000), Links(12e6, 12e6, 1.5e-3)
    good = [linked(12e6), linked(11e6), linked(10e6)]
    without, planned = plan(work, good, links), plan(work, [linked(0.12e6), *good], links)
    assert planned.forecasts[: len(without.forecasts)] == without.forecasts
    assert planned.best.hosts == without.best.hosts
    whole = max(planned.forecasts, key=lambda forecast: len(forecast.hosts))
    assert whole.hosts[-1] == "120000"
    rounds_of_all = next(f for f in planned.forecasts if f.strategy == "diloco" and len(f.hosts) == 4)
    assert rounds_of_all.seconds > 2 * without.best.seconds
    mesh = next(f for f in planned.forecasts if f.strategy == "mesh" and len(f.hosts) == 4)
    assert mesh.seconds > work.steps * 2 * 3 / 4 * work.weights / 0.12e6


def test_who_is_alone_is_soonest_done_with_its_own_link() -> None:
    fastest, other = linked(1e4, step=1e-3), linked(1e7, step=1.2e-3)
    planned = plan(WORK, [fastest, other], Links(1e7, 1e7, 1.5e-3))
    assert planned.forecasts[0].hosts == (other.name,)
    long = plan(replace(WORK, steps=10**7), [fastest, other], Links(1e7, 1e7, 1.5e-3))
    assert long.forecasts[0].hosts == (fastest.name,)
    assert long.forecasts[0].seconds == pytest.approx(1e4 + WORK.weights / 1e4, rel=0.01)


@pytest.mark.parametrize("simulated", [simulate, visits.simulate])
def test_deltas_go_up_as_fast_as_that_is(simulated: Callable[..., Forecast]) -> None:
    four, lengths = [linked(1e7, step=1e-3, up=1e5) for _ in range(4)], 256
    up = simulated(WORK, four, Links(1e7, 1e7, 0.0, upwards=(1e5, 1e5)), lengths, 400e3)
    assert up.seconds == pytest.approx(up.sent / 2 / 1e5, rel=0.1)  # a round takes its steps in less
    own = simulated(WORK, four, Links(1e7, 1e7, 0.0).to(four), lengths, 400e3)
    assert own.seconds == pytest.approx(own.sent / 2 / 1e5 / 4, rel=0.2)  # all at the same time
    equal = simulated(WORK, four, Links(1e7, 1e7, 0.0), lengths, 400e3)
    assert equal.seconds < 0.5 * own.seconds


def test_fewer_hosts_are_as_fast_as_when_nobody_else_computes() -> None:
    one, *_, four = plan(WORK, hosts(*[1e-3] * 4, message=0.0), FAST, quiet=0.5).forecasts
    assert one.seconds == pytest.approx(WORK.steps * 0.5e-3, rel=0.01)
    assert four.seconds > 0.9 * WORK.steps * 1e-3 / 4


def test_a_trial_message_is_as_slow_as_it_was_found_to_be() -> None:
    links = Links(1e6, 1e6, 0.01, trials=((1, 0.1), (3, 0.3)))
    assert links.trial(2) == pytest.approx(2 * TRIAL_BYTES / 0.2)
    assert links_of(1e9, 0.0).trial(4) == pytest.approx(1e9 / 8, rel=0.1)


def test_a_thousand_hosts_of_many_speeds() -> None:
    scenario = parse("hosts=1000,rate=20,latency=40,speed=lognormal:0.5,loss=0.01")
    speeds = scenario.speeds(hosts(1e-3, exchange=0.01)[0], seed=3)
    assert len({speed.step for speed in speeds}) == 1000
    assert np.median([speed.step for speed in speeds]) == pytest.approx(1e-3, rel=0.1)
    assert speeds == scenario.speeds(hosts(1e-3, exchange=0.01)[0], seed=3)
    planned = plan(WORK, speeds, scenario.links)
    assert max(len(forecast.hosts) for forecast in planned.forecasts) == 1000
    shared = np.array([forecast.computing + forecast.exchanging + forecast.waiting for forecast in planned.forecasts])
    assert shared == pytest.approx(1.0)


def test_a_host_that_is_thought_of_does_everything_so_many_times_as_fast() -> None:
    here = Speed("here", 1e-3, 0.02, 60e3, 1e9, first=0.3, tried=(2e-3, 0.04), disk=5e9)
    (half,) = parse("hosts=1,speed=0.5").speeds(here)
    assert half == Speed("host1", 2e-3, 0.04, 60e3, 1e9, first=0.6, tried=(4e-3, 0.08), disk=5e9)


def test_what_is_lost_is_sent_again() -> None:
    four = hosts(*[1e-3] * 4, message=1e6)
    none, half = (simulate(WORK, four, parse(f"rate=5,latency=0,loss={loss}").links, 256, 1e6) for loss in (0, 0.5))
    assert none.waiting > 0.5  # it is the link that takes the time
    assert half.seconds == pytest.approx(2 * none.seconds, rel=0.05)
    assert half.sent == none.sent


@pytest.mark.parametrize("speed", ["0.001", "1000", "lognormal:3", "uniform:0.001:1000"])
@pytest.mark.parametrize("link", ["rate=0.001,latency=100000,loss=0.5", "rate=1000000,latency=0"])
def test_the_most_extreme_scenarios_have_finite_forecasts(speed: str, link: str) -> None:
    scenario = parse(f"hosts=5,{link},speed={speed}")
    planned = plan(WORK, scenario.speeds(hosts(1e-3, exchange=0.01)[0]), scenario.links)
    numbers = [[f.seconds, f.computing, f.exchanging, f.waiting, f.sent, f.sending] for f in planned.forecasts]
    assert np.all(np.isfinite(numbers))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts=0", "hosts to be a number from 1"),
        ("hosts=2.5", "whole number of hosts"),
        ("hosts=2,hosts=3", "does not understand 'hosts=3'"),
        ("machines=2", "does not understand 'machines=2'"),
        ("rate=fast", "rate to be a number"),
        ("loss=1", "loss to be a number from 0 to 0.5"),
        ("speed=gauss:1", "does not understand speed=gauss:1"),
        ("speed=uniform:2:1", "does not understand speed=uniform:2:1"),
        ("speed=0", "does not understand speed=0"),
        ("speed=1e-300", "does not understand speed=1e-300"),
        ("speed=1e300", "from 0.001 to 1000"),
        ("speed=nan", "does not understand speed=nan"),
        ("speed=lognormal:inf", "does not understand speed=lognormal:inf"),
        ("speed=uniform:1:inf", "does not understand speed=uniform:1:inf"),
        ("hosts=nan", "hosts to be a number"),
        ("hosts=inf", "hosts to be a number"),
        ("latency=nan", "latency to be a number"),
        ("rate=inf", "rate to be a number"),
        ("", "does not understand ''"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(text)
