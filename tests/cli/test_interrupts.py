"""Ctrl-C, wherever the main thread happens to be."""

import subprocess
import sys

import pytest

LOST = {
    "collector": "gc.callbacks.append(lambda phase, info: interrupt()); gc.collect()",
    "end of an object": "object_ = type('Ending', (), {'__del__': lambda self: interrupt()})(); del object_",
}


@pytest.mark.parametrize("where", LOST)
def test_an_interrupt_that_nobody_could_catch_comes_again(where: str) -> None:
    script = f"""
import gc, itertools, signal
from rudel.cli.interrupts import insist_on_interrupts

gc.disable()
calls = itertools.count()
def interrupt():
    if next(calls) < 2:  # the collector's callback is called at its begin and its end: both are lost
        signal.raise_signal(signal.SIGINT)

insist_on_interrupts()
try:
    {LOST[where]}
    print("lost", flush=True)
    signal.sigtimedwait([], 60)
except KeyboardInterrupt:
    print("caught")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["lost", "caught"], "", 0)


def test_what_else_is_lost_is_told_as_usual() -> None:
    script = """
from rudel.cli.interrupts import insist_on_interrupts
insist_on_interrupts()
ending = type("Ending", (), {"__del__": lambda self: 1 / 0})()
del ending
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "ZeroDivisionError" in done.stderr
