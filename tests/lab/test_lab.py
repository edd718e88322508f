"""Labs come up once, beside each other, and leave nothing behind."""

import json
import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import LONG, started

from rudel.errors import LabError
from rudel.lab import Lab
from rudel.lab.lab import stop
from rudel.lab.running_labs import find

Arguments = Callable[[], dict[str, Any]]
Traces = Callable[[], dict[str, Any]]


def answers(lab: Lab) -> bool:
    command = ["ssh", "-F", str(lab.ssh_config), lab.hosts[0], "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_who_asked_for_a_lab_by_sudo_may_read_its_key(own: Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    with Lab(nodes=1, **own()) as lab:
        key = next(shlex.split(line)[1] for line in lab.ssh_config.read_text().splitlines() if "IdentityFile" in line)
        assert (Path(key).stat().st_uid, Path(key).stat().st_mode & 0o777) == (65534, 0o600)
        assert answers(lab)


def test_two_labs_are_up_at_once_and_leave_nothing(own: Arguments, traces: Traces) -> None:
    before = traces()
    with Lab(nodes=1, **own()) as one:
        with Lab(nodes=1, **own()) as two:
            assert answers(one)
            assert answers(two)
            two.cut(two.hosts[0])
        assert two.hosts[0] not in Path("/etc/hosts").read_text()
        assert answers(one)
        assert traces() != before
    assert traces() == before


def test_homes_are_kept_for_the_next_time(own: Arguments) -> None:
    arguments = own()
    lab = Lab(nodes=1, **arguments)
    for _ in range(2):
        with lab:
            lab.run(lab.hosts[0], "sh", "-c", "echo >> note")
    assert (arguments["state"] / lab.hosts[0] / "home/note").read_text() == "\n\n"


def test_a_lab_that_is_up_is_not_started_again(lab: Lab, own: Arguments) -> None:
    arguments = own()
    with pytest.raises(LabError, match=f"`{lab.settings.prefix}` is up already: stop it with"):
        Lab(prefix=lab.settings.prefix, state=arguments["state"]).start()
    with pytest.raises(LabError, match=f"already has a route to {lab.settings.subnet}.0/24"):
        Lab(prefix=arguments["prefix"], subnet=lab.settings.subnet, state=arguments["state"]).start()
    assert answers(lab)


def test_a_lab_that_is_not_up_has_nothing_to_cut(own: Arguments) -> None:
    lab = Lab(**own())
    with pytest.raises(LabError, match=f"No lab `{lab.settings.prefix}` is up"):
        lab.cut(lab.hosts[0])
    with pytest.raises(LabError, match="No lab `nothing` is up"):
        Lab.attach("nothing")


def test_a_lab_is_stopped_by_others(own: Arguments, traces: Traces) -> None:
    before = traces()
    lab = Lab(nodes=1, **own())
    lab.start(owned=False)
    prefix = lab.settings.prefix
    assert answers(Lab.attach(prefix))
    assert prefix in stop(prefix)
    assert traces() == before
    assert stop(prefix) == []
    lab.stop()


def test_a_killed_keeper_takes_the_nodes_along_and_its_traces_are_removed(own: Arguments, traces: Traces) -> None:
    before = traces()

    def start_again(prefix: str) -> None:
        with Lab(nodes=1, **arguments) as lab:
            assert answers(lab)

    for remove in (stop, start_again):
        arguments = own()
        lab = Lab(nodes=1, **arguments)
        lab.start(owned=False)
        found = find(lab.settings.prefix)
        nodes = [os.pidfd_open(process) for process in found.processes.values()]
        keeper = os.pidfd_open(found.keeper)
        signal.pidfd_send_signal(keeper, signal.SIGKILL)
        wait_for(keeper, *nodes)
        assert traces()["groups"] != before["groups"]
        remove(lab.settings.prefix)
        assert traces() == before


def test_the_lab_of_a_killed_process_ends(own: Arguments, traces: Traces) -> None:
    before = traces()
    arguments: dict[str, Any] = own() | {"nodes": 1}
    script = (
        "import json, sys\n"
        "from rudel.lab import Lab\n"
        "lab = Lab(**json.loads(sys.argv[1]))\n"
        "lab.start()\n"
        "print('up', flush=True)\n"
        "input()"
    )
    command = [sys.executable, "-c", script, json.dumps(arguments, default=str)]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        keeper = os.pidfd_open(find(arguments["prefix"]).keeper)
        owner.kill()
    wait_for(keeper)
    assert traces() == before


def test_an_interrupt_that_comes_just_before_it_waits_ends_it(own: Arguments, traces: Traces) -> None:
    """Another thread takes the signal here, so that, as then, it does not interrupt the call that waits."""
    before = traces()
    script = (
        "import json, signal, sys, threading\n"
        "from rudel.lab import Lab\n"
        "def late():\n"
        "    input()\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "with Lab(**json.loads(sys.argv[1])) as lab:\n"
        "    threading.Thread(target=late).start()\n"
        "    print('up', flush=True)\n"
        "    lab.wait()"
    )
    command = [sys.executable, "-c", script, json.dumps(own() | {"nodes": 1}, default=str)]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        _, error = owner.communicate("\n", timeout=LONG)
    assert (owner.returncode, error.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
    assert traces() == before


def test_a_problem_while_it_is_built_leaves_nothing(own: Arguments, traces: Traces) -> None:
    before = traces()
    arguments = own()
    lab = Lab(nodes=2, **arguments)
    (arguments["state"] / lab.hosts[1]).mkdir()
    (arguments["state"] / lab.hosts[1] / "host_key").write_text("rubbish")
    (arguments["state"] / lab.hosts[1] / "host_key.pub").write_text("rubbish rubbish rubbish")
    with pytest.raises(LabError, match=f"The node `{lab.hosts[1]}` does not answer, as its sshd says: .*no hostkeys"):
        lab.start()
    assert traces() == before


def test_a_device_of_the_same_name_is_told(own: Arguments, traces: Traces) -> None:
    lab = Lab(nodes=1, **own())
    subprocess.run(["ip", "tuntap", "add", "mode", "tap", "name", lab.settings.tap], check=True)
    try:
        with pytest.raises(LabError, match=f"network device `{lab.settings.tap}`"):
            lab.start()
    finally:
        subprocess.run(["ip", "link", "del", lab.settings.tap], check=True)


def wait_for(*processes: int) -> None:
    """Waits until processes have ended."""
    for process in processes:
        assert select.select([process], (), (), LONG)[0]
        os.close(process)
