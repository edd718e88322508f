"""`HostCalls`: what a coordinator asks of replicas on their hosts, and how many bytes travel for it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rudel.cluster.fleet import NoLineError, error_of
from rudel.replicas.members import Member
from rudel.replicas.replica_messages import Answer, Merge, Plan, Snapshot, packed_request, unpacked_answer

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet


class HostCalls:
    """See the module.

    Args:
        fleet: the workers.

    Attributes:
        sent, received: payload bytes to and from all replicas.
    """

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        self.sent = self.received = 0

    async def call(self, member: Member, operation: str, timeout: float | None = None, **message: object) -> Any:
        """Calls an operation of a replica's service; see `Fleet.call` for what it raises."""
        return await self._fleet.call(member.address, operation, timeout=timeout, **message)

    async def exchange(
        self, member: Member, number: int, plans: Sequence[tuple[int, Plan]], merges: Sequence[tuple[int, Merge]]
    ) -> Answer:
        """Hands a replica plans and merges by the number of their round; returns its answer of one round.

        Raises:
            OSError: the network failed.
            RudelError: the replica raised it.
            OperationError: it failed by another error.
        """
        self.count_sent(member, sum(merge.nbytes for _, merge in merges) + sum(len(plan.rates) for _, plan in plans))
        request = packed_request(number, plans, merges)
        while True:
            try:
                message = await self._fleet.ask(member.address, request)
            except NoLineError:
                message = await self.call(member, "exchange", request=request)
            answered, fields = unpacked_answer(message)
            if "error" in fields:
                raise error_of(fields, member.name)
            if answered == number:
                answer = Answer(**fields)
                self.received, member.received = self.received + answer.nbytes, member.received + answer.nbytes
                return answer
            request = packed_request(number, [], [])  # that was of a round before the replica began again

    async def restore(self, member: Member, snapshot: Snapshot, timeout: float) -> None:
        """Sends a replica a snapshot to begin from."""
        self.count_sent(member, snapshot.nbytes)
        await self.call(member, "restore", timeout=timeout, snapshot=vars(snapshot))

    def count_sent(self, member: Member, count: int) -> None:
        """Counts bytes on their way to a replica."""
        self.sent, member.sent = self.sent + count, member.sent + count
