"""A process that has imported what commands need, and forks for each of them.

`python zygote.py SOCKET MODULE...` prints a line when it can be reached, imports the modules for the first client, and
ends with its standard input. A client (client.py) connects for one command and sends its arguments, its folder, its
environment, the signals that it ignores, and its three standard files. It receives the number of the process, and its
exit status when it has ended. A client that is gone, killed or not, takes its command with it, before any other
command begins.

A command runs as if the interpreter had just started: by its own environment, with `__main__` and `sys.argv` of its
own. What differs is that modules are there already, so they have read their environment before: client.py asks only if
both environments are the same where it matters.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import selectors
import signal
import socket
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rudel.garbage_collection import collect_seldom


def main(path: str, modules: list[str]) -> None:
    del sys.path[0]  # this folder
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    print("ready", flush=True)
    if listening in select.select([listening, sys.stdin], [], [])[0]:
        gc.disable()
        for name in modules:
            module, _, function = name.partition(":")
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        gc.collect()
        gc.freeze()
        collect_seldom()  # as commands of Rudel do, scripts too
        os.fsync = os.fstat  # type: ignore[assignment]  # as in the tests themselves
        gc.enable()
        _end(lambda: _become(**_serve(listening)))


def _serve(listening: socket.socket) -> dict[str, Any]:
    """Forks for every client; returns in the forked processes, with the command."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clients: dict[int, socket.socket] = {}
    selector = selectors.DefaultSelector()
    for place in (listening, woken, sys.stdin):
        selector.register(place, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        with contextlib.suppress(BlockingIOError):
            woken.recv(4096)
        for pid, client in list(clients.items()):
            if client in ready:  # it is gone
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                selector.unregister(client)
                client.close()
                del clients[pid]
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        _reap(clients, selector)
        if sys.stdin in ready:
            for pid in clients:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        if listening not in ready:
            continue
        client, _ = listening.accept()
        try:
            command, files = _request(client)
        except ValueError:  # it is gone already
            client.close()
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            selector.close()
            for each in (listening, woken, wake, client, *clients.values()):
                each.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return command
        for file in files:
            os.close(file)
        client.sendall(f"{pid}\n".encode())
        clients[pid] = client
        selector.register(client, selectors.EVENT_READ)


def _request(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    start, files, _, _ = socket.recv_fds(client, 1 << 16, 3)
    length, _, text = start.partition(b"\n")
    while len(text) < int(length):
        text += client.recv(1 << 16)
    return json.loads(text), files


def _reap(clients: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    for pid in list(clients):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            client = clients.pop(pid)
            with contextlib.suppress(OSError):
                client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            selector.unregister(client)
            client.close()


def _become(arguments: list[str], folder: str, environment: dict[str, str], ignored: list[int], own: str) -> None:
    """Is the interpreter of these arguments from now on."""
    os.setsid()
    os.chdir(folder)
    for name in [name for name in os.environ if name not in environment]:
        del os.environ[name]
    os.environ.update(environment)
    for number in (signal.SIGINT, signal.SIGCHLD, *ignored):
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else default)
    sys.executable = own
    tempfile.tempdir = None  # TMPDIR may be another
    _buffer(not environment.get("PYTHONUNBUFFERED"))
    page = types.ModuleType("__main__")
    page.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = page
    safe = arguments[0] == "-P"
    first, *rest = arguments[1:] if safe else arguments
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[:0] = [] if safe else [""]
        exec(compile(rest[0], "<string>", "exec"), vars(page))
    elif first == "-m":
        sys.argv = rest
        sys.path[:0] = [] if safe else [folder]
        runpy._run_module_as_main(rest[0])  # pyright: ignore[reportAttributeAccessIssue]
    else:
        sys.argv = [first, *rest]
        sys.path[:0] = [] if safe else [str(Path(first).resolve().parent)]
        page.__file__ = first
        exec(compile(Path(first).read_bytes(), first, "exec"), vars(page))


def _buffer(wanted: bool) -> None:
    """Has the standard files buffered or not, as the interpreter would by PYTHONUNBUFFERED."""
    if wanted != sys.stdout.write_through:  # pyright: ignore[reportAttributeAccessIssue]
        return
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        file: Any = open(number, "wb", -1 if wanted else 0, closefd=False)  # noqa: SIM115  # as long as it runs
        by_lines = wanted and name == "stderr"
        after = io.TextIOWrapper(
            file, before.encoding, before.errors, line_buffering=by_lines, write_through=not wanted
        )
        setattr(sys, name, after)
        setattr(sys, f"__{name}__", after)


def _end(work: Callable[[], object]) -> NoReturn:
    """Ends as the interpreter does behind a program, but for taking thousands of modules apart."""
    code: object = None
    try:
        work()
    except SystemExit as stop:
        code = stop.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            file.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
