"""Brings the pieces of the data set to those who train on them: over the network once, then from the host's cache."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from rudel.errors import ClusterError
from rudel.train.diloco.members import Member, Piece, deal

_AT_ONCE = 64
"""Pieces that are shipped before they are loaded, so that a cache need not hold all of a large data set."""


_AHEAD = 512
"""Pieces that are shipped before they can be loaded; with 4 MB each, no cache is too small for them."""


class Supply:
    """The pieces, and the way to the members.

    Args:
        pieces: all of the data set.
        members: by name; others add to it and take from it.
        call: (member, operation, **message) -> the answer of a handler on the member's worker.
        count_sent: told of bytes that go to a member.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        members: Mapping[str, Member],
        call: Callable[..., Awaitable[Any]],
        count_sent: Callable[[Member, int], None],
    ) -> None:
        self._pieces, self._members, self._call, self._count_sent = pieces, members, call, count_sent

    def deal(self, newcomers: Sequence[Member] = ()) -> list[Member]:
        """Deals all examples to those who take part, and to those who are to; returns them."""
        sharing = [m for m in self._members.values() if m.active or m in newcomers]
        if sharing:
            deal(self._pieces, sharing)
        return sharing

    async def share_out(self) -> None:
        """Deals the examples of lost replicas to the others, and brings them there."""
        await asyncio.gather(*(self.bring(member) for member in self.deal()), return_exceptions=True)

    async def bring(self, member: Member, load: bool = True) -> None:
        """Brings what is dealt to a member: over the network what its host does not have, then to memory.

        Args:
            member: whom to.
            load: whether to memory, too.

        Raises:
            ClusterError: its host cannot keep a piece.
        """
        wanted = sorted(member.dealt - member.loaded, key=lambda piece: piece.span)
        if not wanted:
            member.take_dealt()
            return
        for first in range(0, len(wanted) if load else min(len(wanted), _AHEAD), _AT_ONCE):
            await self._bring(member, wanted[first : first + _AT_ONCE], load)
        if load:
            member.take_dealt()

    async def _bring(self, member: Member, wanted: Sequence[Piece], load: bool) -> None:
        missing = set(await self._call(member, "missing", names=[piece.name for piece in wanted]))
        await self._ship(member, [piece for piece in wanted if piece.name in missing])
        if not load:
            return
        failed = set(await self._load(member, wanted))  # damaged there, or more than its cache can hold
        for piece in wanted:
            if piece.name in failed:
                await self._ship(member, [piece])
                if await self._load(member, [piece]):
                    raise ClusterError(f"{member.name} cannot keep a piece of the data that it was sent.")
        member.loaded.update(wanted)

    async def _ship(self, member: Member, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            content = await asyncio.to_thread(piece.content)  # which may have to be read
            self._count_sent(member, len(content))
            await self._call(member, "piece", name=piece.name, content=content)

    async def _load(self, member: Member, pieces: Iterable[Piece]) -> list[str]:
        """Lets a member load pieces from its cache; returns the names of those that are not there."""
        return await self._call(member, "load", owned=[(piece.name, piece.span) for piece in pieces])
