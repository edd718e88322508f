"""Packages that a host needs, at exactly the versions that are installed here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.version import InvalidVersion, Version

from rudel.cluster.probe import Facts, Interpreter, normalised

WORKER_PACKAGES = ("jax", "jaxlib", "numpy", "distributed", "cryptography", "flatbuffers")
"""Packages that a worker needs besides Rudel itself."""

_OLDEST_GLIBC_MINOR = 5
_LEGACY_PLATFORMS = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}


@dataclass(frozen=True)
class Target:
    """The kind of computer and Python that packages are for.

    Args:
        machine: such as `aarch64`.
        python: minor version, such as `3.11`.
        libc: version of glibc.
    """

    machine: str
    python: str
    libc: tuple[int, int]

    @classmethod
    def of(cls, facts: Facts, python: Interpreter) -> "Target":
        """The target that a host is."""
        assert facts.libc is not None
        return cls(facts.machine, python.minor, facts.libc)

    def __str__(self) -> str:
        return f"{self.machine}, Python {self.python}, glibc {self.libc[0]}.{self.libc[1]}"

    @property
    def abi(self) -> str:
        """Such as `cp311`."""
        return f"cp{self.python.replace('.', '')}"

    @property
    def platforms(self) -> list[str]:
        """Tags of the platforms whose wheels run there, the newest first."""
        found = []
        for minor in range(self.libc[1], _OLDEST_GLIBC_MINOR - 1, -1):
            found.append(f"manylinux_{self.libc[0]}_{minor}_{self.machine}")
            if minor in _LEGACY_PLATFORMS:
                found.append(f"{_LEGACY_PLATFORMS[minor]}_{self.machine}")
        return [*found, f"linux_{self.machine}"]

    def tags(self) -> set[Tag]:
        """Tags of all wheels that can be installed there."""
        version = tuple(int(number) for number in self.python.split("."))
        found = set(cpython_tags(version, [self.abi], self.platforms))
        return found | set(compatible_tags(version, self.abi, self.platforms))

    def markers(self) -> dict[str, str]:
        """The environment in which markers of requirements are evaluated."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }


def find_pins(target: Target, minimal: bool, look_up: Callable[[Requirement], tuple[str, list[str]]]) -> dict[str, str]:
    """Everything to be installed beside Rudel, by following what each package requires.

    Args:
        target: where it is to run; it may require packages that this computer does not need.
        minimal: only what a worker needs, without Keras, Matplotlib, scikit-learn and the command line.
        look_up: the version to be used, and what it requires, of a package that is not installed here.

    Returns:
        Versions by normalised names, in the order of the names.
    """
    versions: dict[str, str] = {}
    roots = [Requirement(name) for name in WORKER_PACKAGES]
    if not minimal:
        roots += _required(metadata.requires("rudel") or [], frozenset(), target)
    waiting = [(normalised(root.name), root) for root in roots]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, requirement = waiting.pop()
        key = (name, frozenset(requirement.extras))
        if key in done:
            continue
        done.add(key)
        try:
            package = metadata.distribution(name)
            versions[name], requires = package.version, package.requires or []
        except metadata.PackageNotFoundError:
            versions[name], requires = look_up(requirement)
        waiting += [(normalised(r.name), r) for r in _required(requires, frozenset(requirement.extras), target)]
    versions.pop("rudel", None)
    return dict(sorted(versions.items()))


def worker_pins(target: Target) -> dict[str, str]:
    """Versions here of what a worker needs there; what it needs there alone is left out."""
    pins = find_pins(target, True, lambda requirement: ("", []))
    return {name: version for name, version in pins.items() if version}


def faults(facts: Facts, pins: dict[str, str]) -> dict[str, str]:
    """Faults of the packages in a host's environment, in words that follow the name of each.

    Args:
        facts: of the host.
        pins: versions that it is to have; of Rudel itself, only the files are looked at.
    """
    found = {}
    for name, version in pins.items():
        there = facts.installed.get(name)
        if there is None:
            found[name] = "is missing"
        elif not same_version(there, version):
            found[name] = f"is {there} and not {version}"
    return {name: "is damaged" for name in facts.damaged if name in pins or name == "rudel"} | found


def same_version(one: str | None, other: str) -> bool:
    """Whether two versions are equal, however they are written; None is none."""
    if one is None:
        return False
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


def _required(texts: Iterable[str], extras: frozenset[str], target: Target) -> list[Requirement]:
    found = []
    for text in texts:
        requirement = Requirement(text)
        for extra in extras or {""}:
            if requirement.marker is None or requirement.marker.evaluate({**target.markers(), "extra": extra}):
                found.append(requirement)
                break
    return found
