"""The installation of packages into the environment of one host.

It goes on where it was broken off: wheels that have arrived stay there until all is installed, and an environment
whose installation did not complete, as the file `unfinished` beside it says, is recreated.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import asyncssh

from rudel.cluster import ssh
from rudel.cluster.commands import follow
from rudel.cluster.hosts import REMOTE_FOLDER, REMOTE_PYTHON, Host
from rudel.cluster.own_wheel import OwnWheel
from rudel.cluster.probe import RECORD, UNFINISHED, Interpreter
from rudel.cluster.uploads import uploads
from rudel.cluster.wheels import Wheel
from rudel.errors import HostError

_WHEELS = f"{REMOTE_FOLDER}/wheels"
_ENVIRONMENT = f"{REMOTE_FOLDER}/env"
_INDEX_SECONDS = 25
_SMALL = ("zict", "toolz", "click")
_FREE = 'df -Pk . | { read -r _; read -r _ _ _ free _; echo "free $free"; }'


@dataclass(frozen=True)
class Stage:
    """The progress of the set-up of a host.

    Args:
        text: what it does, in a few words.
        done: bytes that have arrived there, where it sends some.
        total: bytes to be sent.
    """

    text: str
    done: int = 0
    total: int = 0


@dataclass
class Installation:
    """Steps of an installation, in the order in which they are to be taken.

    Every step raises a HostError where it fails. The first makes the folder for wheels.

    Args:
        host: for the sentences.
        connection: to it.
        python: of which the environment is made.
        pip: the wheel of pip.
        recreate: whether to create the environment again; else it is there, with pip in it.
        on_stage: called when a stage begins, and while files are sent.
    """

    host: Host
    connection: asyncssh.SSHClientConnection
    python: Interpreter
    pip: Wheel
    recreate: bool
    on_stage: Callable[[Stage], None]
    sent: int = field(default=0, init=False)

    async def begin(self) -> None:
        """Makes the folder for wheels, and sends pip where the environment has none."""
        async with uploads(self.connection) as files:
            await files.make_folder(_WHEELS)
        if self.recreate:
            await self.send([self.pip])

    async def has_index(self, pins: dict[str, str]) -> bool:
        """Whether the host can fetch a small one of the packages by itself, with its own settings of pip."""
        self.on_stage(Stage("trying the package index"))
        name = next((name for name in _SMALL if name in pins), next(iter(pins)))
        script = (
            f"folder=$(mktemp -d)\n{self._pip_there} download --quiet --no-deps "
            f'--no-cache-dir --retries 0 --timeout 6 --dest "$folder" {name}=={pins[name]}\n'
            'status=$?\nrm -rf "$folder"\nexit $status\n'
        )
        try:
            await self._sh(script, "", _INDEX_SECONDS)
        except HostError:
            return False
        return True

    async def make_environment(self) -> int:
        """Creates the environment with pip in it where `recreate` is set, and marks it as unfinished.

        Returns:
            Free bytes of disk.
        """
        self.on_stage(Stage("making the environment"))
        packages = f"{_ENVIRONMENT}/lib/python{self.python.minor}/site-packages"
        make = (
            f"rm -rf {_ENVIRONMENT} || {{ sleep 1; rm -rf {_ENVIRONMENT}; }}\n"  # a broken-off one may still write
            f"{shlex.quote(self.python.path)} -m venv --without-pip {_ENVIRONMENT}\n"
            f"{REMOTE_PYTHON} -m zipfile -e {_WHEELS}/{self.pip.path.name} {packages}\n"
        )
        script = f"set -e\n: > {UNFINISHED}\nrm -f {RECORD}\n{make if self.recreate else ''}{_FREE}\n"
        said = await self._sh(script, "the environment cannot be made")
        return 1024 * int(said.rsplit("free ", 1)[1])

    async def send(self, wheels: Sequence[Wheel]) -> None:
        """Sends wheels, but those that are there."""
        async with uploads(self.connection) as files:
            there = {name: found.size for name, found in (await files.there(_WHEELS)).items()}
            missing = [wheel for wheel in wheels if there.get(wheel.path.name) != wheel.size]
            total, done = sum(wheel.size for wheel in missing), 0

            def sent(count: int) -> None:
                nonlocal done
                done += count
                self.sent += count
                self.on_stage(Stage("sending wheels", done, total))

            for wheel in missing:
                count = await files.upload(wheel.path, f"{_WHEELS}/{wheel.path.name}", sent, resume=True)
                done += wheel.size - count

    async def from_index(self, pins: dict[str, str]) -> None:
        """Installs versions that the host fetches by itself."""
        wanted = " ".join(f"{name}=={version}" for name, version in pins.items())
        await self._pip(f"--no-cache-dir --only-binary=:all: --retries 3 {wanted}", len(pins))

    async def from_here(self, wheels: Sequence[Wheel], own: OwnWheel) -> None:
        """Sends wheels, and Rudel's own, and installs each only if it is the very one that is here."""
        await self.send(wheels)
        lines = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels]
        lines.append(f"rudel=={own.version} --hash=sha256:{own.sha256}\n")
        async with uploads(self.connection) as files:
            count = await files.upload(own.content, f"{_WHEELS}/{own.name}")
            self.sent += count
            await files.upload("".join(lines).encode(), f"{_WHEELS}/requirements.txt")
        options = f"--isolated --no-index --find-links {_WHEELS} --require-hashes -r {_WHEELS}/requirements.txt"
        try:
            await self._pip(options, len(lines))
        except _DamagedError:
            await self._sh(f"cd {_WHEELS} && rm -f {' '.join(wheel.path.name for wheel in wheels)}", "")
            await self.send(wheels)
            await self._pip(options, len(lines))

    async def finish(self, record: str) -> None:
        """Writes down what was installed, and removes the wheels."""
        async with uploads(self.connection) as files:
            await files.upload(record.encode(), RECORD)
        await self._sh(f"rm -rf {_WHEELS} {UNFINISHED}", "the wheels cannot be removed")

    @property
    def _pip_there(self) -> str:
        """The pip of the environment, or the one that was sent, run from its wheel."""
        if not self.recreate:
            return f"{REMOTE_PYTHON} -m pip"
        return f"{shlex.quote(self.python.path)} {_WHEELS}/{self.pip.path.name}/pip"

    async def _pip(self, options: str, count: int) -> None:
        self.on_stage(Stage(f"installing {count} packages" if count > 1 else "installing Rudel"))
        said: list[str] = []

        def on_line(line: str, bad: bool) -> None:
            words = line.split()
            if words[:1] == ["Downloading"] and len(words) > 1:
                self.on_stage(Stage(f"downloading {words[1].rsplit('/', 1)[-1].split('-')[0]}"))
            if bad:
                said.append(line)

        command = (
            f"PIP_DISABLE_PIP_VERSION_CHECK=1 {REMOTE_PYTHON} -m pip install --no-deps --no-compile --force-reinstall "
            f"--progress-bar=off --no-input {options} </dev/null"
        )
        if await follow(self.connection, f"sh -c '{command}'", on_line):
            text = "\n".join(said)
            kind = _DamagedError if "DO NOT MATCH THE HASHES" in text else HostError
            raise kind(self._failed("the packages cannot be installed", text))

    async def _sh(self, script: str, what: str, timeout: float | None = None) -> str:
        done = await ssh.run(self.connection, "sh -s", input=f"{{\n{script}\n}} </dev/null\n".encode(), timeout=timeout)
        if done.exit_status:
            raise HostError(self._failed(what, done.stderr.decode(errors="replace")))
        return done.stdout.decode(errors="replace")

    def _failed(self, what: str, said: str) -> str:
        if "No space left on device" in said or "Disk quota exceeded" in said:
            return f"The disk of `{self.host}` is full: make space in the home folder and set it up again."
        lines = [line for line in said.splitlines() if line.strip()] or ["it does not say why"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR:")), lines[-1])
        return f"On `{self.host}` {what} ({reason.removeprefix('ERROR:').strip().rstrip('.')})."


class _DamagedError(HostError):
    """A wheel that arrived is not the one that was sent."""
