"""Which modules are the user's own: those that travel to hosts by value."""

import importlib
import sys
from pathlib import Path

import pytest

from rudel.shipping.user_code import own_modules


def test_modules_are_the_users_unless_packages_are_installed_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some installers fill packages with links to files that they keep elsewhere; a folder may be a link, too."""
    kept, packages, own, linked = (tmp_path / name for name in ("kept", "site-packages", "own", "linked"))
    for folder in (kept, packages, own):
        folder.mkdir()
    linked.symlink_to(packages)
    (kept / "a.py").touch()
    (packages / "rudel_test_linked.py").symlink_to(kept / "a.py")
    (packages / "rudel_test_installed.py").touch()
    (own / "rudel_test_own.py").touch()
    (own / "rudel_test_own_link.py").symlink_to(kept / "a.py")
    for folder in (own, linked):
        monkeypatch.syspath_prepend(folder)
    names = ["rudel_test_linked", "rudel_test_installed", "rudel_test_own", "rudel_test_own_link"]
    for name in names:
        importlib.import_module(name)
    found = {module.__name__ for module in own_modules()}
    for name in names:
        del sys.modules[name]
    assert found.intersection(names) == {"rudel_test_own", "rudel_test_own_link"}
