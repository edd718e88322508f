"""Setting up hosts that have no way to a package index, with a small package in the place of what a worker needs.

The whole of what a worker needs is set up in tests/end_to_end.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from processes import LONG

import rudel
from rudel.cluster import ssh
from rudel.cluster.hosts import REMOTE_PYTHON, Host
from rudel.cluster.hosts_check import check_hosts
from rudel.cluster.installation import Stage
from rudel.cluster.own_wheel import build_own_wheel
from rudel.cluster.setup import Outcome, set_up_hosts
from rudel.cluster.uploads import part_of
from rudel.lab import Lab

PACKAGES = {"toolz", "packaging"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two small packages in the place of JAX and the others, and a cache for all tests of this module."""
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-wheels"))
    monkeypatch.setattr("rudel.cluster.pins.WORKER_PACKAGES", ("toolz", "packaging"))
    monkeypatch.setattr("rudel.cluster.probe.WORKER_MODULES", ("toolz", "packaging", "rudel"))


def set_up(lab: Lab, *, offline: bool = True) -> Outcome:
    (outcome,) = asyncio.run(set_up_hosts(lab.hosts[0], lab.ssh_config, offline=offline, minimal=True))
    return outcome


@pytest.fixture
def ready(lab: Lab, homes: dict[str, Path]) -> None:
    """Leaves the first host as a set-up does; after the first time, from a copy of that."""
    host, kept = lab.hosts[0], "/run/set-up"
    if lab.run(host, "test", "-d", kept).returncode == 0:
        assert lab.run(host, "cp", "-a", kept, "/home/pi/.rudel", root=True).returncode == 0
    else:
        assert set_up(lab).problem is None
        assert lab.run(host, "cp", "-a", "/home/pi/.rudel", kept, root=True).returncode == 0


def asked(lab: Lab, code: str) -> str:
    """What the Python of the environment prints."""
    return lab.run(lab.hosts[0], REMOTE_PYTHON, "-c", code).stdout.strip()


def test_an_empty_host_gets_what_is_here(lab: Lab, homes: dict[str, Path]) -> None:
    outcome = set_up(lab)
    assert outcome.problem is None
    assert (outcome.how, outcome.packages) == ("with wheels from here", len(PACKAGES) + 1)
    assert outcome.sent > 100_000
    assert asked(lab, "import rudel; print(rudel.__version__, rudel.__file__)").startswith(
        f"{rudel.__version__} /home/pi"
    )
    assert sorted(path.name for path in (homes[lab.hosts[0]] / ".rudel").iterdir()) == ["env"]


def test_the_second_time_there_is_nothing_to_do(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    outcome = set_up(lab)
    assert (outcome.problem, outcome.how, outcome.packages, outcome.sent) == (None, "nothing to do", 0, 0)


def test_only_what_differs_is_sent(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    lab.run(lab.hosts[0], "sh", "-c", "rm -r .rudel/env/lib/python*/site-packages/toolz* .rudel/env/rudel.json")
    outcome = set_up(lab)
    assert (outcome.problem, outcome.packages) == (None, 2)
    assert asked(lab, "import toolz; print('there')") == "there"


def damage(lab: Lab, command: str) -> None:
    """Runs a command in the folder of the packages."""
    done = lab.run(lab.hosts[0], "sh", "-c", f"cd .rudel/env/lib/python*/site-packages && {command}")
    assert done.returncode == 0


def damage_unseen(lab: Lab, name: str) -> None:
    """Damages the modules of a package so that their sizes stay as they are."""
    damage(lab, f"for f in {name}/*.py; do tr 'a' '(' <$f >kept; cat kept >$f; done; rm kept")


def named(lab: Lab, *faults: str) -> None:
    """Checks the host, which has these faults."""
    host = lab.hosts[0]
    (report,) = asyncio.run(check_hosts(host, lab.ssh_config))
    assert report.incomplete
    assert f"Rudel on `{host}` is incomplete: " in str(report.problem)
    assert [fault for fault in faults if fault not in str(report.problem)] == []
    assert f"run `rudel hosts setup {host}`" in str(report.problem)


def mended(lab: Lab) -> None:
    """Sets the host up, after which nothing is left to do and to tell."""
    outcome = set_up(lab)
    assert (outcome.problem, outcome.how) == (None, "with wheels from here")
    assert asked(lab, "import toolz, packaging, rudel.data; print('there')") == "there"
    assert set_up(lab).how == "nothing to do"
    (report,) = asyncio.run(check_hosts(lab.hosts[0], lab.ssh_config))
    assert not report.incomplete


def test_a_damaged_environment_is_named_and_mended(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    damage(lab, "rm -r toolz rudel/data; mv packaging-*.dist-info packaging-0.1.dist-info")
    named(lab, "toolz is damaged", "packaging is 0.1 and not ", "rudel is damaged")
    mended(lab)


def test_damage_that_is_not_seen_from_outside_is_found_by_trying(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    """With something missing besides, so that the environment is made anew only when that was not enough."""
    damage_unseen(lab, "packaging")
    named(lab, "a worker cannot import what it needs (")
    damage(lab, "rm -r toolz*")
    named(lab, "toolz is missing")
    mended(lab)


def test_two_at_once_wait_for_each_other(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    """The second begins while the first holds the host, and finds that all is done."""
    damage(lab, "rm -r toolz*")
    stages: list[list[str]] = [[], []]

    async def both() -> list[Outcome]:
        begun = asyncio.Event()

        def first(host: Host, stage: Stage) -> None:
            stages[0].append(stage.text)
            if stage.text == "making the environment":
                begun.set()

        set_up_host = partial(set_up_hosts, lab.hosts[0], lab.ssh_config, offline=True, minimal=True)
        one = asyncio.create_task(set_up_host(on_stage=first))
        await asyncio.wait_for(begun.wait(), LONG)
        two = set_up_host(on_stage=lambda host, stage: stages[1].append(stage.text))
        return [outcome for (outcome,) in await asyncio.gather(one, two)]

    outcomes = asyncio.run(both())
    assert [outcome.problem for outcome in outcomes] == [None, None]
    assert "waiting for another set-up" in stages[1]
    assert outcomes[1].how == "nothing to do"


def test_another_source_of_the_same_version_is_installed(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    lab.run(
        lab.hosts[0], "sh", "-c", "for f in .rudel/env/lib/*/site-packages/rudel/__init__.py; do echo '(' > $f; done"
    )
    record = homes[lab.hosts[0]] / ".rudel" / "env" / "rudel.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"fingerprint": "of another source"}))
    outcome = set_up(lab)
    assert (outcome.problem, outcome.packages) == (None, 1)
    assert asked(lab, "import rudel; print(rudel.__version__)") == rudel.__version__


def test_what_was_broken_off_goes_on(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    """Cancelled while the packages are installed: the wheels are there, the environment is made anew.

    It was begun only because a package cannot be imported, of which everything else looks as it should.
    """
    damage_unseen(lab, "toolz")

    async def break_off() -> None:
        begun = asyncio.Event()

        def on_stage(host: Host, stage: Stage) -> None:
            if stage.text.startswith("installing"):
                begun.set()

        work = asyncio.create_task(
            set_up_hosts(lab.hosts[0], lab.ssh_config, offline=True, minimal=True, on_stage=on_stage)
        )
        await asyncio.wait_for(begun.wait(), LONG)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(break_off())
    folder = homes[lab.hosts[0]] / ".rudel"
    assert (folder / "unfinished").exists()
    assert list((folder / "wheels").glob("toolz*.whl"))
    outcome = set_up(lab)
    assert (outcome.problem, outcome.packages) == (None, len(PACKAGES) + 1)
    assert outcome.sent < len(build_own_wheel().content) + 10_000, "the packages were there"
    assert asked(lab, "import toolz; print('there')") == "there"
    assert not (folder / "unfinished").exists()
    assert set_up(lab).how == "nothing to do"


def test_a_part_of_a_wheel_goes_on_and_a_damaged_wheel_is_sent_again(
    lab: Lab, homes: dict[str, Path], ready: None
) -> None:
    cache = next(iter(_cached("toolz")))
    other = next(iter(_cached("packaging")))
    lab.run(lab.hosts[0], "sh", "-c", "rm -rf .rudel/env; mkdir .rudel/wheels")
    wheels = homes[lab.hosts[0]] / ".rudel" / "wheels"
    half = cache.read_bytes()[: cache.stat().st_size // 2]
    _give(lab, homes, part_of(f".rudel/wheels/{cache.name}"), half)
    _give(lab, homes, f".rudel/wheels/{other.name}", bytes(other.stat().st_size))
    whole = set_up(lab)
    assert whole.problem is None
    assert asked(lab, "import toolz, packaging; print('there')") == "there"
    assert not wheels.exists()


def test_a_damaged_part_does_not_get_in(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    cache = next(iter(_cached("toolz")))
    lab.run(lab.hosts[0], "sh", "-c", "rm -rf .rudel/env; mkdir .rudel/wheels")
    _give(lab, homes, part_of(f".rudel/wheels/{cache.name}"), b"rubbish")
    assert set_up(lab).problem is None
    assert asked(lab, "import toolz; print('there')") == "there"


def test_a_python_that_is_gone_makes_a_new_environment(lab: Lab, homes: dict[str, Path], ready: None) -> None:
    lab.run(
        lab.hosts[0],
        "sh",
        "-c",
        "ln -sf /nothing/python3 .rudel/env/bin/python3; ln -sf /nothing .rudel/env/bin/python",
    )
    assert set_up(lab).packages == len(PACKAGES) + 1
    assert asked(lab, "print('runs')") == "runs"


@pytest.fixture
def index(lab: Lab, homes: dict[str, Path]) -> Iterator[list[str]]:
    """A package index on the desktop, for which the pip of the first host is configured; what it was asked for."""
    if not _cached("pip"):  # no other test has set a host up
        asyncio.run(set_up_hosts(lab.hosts[1], lab.ssh_config, offline=True, minimal=True))
    root = homes[lab.hosts[0]].parents[1] / "index"
    for path in [*_cached("toolz"), *_cached("packaging"), *_cached("pip")]:
        folder = root / "simple" / path.name.split("-")[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).write_bytes(path.read_bytes())
    requests: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            requests.append(self.path)

    server = ThreadingHTTPServer((lab.desktop, 0), partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    text = f"[global]\nindex-url = http://{lab.desktop}:{server.server_port}/simple\ntrusted-host = {lab.desktop}\n"
    lab.run(lab.hosts[0], "mkdir", "-p", ".config/pip")
    _give(lab, homes, ".config/pip/pip.conf", text.encode())
    yield requests
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_host_with_a_way_to_an_index_uses_it(lab: Lab, homes: dict[str, Path], index: list[str]) -> None:
    outcome = set_up(lab, offline=False)
    assert (outcome.problem, outcome.how) == (None, "from the package index")
    assert any("/toolz/toolz-" in path for path in index)
    assert asked(lab, "import toolz, packaging, rudel; print('there')") == "there"


def test_an_index_that_lacks_a_package_is_helped_out(lab: Lab, homes: dict[str, Path], index: list[str]) -> None:
    root = homes[lab.hosts[0]].parents[1] / "index"
    for path in (root / "simple" / "packaging").iterdir():
        path.unlink()
    outcome = set_up(lab, offline=False)
    assert (outcome.problem, outcome.how) == (None, "with wheels from here")
    assert any("/toolz/toolz-" in path for path in index)


def test_without_a_way_to_an_index_wheels_are_sent(lab: Lab, homes: dict[str, Path]) -> None:
    assert set_up(lab, offline=False).how == "with wheels from here"


def test_a_small_disk_is_told_before_anything_is_installed(lab: Lab, homes: dict[str, Path]) -> None:
    keep = "cp -a /home/pi/.ssh /run/kept && mount -t tmpfs -o size=6m tmpfs /home/pi && cp -a /run/kept /home/pi/.ssh"
    lab.run(lab.hosts[0], "sh", "-c", f"{keep} && chown pi:pi /home/pi", root=True)
    try:
        outcome = set_up(lab)
    finally:
        lab.run(lab.hosts[0], "sh", "-c", "umount -l /home/pi; rm -r /run/kept", root=True)
    assert outcome.problem is not None
    assert f"The disk of `{lab.hosts[0]}` is" in outcome.problem


def test_hosts_that_fail_do_not_stop_the_others(lab: Lab, homes: dict[str, Path]) -> None:
    own = Host(lab.hosts[1], python="/usr/bin/python3")
    outcomes = asyncio.run(set_up_hosts(["127.0.0.1:1", own, lab.hosts[0]], lab.ssh_config, offline=True, minimal=True))
    assert "refuses connections" in str(outcomes[0].problem)
    assert f"`/usr/bin/python3` on `{lab.hosts[1]}` has no rudel" in str(outcomes[1].problem)
    assert outcomes[2].problem is None


def test_an_update_of_the_system_needs_sudo(lab: Lab, homes: dict[str, Path]) -> None:
    (outcome,) = asyncio.run(set_up_hosts(lab.hosts[0], lab.ssh_config, system_update=True, minimal=True))
    assert outcome.problem is not None
    assert "sudo is not there on" in outcome.problem
    assert not (homes[lab.hosts[0]] / ".rudel").exists()


def test_an_environment_can_be_asked_over_ssh(lab: Lab, homes: dict[str, Path], ready: None) -> None:

    async def ask() -> bytes:
        async with ssh.connected(Host(lab.hosts[0]), lab.ssh_config) as connection:
            return (await ssh.run(connection, f"{REMOTE_PYTHON} -m pip list --format=freeze")).stdout

    names = {line.split("==")[0] for line in asyncio.run(ask()).decode().split()}
    assert names == PACKAGES | {"rudel", "pip"}


def _cached(name: str) -> list[Path]:
    from rudel.cache import cache_folder

    return sorted((cache_folder() / "wheels").rglob(f"{name}-*.whl"))


def _give(lab: Lab, homes: dict[str, Path], path: str, content: bytes) -> None:
    """Writes a file into the home of the first host that belongs to its user."""
    file = homes[lab.hosts[0]] / path
    file.write_bytes(content)
    lab.run(lab.hosts[0], "chown", "pi:pi", f"/home/pi/{path}", root=True)
