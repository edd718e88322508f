"""The command line, run in this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rudel.cli import main


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one sentence of a refused command."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert "Traceback" not in self.err
        return self.err.strip().splitlines()[-1]


@pytest.fixture
def rudel(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Runs `rudel ARGUMENTS` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["rudel", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            main.run()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def digits_run(made_once: Callable[..., Path]) -> Path:
    """What `rudel train digits --epochs 1` leaves."""

    def train(run: Path) -> None:
        import rudel

        rudel.train_recipe("digits", epochs=1, run=run, verbose=False)

    return made_once("digits of an epoch", train)
