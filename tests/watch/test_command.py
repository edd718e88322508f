import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import LONG

from rudel.errors import ServeError
from rudel.listening import listener
from rudel.watch.watch_server import watch

Command = Callable[..., tuple[subprocess.Popen[str], str]]


def test_it_waits_for_a_run_and_ends_by_ctrl_c(command: Command) -> None:
    process, address = command("runs/mine", "--port", "0")
    with urllib.request.urlopen(f"{address}runs") as answer:
        assert json.loads(answer.read())["runs"][0]["state"] == "waiting"
    with urllib.request.urlopen(f"{address}events") as events:
        events.readline()
        process.send_signal(signal.SIGINT)  # also while somebody looks
        _, stderr = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert "There is no run at runs/mine yet: the page waits for it." in stderr
    assert "Traceback" not in stderr


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with listener("127.0.0.1", 0, 1) as other:
        port = other.getsockname()[1]
        command = [Path(sys.executable).with_name("rudel"), "watch", "--no-browser", "--port", str(port), "run"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        f"Error: 127.0.0.1 port {port} cannot be used (Address already in use): give another with --port, or "
        "--port 0 for one that is free."
    )
    assert done.stdout == ""


def test_an_address_that_is_not_this_computers() -> None:
    with pytest.raises(ServeError, match=r"^203\.0\.113\.7 port 0 cannot be used"):
        watch([], "203.0.113.7", 0, pytest.fail)


def test_without_its_packages_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ServeError, match=r"pip install 'rudel\[serve\]'"):
        watch([tmp_path], "127.0.0.1", 0, print)


def test_all_addresses_and_ipv6(command: Command) -> None:
    _, address = command("run", "--port", "0", "--host", "0.0.0.0")
    assert address.startswith("http://localhost:")
    name = socket.gethostname()
    request = urllib.request.Request(f"{address}runs", headers={"Host": name})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
    _, address = command("run", "--port", "0", "--host", "::1")
    assert address.startswith("http://[::1]:")
    with urllib.request.urlopen(f"{address}runs") as answer:
        assert answer.status == 200
