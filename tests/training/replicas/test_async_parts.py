"""What a delta does when it comes, and who takes how many steps until it comes again."""

import numpy as np
import pytest

from rudel.errors import OptionError
from rudel.replicas.asynchronous.async_options import Async
from rudel.replicas.asynchronous.delayed import freshness, make_delayed
from rudel.replicas.asynchronous.visits import Visits, fair_share
from rudel.replicas.diloco.diloco_options import Diloco
from rudel.replicas.members import Member, Piece
from rudel.replicas.round_lengths import Speeds
from rudel.shipping import array_bytes
from rudel.training.strategies import Auto, as_auto, named, with_options

SIZE = 19


def some(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)


# -- outer optimizers -----------------------------------------------------------------------------------------------


def test_momentum_comes_once_in_a_cycle() -> None:
    outer, weights = make_delayed("nesterov:0.7:0.6"), some(0)
    state = outer.init(SIZE)
    expected, momentum, since = weights.astype(np.float64), np.zeros(SIZE), np.zeros(SIZE)
    for arrival in range(12):
        delta, fresh = some(arrival + 1), 1.0 if arrival % 3 else 0.5
        outer.step(delta, 0.25, fresh, state, weights)
        since += 0.25 * fresh * delta
        expected += 0.7 * 0.25 * fresh * delta
        if arrival % 4 == 3:
            momentum = 0.6 * momentum + since
            expected += 0.7 * 0.6 * momentum
            since[:] = 0
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-5)
    assert weights.dtype == state.dtype == np.float32


def test_a_cycle_of_like_deltas_is_a_round_of_their_mean() -> None:
    from rudel.replicas.outer_optimizer import make_outer

    rounds, arrivals = make_outer("nesterov:1:0.5"), make_delayed("nesterov:1:0.5")
    here, there = some(0), some(0)
    memory, state = rounds.init(SIZE), arrivals.init(SIZE)
    for number in range(5):
        delta = some(number + 1)
        here += rounds.step(delta, memory)
        for weight in (0.5, 0.25, 0.125, 0.125):
            arrivals.step(delta, weight, 1.0, state, there)
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "share"), [("sum", 0.5), ("nesterov:1:0", 0.125)])
def test_without_momentum_a_delta_counts_for_its_age_and_its_weight(name: str, share: float) -> None:
    outer, weights, delta = make_delayed(name), some(0), some(1)
    assert outer.name == name
    outer.step(delta, 0.25, 0.5, outer.init(SIZE), weights)
    np.testing.assert_allclose(weights, some(0) + share * delta, rtol=1e-6)


def test_what_is_older_counts_less() -> None:
    ages = [freshness(age) for age in (0.0, 1.0, 2.0, 3.0, 10.0)]
    assert ages[:3] == [1.0, 1.0, 1.0]
    assert 1 > ages[3] > ages[4] > 0


@pytest.mark.parametrize(
    "name", ["adam", "", "average", "sum:1", "momentum:1:0.5", "nesterov", "nesterov:0:0.5", "nesterov:1:1"]
)
def test_a_wrong_outer_optimizer_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="nesterov:LR:MU"):
        make_delayed(name)


# -- visits ---------------------------------------------------------------------------------------------------------


class Crowd:
    """Replicas of some speeds, and a clock that is set by hand."""

    def __init__(self, speeds: dict[str, float], length: int, total: int) -> None:
        self.now, self.done, self.arrivals = 0.0, 0, 0
        piece = {Piece("p", (0, 1), bytes)}
        self.members = {
            name: Member(name, "", number, active=True, step_seconds=1 / speed, pieces=piece)
            for number, (name, speed) in enumerate(speeds.items())
        }
        self.asked: list[tuple[int, int, int]] = []
        self.visits = Visits(self.members, length, total, self._rates, lambda: self.now)
        self.numbers = dict.fromkeys(self.members, 0)

    def _rates(self, first: int, last: int, count: int) -> np.ndarray:
        self.asked.append((first, last, count))
        return np.zeros(count, np.float32)

    def plan(self, name: str) -> int | None:
        """Plans the next visit and the one thereafter; returns the steps of the former."""
        member, number = self.members[name], self.numbers[name]
        for ahead in (number, number + 1):
            self.visits.plan(member, ahead, self.done)
        return member.plans[number].steps if number in member.plans else None

    def _come(self, name: str) -> int:
        """Ends a visit; returns its steps."""
        member, number = self.members[name], self.numbers[name]
        steps = self.visits.planned(member, number).steps
        self.visits.taken(member, number, self.now)
        self.numbers[name] += 1
        return steps

    def all_by(self, name: str) -> int:
        """Lets one take all steps that it is given; returns how many that were."""
        before = self.done
        while self.plan(name):
            self.done += self._come(name)
        return self.done - before

    def run(self) -> dict[str, list[int]]:
        """Everybody works until nothing is left; the steps of all visits."""
        taken: dict[str, list[int]] = {name: [] for name in self.members}
        ends = {name: steps / self.members[name].speed for name in self.members if (steps := self.plan(name))}
        while ends:
            name = min(ends, key=lambda one: ends[one])
            self.now = ends.pop(name)
            steps = self._come(name)
            self.done, self.arrivals = self.done + steps, self.arrivals + 1
            taken[name].append(steps)
            if steps := self.plan(name):
                ends[name] = self.now + steps / self.members[name].speed
        return taken


def test_slow_ones_take_fewer_steps_and_all_end_together() -> None:
    crowd = Crowd({"a": 1000, "b": 1000, "c": 100}, 64, 5000)
    taken = crowd.run()
    assert crowd.done == 5000
    assert taken["a"][0] == 64
    assert max(taken["a"]) <= 96
    assert max(taken["c"]) <= 10
    assert sum(taken["a"]) == pytest.approx(5000 * 10 / 21, rel=0.05)
    assert crowd.now == pytest.approx(5000 / 2100, rel=0.03), "nobody is left over with much to do"


def test_a_replica_for_which_coming_is_dear_comes_less_often() -> None:
    crowd = Crowd({"a": 1000, "b": 100}, 64, 5000)
    crowd.members["b"].exchange_seconds = 0.05
    assert max(crowd.run()["b"]) > 6


def test_rates_are_those_of_the_steps_that_all_take_meanwhile() -> None:
    crowd = Crowd({"a": 300, "b": 100}, 60, 10_000)
    crowd.plan("a")
    crowd.plan("b")
    assert crowd.asked[0] == (0, 80, 60)
    assert crowd.asked[2] == (120, 200, 20)


def test_steps_of_one_that_is_late_are_for_the_others() -> None:
    crowd = Crowd({"a": 100, "b": 100}, 100, 400)
    crowd.plan("b")
    with_b = sum(plan.steps for plan in crowd.members["b"].plans.values())
    crowd.now = 1.5
    assert not crowd.visits.is_late(crowd.members["b"])
    assert crowd.all_by("a") == 400 - with_b, "the rest is with b"
    crowd.now = 3.5
    assert crowd.visits.is_late(crowd.members["b"])
    assert crowd.all_by("a") == with_b


def test_steps_of_one_that_is_lost_are_planned_anew() -> None:
    crowd = Crowd({"a": 100, "b": 100}, 100, 400)
    crowd.plan("b")
    crowd.members["b"].plans.clear()
    crowd.members["b"].active = False
    assert crowd.all_by("a") == 400


def test_what_is_too_little_for_a_slow_one_is_for_the_others() -> None:
    crowd = Crowd({"a": 1000, "b": 10}, 64, 1000)
    crowd.members["b"].exchange_seconds = 1.0
    taken = crowd.run()
    assert taken["b"] == []
    assert sum(taken["a"]) == 1000


def test_shares_add_up() -> None:
    speeds, busy = {"a": 5.0, "b": 3.0, "c": 2.0}, {"a": 1.0, "b": 0.0, "c": 4.0}
    shares = {name: fair_share(100, name, speeds, busy) for name in speeds}
    assert sum(shares.values()) == pytest.approx(100)
    ends = {busy[name] + shares[name] / speeds[name] for name in speeds}
    assert max(ends) - min(ends) < 1e-9


def test_a_plan_says_what_is_new() -> None:
    crowd = Crowd({"a": 100}, 10, 400)
    member = crowd.members["a"]
    member.pieces_changed = True
    crowd.plan("a")
    first, second = member.plans[0], member.plans[1]
    assert (first.pieces, second.pieces) == ([(0, 1)], None)
    assert array_bytes.unpack(first.rates)[0].tolist() == [0.0]


# -- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps_between": 0}, "`steps_between=` must be a whole number of at least 1, not 0"),
        ({"steps_between": 2.5}, "`steps_between=` must be a whole number"),
        ({"rate_factor": 0}, "`rate_factor=` must be above 0"),
        ({"patience": -1}, "`patience=` must be a number of seconds"),
        ({"outer": "momentum:1:0.5"}, "no outer optimizer 'momentum:1:0.5' of arrivals"),
        ({"delta_codec": "zip"}, "There is no codec 'zip'"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Async(**options)


def test_an_option_picks_the_strategy_or_is_refused_by_another() -> None:
    for name in (None, "diloco"):
        assert with_options(name, {"sync_every": 4, "host_timeout": 9.0}) == Diloco(round_steps=4, patience=9.0)
    assert with_options("async", {"sync_every": 4, "host_timeout": None}) == Async(steps_between=4)
    given = {"round_steps": None, "steps_between": 4}  # names of version 0.1
    assert with_options(None, given) == Async(steps_between=4)
    with pytest.raises(OptionError, match="--steps-between belongs to the strategy async, not to diloco"):
        with_options("diloco", given)
    with pytest.raises(OptionError, match="--round-steps belongs to the strategy diloco, and other options to others"):
        with_options(None, given | {"round_steps": 4})


def test_auto_keeps_what_all_strategies_have_and_refuses_what_one_has() -> None:
    asked = with_options("auto", {"sync_every": None, "host_timeout": 300.0})
    assert asked == Auto(patience=300.0)
    assert named(asked, hosts=True) == Diloco(patience=300.0)
    assert asked.given_to(Async(steps_between=4)) == Async(steps_between=4, patience=300.0)
    assert named(asked, hosts=False) is None
    assert as_auto("auto") == Auto()
    assert as_auto("diloco") is as_auto(Async()) is None
    with pytest.raises(OptionError, match="--sync-every belongs to the strategy diloco and async, which `auto` may"):
        with_options("auto", {"sync_every": 4, "host_timeout": 300.0})


def test_what_is_given_is_not_changed_by_what_is_measured() -> None:
    options = Async(steps_between=7, delta_codec="int8")
    agreed = options.agree(4, 10_000, Speeds(1e-3, 1.0, 1e9, bytes_per_second=1.0))
    assert (agreed.steps, agreed.delta_codec) == (7, "int8")
