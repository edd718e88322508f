"""Runs a command for as long as standard input is open: `python cluster_tied.py COMMAND...`.

What comes from standard input is handed on to the command. When the connection that holds it is gone, in whatever way,
or this program is told to end, the command and all that it has started are killed. At its end, a line of JSON tells its
exit code and the largest resident memory of one of its processes. Needs nothing but Python.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Starts, hands on, tells."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _kill(child))
    threading.Thread(target=_hand_on, args=(child,), daemon=True).start()
    code = child.wait()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    with contextlib.suppress(OSError):
        print(json.dumps({"event": "exited", "code": code, "peak_bytes": peak}), flush=True)
    os._exit(0)  # standard input may still be open


def _hand_on(child: "subprocess.Popen[bytes]") -> None:
    assert child.stdin
    with contextlib.suppress(OSError):
        while part := os.read(0, 1 << 16):
            with contextlib.suppress(OSError):
                child.stdin.write(part)
                child.stdin.flush()
    _kill(child)


def _kill(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
