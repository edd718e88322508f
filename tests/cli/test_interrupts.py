"""Ctrl-C, wherever the main thread happens to be."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import LONG, started

LOST = {
    "collector": "gc.callbacks.append(lambda phase, info: interrupt()); gc.collect()",
    "end of an object": "object_ = type('Ending', (), {'__del__': lambda self: interrupt()})(); del object_",
}


@pytest.mark.parametrize("where", LOST)
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM], ids=lambda by: by.name)
def test_an_interrupt_that_nobody_could_catch_comes_again(where: str, by: signal.Signals) -> None:
    script = f"""
import gc, itertools, signal
from rudel.cli import interrupts

gc.disable()
calls = itertools.count()
def interrupt():
    if next(calls) < 2:  # the collector's callback is called at its begin and its end: both are lost
        signal.raise_signal({by})

if {by} == signal.SIGTERM:  # as with `rudel play &` in a script
    signal.signal(signal.SIGINT, signal.SIG_IGN)
interrupts._SOON = 1.0  # after "lost" has been printed, on a busy computer, too
interrupts.end_on_sigterm()
interrupts.insist_on_interrupts()
try:
    {LOST[where]}
    print("lost", flush=True)
    signal.sigtimedwait([], 60)
except KeyboardInterrupt:
    print("caught")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["lost", "caught"], "", 0)


WITHOUT_INTERRUPTS = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
"""A command before another, which then ignores SIGINT from its start."""


def test_tests_of_interrupts_do_not_hang_where_they_are_ignored() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", __file__, "-k", "comes_again"]
    done = subprocess.run([*WITHOUT_INTERRUPTS, *command], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout


TRAIN = [sys.executable, "-c", "from rudel.cli.main import run; run()", "train", "digits", "--epochs", "1000000"]


def until_measured(run: Path, more: int) -> int:
    """Waits until a training has written so many lines of metrics; how many there are."""
    deadline, lines = time.monotonic() + LONG, 0
    while lines < more:
        assert time.monotonic() < deadline, "the training does not go on"
        time.sleep(0.02)
        lines = (run / "metrics.jsonl").read_text().count("\n") if (run / "metrics.jsonl").exists() else 0
    return lines


def test_sigterm_ends_a_training_with_a_word_though_interrupts_are_ignored(tmp_path: Path) -> None:
    run = tmp_path / "first run"
    with started([*WITHOUT_INTERRUPTS, *TRAIN, "--run", run], stderr=subprocess.PIPE) as process:
        lines = until_measured(run, 1)
        process.send_signal(signal.SIGINT)
        until_measured(run, lines + 2)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=LONG)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert "Interrupted after" in errors
    assert f"continue by `rudel resume '{run}'`, or with --run '{run}' --resume" in errors
    assert list((run / "checkpoints").iterdir())


def test_sigterm_ends_what_waits_for_hosts_with_a_word(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"Host slow\n  ProxyCommand sh -c 'touch {tmp_path}/begun; exec sleep 1000'\n")
    command = [sys.executable, "-c", "from rudel.cli.main import run; run()", "hosts", "setup", "slow"]
    with started([*command, "--ssh-config", tmp_path / "config"], stderr=subprocess.PIPE) as process:
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=LONG)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert errors.splitlines()[-1] == "Ended by SIGTERM."


def test_what_else_is_lost_is_told_as_usual() -> None:
    script = """
from rudel.cli.interrupts import insist_on_interrupts
insist_on_interrupts()
ending = type("Ending", (), {"__del__": lambda self: 1 / 0})()
del ending
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "ZeroDivisionError" in done.stderr


STARTING = """
import signal, sys
from rudel.cli.main import run

class Importing:
    def find_spec(self, name, path=None, target=None):
        if name == "MODULE":
            sys.meta_path.remove(self)
            try:
                signal.raise_signal(NUMBER)
            except BaseException:  # as native code may lose it
                print("lost")

sys.meta_path.insert(0, Importing())
run()
"""


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM], ids=lambda by: by.name)
@pytest.mark.parametrize(
    ("command", "module"), [("play", "keras"), ("serve", "rudel.serve.server"), ("watch", "uvicorn")]
)
def test_a_server_ends_by_a_signal_within_an_import(
    command: str, module: str, by: signal.Signals, tmp_path: Path
) -> None:
    script = STARTING.replace("MODULE", module).replace("NUMBER", str(int(by)))
    done = subprocess.run(
        [sys.executable, "-c", script, command, tmp_path / "run"], capture_output=True, text=True, timeout=LONG
    )
    line = "Ended by SIGTERM.\n" if by == signal.SIGTERM else "Interrupted.\n"
    assert (done.returncode, done.stdout, done.stderr) == (128 + by, "", line)


AT_THE_START = """
import signal, sys, typer.main
from rudel.cli.main import run

class Importing:
    def find_spec(self, name, path=None, target=None):
        if name == WHEN:
            sys.meta_path.remove(self)
            signal.raise_signal(NUMBER)

def build(app, built=typer.main.get_command):
    if WHEN == "building":
        signal.raise_signal(NUMBER)
    return built(app)

typer.main.get_command = build
sys.meta_path.insert(0, Importing())
run()
"""


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM], ids=lambda by: by.name)
@pytest.mark.parametrize("when", ["rudel.cli.tune", "building", "rudel.recipes.load"])
def test_an_interrupt_before_a_command_says_what_it_does_ends_with_a_word(when: str, by: signal.Signals) -> None:
    script = AT_THE_START.replace("WHEN", repr(when)).replace("NUMBER", str(int(by)))
    done = subprocess.run([sys.executable, "-c", script, "recipes"], capture_output=True, text=True, timeout=LONG)
    line = "Ended by SIGTERM.\n" if by == signal.SIGTERM else "Interrupted.\n"
    assert (done.returncode, done.stdout, done.stderr) == (128 + by, "", line)


def test_a_server_that_ends_closes_what_is_open() -> None:
    script = """
import contextlib, signal
from rudel.cli.interrupts import ending_at_once
opened = contextlib.ExitStack()
with ending_at_once(opened):
    print("begun")
    opened.callback(print, "closed")
    signal.raise_signal(signal.SIGTERM)
    print("not reached")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stdout.split(), done.stderr) == (143, ["begun", "closed"], "Ended by SIGTERM.\n")
