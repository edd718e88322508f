"""What is installed of what Rudel asks for, as the metadata of the package say it."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


@dataclass(frozen=True)
class Package:
    """A package that Rudel, or one of its extras, asks for.

    Args:
        name: as the package index has it.
        wanted: versions that do, such as `>=0.10.0`.
        installed: its version; None where it is not installed.
        fits: whether that version does.
    """

    name: str
    wanted: str
    installed: str | None
    fits: bool


def packages_of(extra: str = "") -> tuple[Package, ...]:
    """The packages that Rudel itself asks for, or one of its extras, on this kind of computer."""
    return tuple(look(asked) for asked in _asked(requires("rudel") or (), extra))


def look(asked: Requirement) -> Package:
    """Whether a requirement is met."""
    try:
        installed = version(asked.name)
    except PackageNotFoundError:
        return Package(asked.name, str(asked.specifier), None, fits=False)
    fits = asked.specifier.contains(installed, prereleases=True)
    return Package(asked.name, str(asked.specifier), installed, fits)


def _asked(texts: Iterable[str], extra: str) -> list[Requirement]:
    """Requirements of an extra: those that do not hold without it."""
    found = []
    for text in texts:
        asked = Requirement(text)
        without = asked.marker is None or asked.marker.evaluate({"extra": ""})
        holds = asked.marker is None or asked.marker.evaluate({"extra": extra})
        if holds and (not extra or not without):
            found.append(asked)
    return found


def unfit(extra: str = "") -> tuple[Package, ...]:
    """Those of them that are missing or of another version than is asked for."""
    return tuple(package for package in packages_of(extra) if not package.fits)
