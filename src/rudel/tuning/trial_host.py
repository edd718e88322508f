"""A computer on which trials run, as a sweep speaks with it: in whole messages, which travel slice by slice.

A computer is silent if it does not answer to a slice in time, so a checkpoint may take as long as the network needs.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgpack

from rudel.mesh.hosts.channel import slices
from rudel.tuning.trial_process import HEADER, length_of, pack

_SILENT_SECONDS = 15.0
"""A computer that has not answered for so long is lost."""

_LOAD_SECONDS = 600.0


class TrialHost:
    """See the module. All methods raise what `call` raises.

    Args:
        call: calls an operation of its `TrialService`; with `timeout`, seconds, and the arguments of the operation.
    """

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call
        self._heard = bytearray()

    async def load(self, objective: bytes) -> None:
        """Brings it the objective, pickled; a trial that still runs there is ended."""
        await self._call("load", timeout=_LOAD_SECONDS, objective=objective)

    async def begin(self, number: int, settings: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """Begins a trial, from these checkpoints where there are some."""
        self._heard.clear()
        await self._call("begin", timeout=_SILENT_SECONDS)
        await self.answer(number=number, settings=settings, files=files)

    async def answer(self, **message: Any) -> None:
        """Answers the trial's request."""
        for content in slices(pack(message)):
            await self._call("say", timeout=_SILENT_SECONDS, content=content)

    async def next(self) -> dict[str, Any]:
        """Waits for the next event of the trial; the end of its process is one, `died`."""
        while (event := self._event()) is None:
            answer = await self._call("hear", timeout=_SILENT_SECONDS)
            if "died" in answer:
                return {"kind": "died", "text": answer["died"]}
            self._heard += answer["content"]
        return event

    def _event(self) -> dict[str, Any] | None:
        """Takes the first message out of what was heard; None while it is not whole."""
        if len(self._heard) < HEADER:
            return None
        end = HEADER + length_of(bytes(self._heard[:HEADER]))
        if len(self._heard) < end:
            return None
        message: Any = msgpack.unpackb(memoryview(self._heard)[HEADER:end])
        del self._heard[:end]
        return message
