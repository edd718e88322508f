"""The optimizer's slots of a replica, on their way to the coordinator by pieces, with the answers to rounds.

A checkpoint holds those of one replica, and one that joins begins with them. They are many times as long as a delta:
in one piece, the delta behind them would come so late on a slow link that its replica would count as lost.
"""

from rudel.replicas.replica_messages import Answer


class SlotsSender:
    """What a replica has still to send.

    Args:
        packed: slots, as an `Answer` has them.
        most: bytes of a piece.
    """

    def __init__(self, packed: bytes, most: int) -> None:
        self._packed, self._most, self._first = packed, most, 0

    def next(self) -> tuple[bytes, int, int]:
        """The next piece, the number of bytes before it, and of all; an empty piece once all are sent.

        >>> sender = SlotsSender(b"slots", 3)
        >>> sender.next(), sender.next(), sender.next()
        ((b'slo', 0, 5), (b'ts', 3, 5), (b'', 5, 5))
        """
        first = self._first
        piece = self._packed[first : first + self._most]
        self._first += len(piece)
        return piece, first, len(self._packed)


class SlotsReceiver:
    """Slots that the coordinator gets, of one replica at a time.

    Args:
        newest: packed slots to begin with.

    Attributes:
        newest: packed slots, the last that came whole; None where there are none.
    """

    def __init__(self, newest: bytes | None = None) -> None:
        self.newest, self._unreported = newest, False
        self._wanted = 0
        self._giver: str | None = None
        self._pieces = bytearray()

    def want(self, most: int) -> None:
        """Asks for a replica's slots, unless some are on their way; can be called from any thread.

        Args:
            most: bytes of a piece.
        """
        if self._giver is None:
            self._wanted = max(self._wanted, most)

    def ask(self, name: str) -> int:
        """The bytes of a piece of this replica's slots; 0 where none are wanted."""
        wanted, self._wanted = self._wanted, 0
        if wanted:
            self._giver, self._pieces = name, bytearray()
        return wanted

    def take(self, name: str, answer: Answer) -> None:
        """Takes what a replica's answer holds."""
        if name != self._giver or not answer.slots or answer.slots_first != len(self._pieces):
            return
        self._pieces += answer.slots
        if len(self._pieces) == answer.slots_size:
            self.newest, self._unreported = bytes(self._pieces), True
            self.lose(name)

    def news(self) -> bytes | None:
        """The newest slots, if they have come since this was asked last."""
        unreported, self._unreported = self._unreported, False
        return self.newest if unreported else None

    def lose(self, name: str) -> None:
        """A replica is lost, and what it has not sent."""
        if name == self._giver:
            self._giver, self._pieces = None, bytearray()
