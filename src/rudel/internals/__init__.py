"""The private parts of other libraries that Rudel relies on, one module per library, and nowhere else.

Each module checks once, when it is imported, that every part exists and has the form that Rudel expects, and raises
`UnsupportedError` if not, so that a new release of a library stops a training with one sentence and does not change
what it computes. The upper bounds in `pyproject.toml` name the releases that were tested.

The modules are imported where they are used, after their library: this package alone imports nothing.
"""

from importlib.metadata import PackageNotFoundError, version

from rudel.errors import UnsupportedError


def require(package: str, parts: dict[str, bool]) -> None:
    """Checks the private parts of a library.

    Args:
        package: name of the distribution.
        parts: the private parts, and whether each is there in the form that is needed.

    Raises:
        UnsupportedError: one is not.

    >>> require("numpy", {"ndarray": True})
    """
    missing = [name for name, found in parts.items() if not found]
    if missing:
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "of an unknown version"
        raise UnsupportedError(
            f"{package} {installed} is not supported: Rudel relies on `{missing[0]}`, which is not there or works "
            f"differently; install the version that Rudel asks for: pip install 'rudel' '{package}!={installed}'."
        )


def mentions(function: object, *names: str) -> bool:
    """Whether the code of a function or property mentions all of these attributes and global names.

    >>> mentions(mentions, "getattr", "issubset"), mentions(None, "getattr")
    (True, False)
    """
    code = getattr(getattr(function, "fget", function), "__code__", None)
    return code is not None and set(names).issubset(code.co_names)
