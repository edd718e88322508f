"""One worker on one host: started over SSH, watched, started again when it was lost."""

import asyncio
import contextlib
import json
import logging
import re
import shlex
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from rudel.cluster.certificates import Identity
from rudel.cluster.hosts import COMPUTER, Host, remote_python
from rudel.cluster.ssh import address_of, connect, ended
from rudel.cluster.suitability import problem_of_address
from rudel.errors import ClusterError, HostError, RudelError
from rudel.retry_policy import RetryPolicy

START_SECONDS = 120.0
"""Time for a worker to start: a Raspberry Pi reads a good hundred megabytes from its card."""

_SILENCE = (15, 8)
"""Seconds between questions to a host that is silent, and how many of them may stay unanswered: two minutes, so that a
Wi-Fi that comes back finds its worker at work."""

_RETRY = RetryPolicy(first_delay=1.0, longest_delay=8.0)
"""Seconds before another try to start a worker that was lost."""

_log = logging.getLogger("rudel.cluster")

_CANNOT_IMPORT = re.compile(r"^(?:ModuleNotFoundError|ImportError): (.+)", re.MULTILINE)


@dataclass(eq=False)
class Launch:
    """Keeps a worker running on a host.

    Args:
        host: where.
        identity: its certificate and key.
        order: the rest of what `rudel.cluster.worker` reads.
        port: of the scheduler.
        ssh_config: in the place of `~/.ssh/config`.
        twin: another host of the cluster that is the same computer as this one, or None.
    """

    host: Host
    identity: Identity
    order: dict[str, Any]
    port: int
    ssh_config: Path | None
    twin: Callable[["Launch"], Host | None]
    address: str | None = None
    computer: str = ""
    lost: int = 0
    refused: bool = False
    trouble: str = ""
    _output: deque[str] = field(default_factory=lambda: deque(maxlen=40))
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def started(self) -> None:
        """Starts the worker for the first time, and keeps it running until `run` is cancelled.

        Raises:
            HostError: the host cannot be reached or used.
            ClusterError: the worker does not start.
        """
        self._connection = await connect(self.host, self.ssh_config)
        try:
            self._check_address()
            self._process = await self._launch()
            await self._until_ready()
        except (asyncssh.Error, OSError) as error:
            self._connection.abort()
            raise ClusterError(
                f"The worker on `{self.host}` could not be started ({str(error) or type(error).__name__}): "
                "can commands be run there over SSH?"
            ) from error
        except BaseException:
            self._connection.abort()
            raise

    async def keep(self) -> None:
        """Waits until the worker ends, starts it again, and so on, for ever; says once why it cannot be started."""
        failures = 0
        while not self.refused:
            if self.address is not None:
                began = time.monotonic()
                with contextlib.suppress(asyncssh.Error, OSError):  # the connection broke off
                    await self._until_ended()
                self.address, self.lost = None, self.lost + 1
                self._connection.abort()
                if time.monotonic() - began > 60:
                    failures = 0
            await asyncio.sleep(_RETRY.delay(failures + 1))
            failures += 1
            try:
                await self.started()
            except (HostError, ClusterError) as error:
                self.absent(error)
                continue
            if twin := self.twin(self):
                self.absent(await self.refuse(twin))

    def absent(self, error: RudelError) -> None:
        """Remembers why the host does not take part, and logs it unless that is known already."""
        if self.trouble != str(error):
            self.trouble = str(error)
            _log.warning("%s does not take part: %s", self.host, error)

    async def refuse(self, twin: Host) -> HostError:
        """Ends the worker for good, as the computer has one by another name; returns what to say."""
        self.refused = True
        await self.stop()
        return HostError(f"`{self.host}` is the same computer as `{twin}`: give each computer once.")

    async def stop(self) -> None:
        """Ends the worker."""
        connection = getattr(self, "_connection", None)
        if connection is None:
            return
        self.address = None
        process = getattr(self, "_process", None)
        if process is not None and process.exit_status is None and not connection.is_closed():
            process.stdin.write_eof()
            with contextlib.suppress(asyncssh.Error, OSError):  # it takes too long, or the connection broke off
                async with asyncio.timeout(3):
                    await self._until_ended()
        await ended(connection, connection.abort)

    def _check_address(self) -> None:
        """Refuses a connection without an address, and a link-local one: it means something else to other hosts.

        Raises:
            HostError: it is one of these.
        """
        if sentence := problem_of_address(self.host, address_of(self._connection)):
            raise HostError(sentence)

    async def _launch(self) -> asyncssh.SSHClientProcess[bytes]:
        connection = self._connection
        connection.set_keepalive(*_SILENCE)
        here, there = (connection.get_extra_info(name)[0] for name in ("sockname", "peername"))
        order = self.order | {
            "identity": vars(self.identity),
            "scheduler": f"rudel://{_bracketed(here)}:{self.port}",
            "address": _bracketed(there),
            "name": str(self.host),
        }
        python = remote_python(self.host)
        tell = f'printf \'\\n{{"computer": "%s"}}\\n\' "$({COMPUTER} 2>/dev/null)"'
        command = f"exec sh -c {shlex.quote(f'{tell}; exec {python} -m rudel.cluster.worker')}"
        process = await connection.create_process(command, encoding=None)
        with contextlib.suppress(BrokenPipeError):  # it has ended already, and `_failed` says why
            process.stdin.write(json.dumps(order).encode() + b"\n")
        return process

    async def _until_ready(self) -> None:
        self._ready.clear()
        self._output.clear()
        errors = asyncio.create_task(self._collect_errors(self._process))
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._read_until_ready()
        except TimeoutError as error:
            raise ClusterError(
                f"The worker on `{self.host}` did not start within {START_SECONDS:g} s: it must be able to reach this "
                f"computer at {self._connection.get_extra_info('sockname')[0]}, port {self.port}; is there a firewall?"
            ) from error
        if self.address is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await asyncio.gather(errors, self._process.wait_closed())
            raise self._failed()

    async def _read_until_ready(self) -> None:
        async for line in self._process.stdout:
            message = self._read_message(line)
            if message.get("event") == "clock":
                raise _wrong_clock(self.host, message["time"] - time.time())
            if "computer" in message:
                self.computer = message["computer"]
            if message.get("event") == "ready":
                self.address, self.trouble = message["address"], ""
                return

    async def _until_ended(self) -> None:
        async for line in self._process.stdout:
            self._read_message(line)
        await self._process.wait_closed()

    def _read_message(self, line: bytes) -> dict[str, Any]:
        """Reads a message from a line of the worker; lines of its log are kept, and any other text."""
        text = line.decode(errors="replace").rstrip()
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self._output.append(text)
            return {}
        if message.get("event") == "refused":
            _log.warning("%s: %s", self.host, message["text"])
        if message.get("event") == "log":
            self._output.append(message["text"])
            _log.info("%s: %s", self.host, message["text"])
        return message

    async def _collect_errors(self, process: asyncssh.SSHClientProcess[bytes]) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):  # the connection broke off
            async for line in process.stderr:
                text = line.decode(errors="replace").rstrip()
                self._output.append(text)
                if self.address is not None and text:
                    _log.warning("%s: %s", self.host, text)

    def _failed(self) -> ClusterError | HostError:
        said = "\n".join(self._output)
        failed = _CANNOT_IMPORT.findall(said)
        if self._process.exit_status == 127 or failed or "No module named" in said:
            why = f" ({failed[-1].rstrip('.')})" if failed else ""
            return HostError(
                f"`{self.host}` has no Rudel, or an incomplete one{why}: run `rudel hosts setup {self.host}` first."
            )
        last = next((line for line in reversed(self._output) if line.strip()), "it said nothing")
        return ClusterError(f"The worker on `{self.host}` ended at once: {last.strip()}")


def _wrong_clock(host: Host, ahead: float) -> ClusterError:
    days, hours = divmod(round(abs(ahead) / 3600), 24)
    return ClusterError(
        f"The clock of `{host}` is {days:,} days and {hours} hours {'ahead of' if ahead > 0 else 'behind'} the one of "
        "this computer, so certificates are not valid there: set the clock that is wrong (`sudo timedatectl set-ntp "
        "true`), and try again."
    )


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
