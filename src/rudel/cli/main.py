"""`rudel`: the entry point, which prints one line when it is interrupted, also while the commands are imported."""

import sys

from rudel.cli.interrupts import TERMINATED, end_on_sigterm, ending, insist_on_interrupts, terminated

_INTERRUPTED = 130


def run() -> None:
    """Runs the command that the arguments of the process name, and ends with its exit code."""
    insist_on_interrupts()
    end_on_sigterm()
    try:
        from rudel.cli.application import exit_code

        code = exit_code()
    except KeyboardInterrupt:
        if sys.stderr:
            print(ending(terminated()), file=sys.stderr)
        code = _INTERRUPTED
    sys.exit(TERMINATED if terminated() and code == _INTERRUPTED else code)
