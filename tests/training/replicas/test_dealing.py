"""All examples are trained on about equally often, however fast hosts are, and little is sent for that."""

from collections.abc import Sequence

import numpy as np
import pytest

from rudel.replicas.dealing import Dealing, even_out, quotas
from rudel.replicas.members import Member, Piece
from rudel.replicas.plans import Plans
from rudel.shipping.host_examples import Leaf, Shard, cut

EXAMPLES, BATCH = 4800, 32


class Hosts:
    """Hosts that train as replicas do, on shards as replicas have them, in rounds of whatever length.

    Args:
        speeds: as a try-out shows them.
        shuffle: the examples.
    """

    def __init__(self, speeds: Sequence[float], shuffle: bool = True) -> None:
        spans = cut(EXAMPLES, 100, len(speeds))
        self.dealing = Dealing(Piece(str(i), span, bytes) for i, span in enumerate(spans))
        self.members = [Member(str(i), "", i, active=True, step_seconds=1 / s) for i, s in enumerate(speeds)]
        self._shards = [Shard(EXAMPLES, [Leaf((), "int8")], BATCH, 0, i, shuffle) for i in range(len(speeds))]
        self._owed = [0.0] * len(speeds)
        self.times = np.zeros(EXAMPLES, int)
        self.moved, self.round = 0, 0
        even_out(self.members)
        self.deal()
        self.moved = 0

    def deal(self) -> None:
        before = [set(member.dealt) for member in self.members]
        self.dealing.deal(self.members)
        assert sum(len(member.dealt) for member in self.members) == len(self.dealing.passes), "each piece, once"
        self.moved += sum(len(m.dealt - had) for m, had in zip(self.members, before, strict=True))
        for member, shard in zip(self.members, self._shards, strict=True):
            member.loaded |= member.dealt
            self.dealing.count()
            member.take_dealt()
            shard.own(sorted(piece.span for piece in member.pieces), self.round)

    def train(self, passes: float, speeds: Sequence[float], look_every: int = 5) -> None:
        until = self.times.sum() + passes * EXAMPLES
        while self.times.sum() < until:
            self.round += 1
            for i, (member, shard) in enumerate(zip(self.members, self._shards, strict=True)):
                self._owed[i] += 20 * speeds[i] / max(speeds)
                steps = int(self._owed[i])
                self._owed[i] -= steps
                if steps:
                    np.add.at(self.times, shard.batches(steps).reshape(-1), 1)
                    member.answered(steps, steps / speeds[i], 0.0)
                    self.dealing.trained(member, steps * BATCH)
            if self.round % look_every == 0 and self.dealing.behind():
                self.deal()


@pytest.mark.parametrize(
    "speeds",
    [(1.0, 1.0, 1.0), (4.0, 2.0, 1.0), (1.0, 1.0, 0.001), (1.0, 0.003, 0.002), (1.0, 0.9, 0.8, 0.02, 0.01)],
    ids=str,
)
def test_every_example_is_trained_on_about_equally_often(speeds: Sequence[float]) -> None:
    hosts = Hosts(speeds)
    hosts.train(40, speeds)
    mean = hosts.times.mean()
    assert hosts.times.min() > 0.8 * mean - 1
    assert hosts.times.max() < 1.25 * mean + 2
    assert hosts.moved <= 40 * sum(speed < 0.1 for speed in speeds), "of as many as there are in 40 passes, 48 each"


def test_examples_of_a_host_that_becomes_slow_are_moved_to_the_others() -> None:
    hosts = Hosts((1.0, 1.0, 1.0))
    hosts.train(5, (1.0, 1.0, 1.0))
    assert hosts.moved == 0
    hosts.train(35, (1.0, 1.0, 0.01))
    assert len(hosts.members[2].pieces) <= 2
    assert hosts.times.min() > 0.75 * hosts.times.mean()
    assert hosts.moved <= 40


def test_hosts_that_a_try_out_shows_as_about_equally_fast_get_equally_many() -> None:
    hosts = Hosts((1.0, 0.83, 0.95, 0.3))
    *alike, slower = [len(member.pieces) for member in hosts.members]
    assert max(alike) - min(alike) <= 1
    assert min(alike) > 2.5 * slower


@pytest.mark.parametrize("tried", [(1.0, 0.83), (1.0, 0.65), (1.0, 0.2)], ids=str)
def test_a_try_out_that_was_wrong_is_made_up_for(tried: Sequence[float]) -> None:
    hosts = Hosts(tried)
    hosts.train(30, (1.0, 1.0))
    assert hosts.times.min() > 0.85 * hosts.times.mean()
    before = hosts.times.copy()
    hosts.train(10, (1.0, 1.0))
    since = hosts.times - before
    assert since.min() >= 0.9 * since.mean() - 1


def test_speeds_that_go_up_and_down_move_little() -> None:
    hosts, random = Hosts((1.0, 1.0, 1.0)), np.random.default_rng(0)
    for _ in range(200):
        hosts.train(0.2, tuple(random.uniform(0.7, 1.3, 3)))
    assert hosts.moved <= 5


def test_what_a_host_cannot_hold_is_for_the_others() -> None:
    hosts = Hosts((10.0, 1.0, 1.0))
    hosts.members[0].room = 0.25
    hosts.deal()
    held = [len(member.dealt) / len(hosts.dealing.passes) for member in hosts.members]
    assert held[0] <= 0.3
    assert sum(held) == pytest.approx(1.0)


@pytest.mark.parametrize(("hosts", "slower"), [(1, 12), (2, 4), (2, 8), (3, 8), (14, 1), (32, 1)], ids=str)
def test_a_host_that_joins_gets_the_pieces_that_are_due_to_it(hosts: int, slower: int) -> None:
    there = Hosts([1.0] * hosts)
    newcomer = Member("new", "", hosts, active=True, step_seconds=float(slower))
    due = len(there.dealing.passes) / (1 + hosts * slower)
    there.dealing.deal([*there.members, newcomer])
    assert max(1, due / 2) <= len(newcomer.dealt) <= due + 1
    held = sorted(piece.span for member in (*there.members, newcomer) for piece in member.dealt)
    assert held == sorted(piece.span for piece in there.dealing.passes), "each piece, once"


def test_a_host_whose_worker_is_a_new_one_trains_on_no_piece_that_is_not_loaded() -> None:
    hosts = Hosts((1.0, 1.0, 0.125))
    back = hosts.members[2]
    hosts.dealing.deal(hosts.members[:2])
    back.lose_pieces()
    back.take_dealt()
    assert back.pieces == set()
    hosts.dealing.deal(hosts.members)
    back.loaded |= back.dealt
    back.take_dealt()
    assert back.pieces
    assert back.pieces == back.dealt


def test_a_host_without_pieces_is_planned_for_when_it_has_some() -> None:
    member, piece = Member("new", "", 0, active=True), Piece("0", (0, 1), bytes)
    plans = Plans({"new": member}, 8, 1000, lambda first, last, count: np.zeros(count, np.float32))
    plans.plan_late(member, 1, 0.5, 1, 0)
    assert member.plans == {}
    member.pieces, member.pieces_changed = {piece}, True
    plans.plan_late(member, 1, 0.5, 1, 0)
    assert member.plans[1].pieces == [piece.span]


def test_with_fewer_pieces_than_hosts_the_slowest_get_none() -> None:
    assert quotas(2, [1.0, 3.0, 2.0], [2, 2, 2]) == [0, 1, 1]


def test_an_order_goes_on_when_pieces_change() -> None:
    shard = Shard(40, [Leaf((), "int8")], 2, 0, 0, True)
    shard.own([(0, 10), (10, 20)], 0)
    first = shard.batches(5).reshape(-1)
    shard.own([(0, 10), (30, 40)], 3)
    rest = shard.batches(10).reshape(-1)
    seen_of_first_piece = [i for i in (*first, *rest) if i < 10]
    assert set(range(30, 40)) <= set(rest.tolist())
    assert not set(range(10, 20)) & set(rest.tolist())
    counts = np.bincount(seen_of_first_piece, minlength=10)
    assert counts.max() - counts.min() <= 1, "none is passed over twice before all were once"


def test_a_host_keeps_its_pieces_until_others_are_loaded() -> None:
    """What is dealt to it may have changed again while a slow host was brought what was dealt before."""
    first, second, third = (Piece(str(i), (i, i + 1), bytes) for i in range(3))
    member = Member("slow", "", 0, dealt={first}, loaded={first})
    member.take_dealt()
    member.loaded.add(second)
    member.dealt = {third}
    member.take_dealt()
    assert member.pieces == {first}
    member.loaded.add(third)
    member.take_dealt()
    assert member.pieces == {third}
