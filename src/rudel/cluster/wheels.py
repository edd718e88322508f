"""Wheels for the platforms of hosts, fetched once on this computer into Rudel's cache.

pip does the fetching, by whatever index, mirror and proxy it is configured for here. It evaluates the markers of
requirements for the Python that it runs in, so it is called for exact versions, one file each, and never for what these
require (see `pins`).
"""

import asyncio
import contextlib
import hashlib
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.parser import Parser
from functools import cached_property
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from rudel.cache import cache_folder
from rudel.cluster.pins import Target
from rudel.cluster.probe import normalised
from rudel.errors import HostError

_PIP_TAGS = frozenset({Tag("py3", "none", "any"), Tag("py2.py3", "none", "any")})


@dataclass(frozen=True)
class Wheel:
    """A wheel on this computer.

    Args:
        path: of the file.
        name: of the package, normalised.
        version: of the package.
    """

    path: Path
    name: str
    version: str

    @cached_property
    def size(self) -> int:
        """In bytes."""
        return self.path.stat().st_size

    @cached_property
    def unpacked(self) -> int:
        """Bytes of what is in it."""
        with zipfile.ZipFile(self.path) as archive:
            return sum(entry.file_size for entry in archive.infolist())

    @cached_property
    def sha256(self) -> str:
        """Of the file, in hexadecimal digits."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def cached_wheels(target: Target) -> dict[tuple[str, str], Wheel]:
    """The wheels that are there for a target, by name and version."""
    return _wheels_in(_folder(target), frozenset(target.tags()))


async def fetch_wheels(target: Target, pins: dict[str, str], on_progress: Callable[[str], None]) -> list[Wheel]:
    """Wheels of the given versions, from the cache or else from the package index.

    Args:
        target: where they are to run.
        pins: versions by normalised names.
        on_progress: called with a few words about what is being fetched.

    Raises:
        HostError: a version has no wheel for the target, or the index cannot be reached from here.
    """
    there = cached_wheels(target)
    missing = [f"{name}=={version}" for name, version in pins.items() if (name, version) not in there]
    if missing:
        on_progress(f"fetching {len(missing)} wheels for {target.machine}")
        await _download(missing, _folder(target), _options(target), str(target), on_progress)
        there = cached_wheels(target)
    lost = [f"{name} {version}" for name, version in pins.items() if (name, version) not in there]
    if lost:
        raise HostError(_no_wheel(lost[0], target))
    return [there[pin] for pin in pins.items()]


async def fetch_pip() -> Wheel:
    """The wheel of pip, for hosts whose Python has none: of the version here, else the newest, else Python's own.

    Raises:
        HostError: there is none here, and the index cannot be reached.
    """
    folder = _cache() / "pip"
    wanted = _installed_pip()
    there = _wheels_in(folder, _PIP_TAGS)
    for (_, version), wheel in sorted(there.items(), reverse=True):
        if wanted in (None, version):
            return wheel
    try:
        await _download([f"pip=={wanted}" if wanted else "pip"], folder, [], "every platform", lambda words: None)
    except HostError:
        if there:
            return there[max(there)]
        if bundled := _bundled_pip():
            return Wheel(bundled, "pip", bundled.name.split("-")[1])
        raise
    return max(_wheels_in(folder, _PIP_TAGS).items())[1]


async def look_up(requirement: Requirement, target: Target) -> tuple[str, list[str]]:
    """The version of a package that is not installed here, and what it requires.

    Raises:
        HostError: there is no wheel of it, or the index cannot be reached.
    """
    name = normalised(requirement.name)
    for wheel in cached_wheels(target).values():
        if wheel.name == name and requirement.specifier.contains(wheel.version):
            return wheel.version, _requires(wheel)
    text = f"{requirement.name}{requirement.specifier}"
    await _download([text], _folder(target), _options(target), str(target), lambda words: None)
    for wheel in cached_wheels(target).values():
        if wheel.name == name and requirement.specifier.contains(wheel.version):
            return wheel.version, _requires(wheel)
    raise HostError(_no_wheel(text, target))


def _cache() -> Path:
    return cache_folder() / "wheels"


def _folder(target: Target) -> Path:
    return _cache() / f"{target.machine}-{target.abi}"


def _options(target: Target) -> list[str]:
    options = ["--implementation=cp", f"--python-version={target.python}"]
    options += [f"--abi={abi}" for abi in (target.abi, "abi3", "none")]
    return options + [f"--platform={platform}" for platform in target.platforms]


def _wheels_in(folder: Path, tags: frozenset[Tag]) -> dict[tuple[str, str], Wheel]:
    found = {}
    for path in sorted(folder.glob("*.whl")):
        try:
            name, version, _, fits = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if fits & tags:
            found[str(name), str(version)] = Wheel(path, str(name), str(version))
    return found


async def _download(
    wanted: Sequence[str], folder: Path, options: Sequence[str], where: str, on_progress: Callable[[str], None]
) -> None:
    with _written(folder), tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as fresh:
        command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--progress-bar=off", "--no-input"]
        environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        process = await asyncio.create_subprocess_exec(
            *command, f"--dest={fresh}", *options, *wanted,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=environment,
        )  # fmt: skip
        try:
            status, problems = await _follow(process, on_progress)
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        if status:
            raise _download_failed(problems, where)
        for path in Path(fresh).glob("*.whl"):
            path.replace(folder / path.name)


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Makes a folder of the cache, into which a block writes.

    Raises:
        HostError: it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise HostError(
            f"Wheels for hosts cannot be kept in `{folder}` ({error.strerror}): make room there, or set RUDEL_CACHE to "
            "a folder that can be written."
        ) from error


async def _follow(process: asyncio.subprocess.Process, on_progress: Callable[[str], None]) -> tuple[int, str]:
    assert process.stdout
    assert process.stderr
    problems = asyncio.create_task(process.stderr.read())
    async for line in process.stdout:
        words = line.decode(errors="replace").split()
        if words[:1] == ["Downloading"] and len(words) > 1:
            on_progress(f"fetching {words[1].rsplit('/', 1)[-1].split('-')[0]}")
    return await process.wait(), (await problems).decode(errors="replace")


def _download_failed(problems: str, where: str) -> HostError:
    if missing := re.search(r"No matching distribution found for (\S+)", problems):
        if not re.search(r"from versions: (?!none)", problems) and "connection" in problems.lower():
            return HostError("The package index cannot be reached from this computer: check its network.")
        return HostError(_no_wheel(missing[1].replace("==", " "), where))
    last = (
        [line for line in problems.splitlines() if line.startswith("ERROR:")] or problems.splitlines() or ["no reason"]
    )
    return HostError(
        f"Wheels for {where} could not be fetched ({last[-1].removeprefix('ERROR:').strip().rstrip('.')})."
    )


def _no_wheel(what: str, where: object) -> str:
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    return (
        f"There is no wheel of {what}, the version here, for {where}: give the host {here}, as here, or another system."
    )


def _pip() -> list[str]:
    if _installed_pip():
        return [sys.executable, "-m", "pip"]
    if bundled := _bundled_pip():
        return [sys.executable, str(bundled / "pip")]
    raise HostError("There is no pip here that could fetch wheels for hosts: install it with `python -m ensurepip`.")


def _installed_pip() -> str | None:
    try:
        return metadata.version("pip")
    except metadata.PackageNotFoundError:
        return None


def _bundled_pip() -> Path | None:
    """Python's own wheel of pip; Debian keeps it elsewhere."""
    folders = [Path("/usr/share/python-wheels")]
    with contextlib.suppress(ImportError):  # on Debian, it is a part of python3-venv
        import ensurepip

        folders.insert(0, Path(ensurepip.__file__).parent / "_bundled")
    found = sorted(path for folder in folders for path in folder.glob("pip-*.whl"))
    return found[-1] if found else None


def _requires(wheel: Wheel) -> list[str]:
    with zipfile.ZipFile(wheel.path) as archive:
        name = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []
