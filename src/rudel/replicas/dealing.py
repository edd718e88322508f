"""Deals examples to hosts so that all are trained on about equally often, however fast the hosts are.

A replica takes steps in proportion to its speed, and gets pieces of the data set in proportion to its steps, as far as
its host can hold them. Hosts that a try-out shows to be about equally fast begin as equals. The passes over each piece
are counted. Where one has fallen behind, because a host has become slower or cannot keep up with even a single piece,
the pieces are dealt again; a host of the latter kind gets the piece that is furthest ahead every time. All others keep
their pieces, so that little is sent, except for what a host that joins is given.

Guarantee: a piece falls behind the mean by at most half a pass, or a tenth of all passes, beside what is done until it
has been moved. Limit: examples within a piece are counted as one.
"""

from collections.abc import Iterable, Sequence

from rudel.replicas.members import Member, Piece
from rudel.replicas.plans import shared

_BEHIND_PASSES, _BEHIND_SHARE = 0.5, 0.1
"""A piece has fallen behind by that many passes, and by that share of the mean."""

_TOO_SLOW = 0.75
"""A host that takes fewer steps than are due to this share of a piece cannot keep up with one."""

_SURPLUS = 1.1
"""By how much more pieces than are due to it a host keeps: they do not fall behind by more than is allowed."""

_TOO_FEW = 0.5
"""A host that would have less than this share of the pieces that are due to it, as one that joins, gets all of them."""

_ALIKE = 1.5
"""Speeds that differ by less are taken for the same, before the training has shown how fast a host is: four equal nodes
of a lab with 0.2 of a core differed by 1.4 times in a try-out.
"""


class Dealing:
    """Deals pieces and counts how often each was passed over.

    Args:
        pieces: all of the data set.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.passes = dict.fromkeys(pieces, 0.0)
        self._examples = sum(_length(piece) for piece in self.passes)
        self._trained: dict[Member, int] = {}

    def trained(self, member: Member, examples: int) -> None:
        """A replica has trained on so many examples of its pieces."""
        self._trained[member] = self._trained.get(member, 0) + examples

    def count(self) -> None:
        """Counts passes up to now; to be called before a member's pieces change."""
        trained, self._trained = self._trained, {}
        for member, examples in trained.items():
            own = max(1, sum(map(_length, member.pieces)))
            for piece in member.pieces:
                self.passes[piece] += examples / own

    @property
    def mean(self) -> float:
        """Passes over the data set."""
        return sum(_length(piece) * passes for piece, passes in self.passes.items()) / max(1, self._examples)

    def behind(self) -> set[Piece]:
        """Pieces that have fallen behind."""
        self.count()
        mean = self.mean
        least = mean - max(_BEHIND_PASSES, _BEHIND_SHARE * mean)
        return {piece for piece, passes in self.passes.items() if passes < least}

    def deal(self, members: Sequence[Member]) -> None:
        """Deals all pieces to these members: at least one to each, as far as there are enough.

        What a member takes examples from changes when it takes what was dealt, once it has been brought there.

        >>> a, b = Member("a", "", 0, step_seconds=0.1), Member("b", "", 1, step_seconds=0.3)
        >>> dealing = Dealing([Piece(str(i), (i, i + 1), bytes) for i in range(4)])
        >>> dealing.deal([a, b]); len(a.dealt), len(b.dealt)
        (3, 1)
        >>> dealing.deal([b]); len(b.dealt)
        4
        """
        speeds = [member.steady_speed for member in members]
        due = quotas(len(self.passes), speeds, [int(member.room * len(self.passes)) for member in members])
        exact = [len(self.passes) * speed / sum(speeds) for speed in speeds]
        too_slow = {member for member, share in zip(members, exact, strict=True) if share < _TOO_SLOW}
        behind, free, kept = self.behind(), dict(self.passes), {}
        for member, most in zip(members, due, strict=True):
            own = sorted((p for p in member.dealt if p in free), key=lambda p: (-self.passes[p], p.span))
            if member in too_slow:
                kept[member] = [piece for piece in own if piece not in behind][:most]
            else:
                kept[member] = own if len(own) <= max(most + 1, _SURPLUS * most) else own[:most]
            for piece in kept[member]:
                del free[piece]
        for member, most in zip(members, due, strict=True):
            if member in too_slow and len(kept[member]) < most:
                self._give_ahead(member, kept, free, too_slow)
        missing = {member: most - len(kept[member]) for member, most in zip(members, due, strict=True)}
        for piece in sorted(free, key=lambda piece: piece.span):
            neediest = max(missing, key=lambda member: (missing[member], -member.number))
            kept[neediest].append(piece)
            missing[neediest] -= 1
        too_few = [m for m, most in zip(members, due, strict=True) if len(kept[m]) < _TOO_FEW * most]
        for member in too_few:
            while missing[member] > 0:
                fullest = min(missing, key=lambda other: missing[other])
                kept[member].append(kept[fullest].pop())
                missing[member] -= 1
                missing[fullest] += 1
        for member in members:
            member.dealt = set(kept[member])

    def _give_ahead(
        self, slow: Member, kept: dict[Member, list[Piece]], free: dict[Piece, float], too_slow: set[Member]
    ) -> None:
        """Gives the piece that is furthest ahead to a member that will hardly train on it."""
        holders = {piece: member for member, own in kept.items() if member not in too_slow for piece in own}
        piece = max([*holders, *free], key=lambda piece: (self.passes[piece], piece.span))
        if piece in holders:
            kept[holders[piece]].remove(piece)
        free.pop(piece, None)
        kept[slow].append(piece)


def even_out(members: Sequence[Member]) -> None:
    """Takes members that a try-out shows to be about equally fast for equally fast; see `alike`."""
    for member, speed in zip(members, alike([member.speed for member in members]), strict=True):
        member.step_seconds = 1.0 / speed


def alike(speeds: Sequence[float]) -> list[float]:
    """Speeds in which those that hardly differ are the same, namely their mean: a short try-out is no more exact.

    >>> alike([1.0, 0.9, 0.5, 1.1])
    [1.0, 1.0, 0.5, 1.0]
    """
    result = list(speeds)
    left = sorted(range(len(speeds)), key=lambda i: -speeds[i])
    while left:
        group = [i for i in left if speeds[i] * _ALIKE > speeds[left[0]]]
        mean = sum(speeds[i] for i in group) / len(group)
        for i in group:
            result[i] = mean
        left = left[len(group) :]
    return result


def worth_of(speeds: Sequence[float]) -> int:
    """The number of hosts of equal speed that these are worth, rounded.

    The mean of what they learn is weighted by their speeds, and is as noisy as a plain mean over so many: the effective
    sample size of L. Kish, *Survey sampling*, 1965. A speed that was measured wrong hardly changes it.

    >>> worth_of([1.0, 0.9, 0.02]), worth_of([1.0, 0.5, 0.5, 0.5]), worth_of([2.0, 1.0, 1.0, 1.0]), worth_of([1.0])
    (2, 4, 4, 1)
    """
    return round(sum(speeds) ** 2 / sum(speed**2 for speed in speeds))


def quotas(count: int, speeds: Sequence[float], most: Sequence[int]) -> list[int]:
    """Deals so many pieces out to hosts: by their speeds, at most what each can hold, and at least one.

    Where all of them together cannot hold the data set, they get more than they can hold.

    >>> quotas(48, [1.0, 1.0, 0.001], [48, 48, 48]), quotas(10, [9.0, 1.0], [5, 10]), quotas(4, [3.0, 1.0], [1, 1])
    ([23, 24, 1], [5, 5], [3, 1])
    """
    given = [0] * len(speeds)
    while (left := count - sum(given)) and (able := [i for i, number in enumerate(given) if number < most[i]]):
        for i, number in zip(able, shared(left, [speeds[i] for i in able]), strict=True):
            given[i] += min(number, most[i] - given[i])
    for i, number in enumerate(shared(count - sum(given), speeds)):
        given[i] += number
    while count >= len(given) and 0 in given:
        given[given.index(max(given))] -= 1
        given[given.index(0)] += 1
    return given


def _length(piece: Piece) -> int:
    first, last = piece.span
    return last - first
