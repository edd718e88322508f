"""Sends pieces of the data set to the replicas that use them: over the network once, then from the host's cache."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from rudel.errors import ClusterError
from rudel.replicas.dealing import Dealing
from rudel.replicas.members import Member, Piece

_AT_ONCE = 64
"""Pieces that are shipped before they are loaded, so that a cache need not hold all of a large data set."""


class Supply:
    """The pieces, and the way to the members.

    Args:
        pieces: all of the data set.
        members: by name; others add to it and take from it.
        call: (member, operation, **message) -> the answer of a handler on the member's worker.
        count_sent: called with the number of bytes that go to a member.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        members: Mapping[str, Member],
        call: Callable[..., Awaitable[Any]],
        count_sent: Callable[[Member, int], None],
    ) -> None:
        self.dealing = Dealing(pieces)
        self._members, self._call, self._count_sent = members, call, count_sent

    def deal(self, newcomers: Sequence[Member] = ()) -> list[Member]:
        """Deals all examples to those who take part, and to those who are to; returns them."""
        sharing = [m for m in self._members.values() if m.active or m in newcomers]
        if sharing:
            self.dealing.deal(sharing)
        return sharing

    async def bring(self, member: Member) -> None:
        """Brings what is dealt to a member: over the network what its host does not have, then to memory.

        Raises:
            ClusterError: its host cannot keep a piece.
        """
        wanted = sorted(member.dealt - member.loaded, key=lambda piece: piece.span)
        for first in range(0, len(wanted), _AT_ONCE):
            await self._bring(member, wanted[first : first + _AT_ONCE])
        self.dealing.count()
        member.take_dealt()

    async def _bring(self, member: Member, wanted: Sequence[Piece]) -> None:
        missing = set(await self._call(member, "missing", names=[piece.name for piece in wanted]))
        await self._ship(member, [piece for piece in wanted if piece.name in missing])
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
