"""Installed versions of the packages that Rudel requires by its metadata."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING

from rudel.errors import DoctorError
from rudel.shipping.host_packages import installed_version

if TYPE_CHECKING:
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
    """The packages that Rudel itself asks for, or one of its extras, on this kind of computer.

    Raises:
        DoctorError: Rudel's own metadata, which say so, are not there.
    """
    try:
        texts = requires("rudel") or ()
    except PackageNotFoundError as error:
        raise DoctorError(
            "Rudel's own metadata are missing: install it again by `pip install --force-reinstall rudel`."
        ) from error
    return tuple(describe(requirement) for requirement in _requirements(texts, extra))


def describe(requirement: "Requirement") -> Package:
    """Whether a requirement is met."""
    installed = installed_version(requirement.name)
    fits = installed is not None and requirement.specifier.contains(installed, prereleases=True)
    return Package(requirement.name, str(requirement.specifier), installed, fits)


def _requirements(texts: Iterable[str], extra: str) -> "list[Requirement]":
    """Requirements of an extra: those that do not hold without it."""
    from packaging.requirements import Requirement

    found = []
    for text in texts:
        requirement = Requirement(text)
        without = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        holds = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if holds and (not extra or not without):
            found.append(requirement)
    return found


def unfit(extra: str = "") -> tuple[Package, ...]:
    """Those of them that are missing or of another version than is required."""
    return tuple(package for package in packages_of(extra) if not package.fits)
