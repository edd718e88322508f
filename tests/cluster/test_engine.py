"""A cluster of workers over SSH: started, guarded, started again, and gone when it is to be gone."""

import contextlib
import copy
import gc
import json
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import asyncssh
import dask.config
import numpy as np
import psutil
import pytest
from PIL import Image
from processes import LONG, answers, started, until

import rudel
from rudel.cluster.certificates import Authority
from rudel.cluster.examine_images import ImageWorkers
from rudel.cluster.fleet import TRANSPORT_ERRORS, installed
from rudel.cluster.hosts import Host
from rudel.cluster.ssh_cluster import ClientCluster, Cluster
from rudel.data.images.convert import convert
from rudel.errors import ClusterError, HostError, OptionError
from rudel.replicas.replica_service import replica_guest

PYTHON = sys.executable

COMPILED = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_")
"""Variables that `import rudel` sets: workers share the compiled programs of all tests."""


@dataclass(frozen=True)
class Computer:
    """This one, as reached by SSH under the names one, two, which has a host name of its own as containers have,
    again, which is one once more, six, which is two by IPv6, stranger (whose key is not known) and changed (for whom
    another key is known).

    Args:
        folder: home folder of who logs in.
        ssh_config: knows the names.
        servers: the SSH servers.
    """

    folder: Path
    ssh_config: Path
    servers: "tuple[subprocess.Popen[bytes], ...]"

    def cluster(self, *names: str, **options: Any) -> Cluster:
        hosts = [Host(name, python=PYTHON) for name in names or ("one", "two")]
        return Cluster(hosts, ssh_config=self.ssh_config, **options)

    def workers(self) -> set[int]:
        """Processes of workers on it."""
        return {
            process.pid
            for process in psutil.process_iter(["cmdline", "environ"])
            if "rudel.cluster.worker" in (process.info["cmdline"] or [])
            and (process.info["environ"] or {}).get("HOME") == str(self.folder)
        }


@pytest.fixture(scope="session")
def computer(tmp_path_factory: pytest.TempPathFactory, lacking: Callable[[str], NoReturn]) -> Iterator[Computer]:
    """An SSH server of the current user, on this computer alone, with a home folder of its own."""
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        lacking("There is no SSH server to be tested with: sudo apt-get install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    folder = tmp_path_factory.mktemp("computer")
    for name in ("host_key", "key", "other_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    ports = [free_port(), free_port()]
    compiled = " ".join(f"{name}={value}" for name, value in os.environ.items() if name.startswith(COMPILED))
    settings = {
        "ListenAddress": "127.0.0.1", "HostKey": folder / "host_key", "PidFile": "none", "UsePAM": "no",
        "AuthorizedKeysFile": folder / "authorized_keys", "StrictModes": "no", "PasswordAuthentication": "no",
        "SetEnv": f"HOME={folder} RUDEL_CACHE={folder}/cache {compiled}", "PermitRootLogin": "yes",
    }  # fmt: skip
    lines = [f"{key} {value}\n" for key, value in settings.items()]
    (folder / "sshd_config").write_text("".join(lines) + "ListenAddress ::1\n")
    key = (folder / "host_key.pub").read_text()
    other = (folder / "other_key.pub").read_text()
    (folder / "known_hosts").write_text(f"one,two,six,again {key}[changed]:{ports[0]} {other}")
    common = f"  IdentityFile {folder}/key\n  UserKnownHostsFile {folder}/known_hosts\n"
    names = ("one", "two", "six", "again", "stranger", "changed")
    (folder / "ssh_config").write_text(
        "".join(
            f"Host {name}\n  HostKeyAlias {name}\n  HostName {'::1' if name == 'six' else '127.0.0.1'}\n"
            f"  Port {ports[name in ('two', 'six')]}\n{common}"
            for name in names
        )
    )
    apart = ["unshare", "--uts"] if os.geteuid() == 0 else ["unshare", "--map-current-user", "--uts"]
    with (folder / "log").open("wb") as log:
        servers = tuple(
            subprocess.Popen([*how, program, "-D", "-e", "-p", str(port), "-f", folder / "sshd_config"], stderr=log)
            for how, port in zip(([], apart), ports, strict=True)
        )
    try:
        for server, port in zip(servers, ports, strict=True):
            until(lambda server=server, port=port: answers("127.0.0.1", port) or server.poll() is not None)
            assert server.poll() is None, (folder / "log").read_text()
        yield Computer(folder, folder / "ssh_config", servers)
    finally:
        for server in servers:
            server.kill()
            server.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def greeting(computer: Computer) -> Iterator[None]:
    """A login shell that prints something without a line end."""
    (computer.folder / ".bashrc").write_text("printf 'Welcome: '\n")
    yield
    (computer.folder / ".bashrc").unlink()


@pytest.fixture(scope="module")
def running(computer: Computer) -> Iterator[Cluster]:
    """A cluster for all tests that leave it as it is."""
    with computer.cluster() as cluster:
        yield cluster


def listening(pids: set[int]) -> set[tuple[int, str, int]]:
    """(process, address, port) of all sockets on which these processes listen, but for those of the family unix."""
    return {
        (pid, connection.laddr.ip, connection.laddr.port)
        for pid in pids
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN or connection.type == socket.SOCK_DGRAM
    }


def test_a_cluster_leaves_dask_and_its_logs_as_they_were() -> None:
    mine = logging.NullHandler()
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado")]
    for logger in loggers:
        logger.addHandler(mine)

    def state() -> Any:
        logs = [(logger.level, logger.handlers[:], logger.propagate) for logger in loggers]
        return copy.deepcopy(dask.config.get("distributed")), logs

    before = state()
    try:
        with pytest.raises(HostError, match="refuses connections"), Cluster(f"127.0.0.1:{free_port()}"):
            pass
        assert state() == before
        assert mine in loggers[0].handlers
        assert dask.config.get("distributed.scheduler.work-stealing")
    finally:
        for logger in loggers:
            logger.removeHandler(mine)


def test_computes_whatever_one_wants(running: Cluster) -> None:
    assert running.client.submit(sum, [1, 2]).result() == 3
    names = {worker["name"] for worker in running.client.scheduler_info(n_workers=-1)["workers"].values()}
    assert names == {"one", "two"}
    pids = running.client.run(os.getpid)
    assert len(set(pids.values())) == 2


def test_workers_of_a_borrowed_cluster_are_waited_for(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudel.cluster.ssh_cluster.WORKERS_SECONDS", 0.2)
    with ClientCluster(running.client, min_hosts=2) as borrowed:
        assert borrowed.count == 2
    with pytest.raises(ClusterError, match="2 of 3 Dask workers connected"), ClientCluster(running.client, min_hosts=3):
        pass
    with pytest.raises(OptionError, match="`min_hosts=` must be 1 or more, not 0"):
        ClientCluster(running.client, min_hosts=0)


def test_a_host_that_cannot_be_reached_is_lost_and_not_said_to_lack_rudel(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rudel.cluster.fleet._LEAVING_SECONDS", 0.2)
    with installed(running, replica_guest()) as fleet, pytest.raises(TRANSPORT_ERRORS):
        running.background.start(fleet.call("rudel://127.0.0.1:1", "describe")).result(LONG)


def test_helps_to_convert_pictures(running: Cluster, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (tmp_path / "drawn" / name).mkdir(parents=True)
        for number in range(40):
            picture = Image.fromarray(random.integers(0, 255, (30, 40, 3), dtype=np.uint8))
            picture.save(tmp_path / "drawn" / name / f"{number}.webp")
    alone = convert(tmp_path / "drawn", tmp_path / "alone")
    together = convert(tmp_path / "drawn", tmp_path / "together", spread=ImageWorkers(running.client))
    assert together.changes == alone.changes == {"written as JPEG or PNG": 80}
    for shard in alone.shards:
        assert (alone.path / shard.file).read_bytes() == (together.path / shard.file).read_bytes()


def test_what_the_workers_are_is_theirs_and_not_the_drivers(running: Cluster, computer: Computer) -> None:
    assert set(running.client.run(lambda: os.environ["HOME"]).values()) == {str(computer.folder)}


def test_no_port_is_open_but_those_that_ask_for_a_certificate(computer: Computer) -> None:
    before = listening({os.getpid()})
    with computer.cluster() as cluster:
        assert cluster.client.submit(sum, [1, 2]).result() == 3
        new = listening({os.getpid()}) - before
        assert {address for _, address, _ in new} == {"0.0.0.0", "::"}, "the scheduler's"
        assert len({port for _, _, port in new}) == 1
        workers = listening(set(cluster.client.run(os.getpid).values()))
        assert len(workers) == 2
        assert all(address == "127.0.0.1" for _, address, _ in workers), "reached at the address that SSH uses"
        for _, _, port in new | workers:
            assert not welcome(port, ssl.CERT_NONE)
    assert listening({os.getpid()}) == before


def welcome(port: int, mode: ssl.VerifyMode, identity: Any = None) -> bool:
    """Whether a stranger gets anything but a refusal."""
    context = ssl.create_default_context() if identity is None else identity._context(ssl.Purpose.SERVER_AUTH)
    if identity is None:
        context.check_hostname, context.verify_mode = False, mode
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LONG) as raw, context.wrap_socket(raw) as tls:
            tls.settimeout(10)
            return bool(tls.recv(100))
    except OSError:
        return False


def test_private_keys_are_on_no_command_line_in_no_environment_and_in_no_file(
    running: Cluster, computer: Computer
) -> None:
    workers = set(running.client.run(os.getpid).values())
    secrets = [launch.identity.key.splitlines()[2][:40].encode() for launch in running._launches]
    assert len(set(secrets)) == 2
    for process in psutil.process_iter():
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                content = Path(f"/proc/{process.pid}/{name}").read_bytes()
                assert not any(secret in content for secret in secrets)
    assert workers <= computer.workers()
    for path in computer.folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert not any(secret in path.read_bytes() for secret in secrets)


def model_and_data() -> tuple[Any, Any, Any]:
    from rudel.backend import keras_on_jax

    keras = keras_on_jax()
    x = np.random.default_rng(0).normal(size=(960, 4)).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model, x, (x[:, 0] > 0).astype("int32")


def test_a_host_that_is_reached_over_ipv6_trains(computer: Computer, tmp_path: Path) -> None:
    model, x, y = model_and_data()
    with computer.cluster("one", "six") as cluster:
        workers = cluster.client.scheduler_info(n_workers=-1)["workers"]
        at = {worker["name"]: address for address, worker in workers.items()}
        assert at["one"].startswith("rudel://127.0.0.1:")
        assert at["six"].startswith("rudel://[::1]:")
        rudel.fit(model, x, y, steps=200, cluster=cluster, run=tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["hosts"], summary["workers_lost"]) == (["one", "six"], 0)
    events = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    trained = {name for event in events for name, host in event.get("hosts", {}).items() if host["steps"]}
    slow = {event["host"] for event in events if event.get("event") == "standby"}  # as a busy computer may look
    assert trained | slow == {"one", "six"}


CLOCK = r"""
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec -= 400L * 24 * 3600;
    return failed;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


def test_a_host_whose_clock_is_wrong_is_told_so(computer: Computer, tmp_path: Path) -> None:
    (tmp_path / "clock.c").write_text(CLOCK)
    library, python = tmp_path / "clock.so", tmp_path / "python"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "clock.c"], check=True)
    python.write_text(f'#!/bin/sh\nexec env LD_PRELOAD="{library}" "{PYTHON}" "$@"\n')
    python.chmod(0o755)
    message = refused(Cluster([Host("one", python=str(python))], ssh_config=computer.ssh_config))
    assert message.startswith("The clock of `one` is 400 days and 0 hours behind the one of this computer, so")


def test_strangers_are_refused_and_the_training_is_undisturbed(
    computer: Computer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = computer.cluster()
    running.start()
    ended = threading.Event()
    from rudel.backend import keras_on_jax

    class EndWhenAsked(keras_on_jax().callbacks.Callback):  # type: ignore[name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if ended.is_set():
                self.model.stop_training = True

    model, x, y = model_and_data()
    callbacks = [EndWhenAsked()]
    training = threading.Thread(
        target=lambda: rudel.fit(model, x, y, steps=10**7, cluster=running, run=tmp_path, callbacks=callbacks)
    )
    training.start()
    try:
        rounds = tmp_path / "rounds.jsonl"
        until(lambda: rounds.exists() and rounds.read_text().count("\n") > 5)
        workers = [worker.rpartition(":")[2] for worker in running.client.scheduler_info(n_workers=-1)["workers"]]
        foreign = Authority().issue("driver")
        with caplog.at_level(logging.INFO):
            for port in (running._scheduler.port, *map(int, workers)):
                for _ in range(5):
                    assert not welcome(port, ssl.CERT_NONE)
                    assert not welcome(port, ssl.CERT_NONE, foreign)
                    for rubbish in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(1000), bytes(1000)):
                        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as raw:
                            raw.sendall(rubbish)
            before = rounds.read_text().count("\n")
            until(lambda: rounds.read_text().count("\n") > before + 20)
    finally:
        ended.set()
        training.join()
        with caplog.at_level(logging.WARNING):
            running.close()
    refusals = [record.getMessage() for record in caplog.records if "certificate" in record.getMessage()]
    assert len(refusals) == 3, "of the scheduler and of both workers"
    assert all("connections without a certificate of this cluster were refused, from 127.0.0.1" in r for r in refusals)
    assert "handshake" not in caplog.text
    lines = [json.loads(line) for line in rounds.read_text().splitlines()]
    happened = {line["event"] for line in lines if "event" in line}
    assert happened <= {"standby"}, "a busy computer may measure a worker as slow; none is lost"
    assert json.loads((tmp_path / "summary.json").read_text())["workers_lost"] == 0


def test_ends_with_its_block_whatever_happens_in_it(computer: Computer) -> None:
    before, pids = computer.workers(), set[int]()

    def fail(cluster: Cluster) -> None:
        with cluster:
            pids.update(cluster.client.run(os.getpid).values())
            assert pids <= computer.workers() - before
            raise ZeroDivisionError

    cluster = computer.cluster()
    with pytest.raises(ZeroDivisionError):
        fail(cluster)
    until(lambda: not pids & computer.workers())
    cluster.close()
    marks = [path.read_text() for path in (computer.folder / ".rudel" / "workers").iterdir()]
    assert not set(marks) & set(map(str, pids))


def test_a_worker_that_is_killed_is_started_again(computer: Computer) -> None:
    with computer.cluster() as cluster:
        pids = by_name(cluster)
        os.kill(pids["one"], signal.SIGKILL)
        until(lambda: cluster.lost == 1)
        new = until(lambda: len(found := by_name(cluster)) == 2 and found)
        assert new["one"] != pids["one"]
        assert new["two"] == pids["two"]
        assert cluster.client.submit(sum, [1, 2]).result() == 3


@pytest.mark.slow  # tests/training/replicas/test_training.py shows the same of workers that are not started over SSH
def test_a_loss_brings_no_lines_of_dask_to_the_terminal(computer: Computer, tmp_path: Path, warm_python: str) -> None:
    (tmp_path / "hosts").write_text(f"one python={PYTHON}\ntwo python={PYTHON}\n")
    command = [warm_python, "-c", "from rudel.cli.main import run; run()", "train", "sine", "--epochs", "100000"]
    command += ["--on", tmp_path / "hosts", "--ssh-config", computer.ssh_config, "--run", tmp_path / "run"]
    command += ["--sync-every", "512"]
    before, rounds = computer.workers(), tmp_path / "run" / "rounds.jsonl"
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: process.poll() is not None or (rounds.exists() and rounds.read_text().count("\n") > 5))
        os.kill(min(computer.workers() - before), signal.SIGKILL)
        until(lambda: process.poll() is not None or '"joined"' in rounds.read_text())
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=LONG)[1]
    assert '"lost"' in rounds.read_text()
    lost, *others, joined, end = errors.splitlines()
    assert " was lost: " in lost
    assert " is back after " in joined
    assert end.startswith("Interrupted after")
    assert not [line for line in others if " is joining" not in line]
    assert process.returncode == 128 + signal.SIGTERM


def test_a_worker_whose_connection_breaks_ends_and_is_started_again(computer: Computer) -> None:
    with computer.cluster() as cluster:
        pids = by_name(cluster)
        connections = {process.pid for pid in pids.values() for process in psutil.Process(pid).parents()}
        children = [p for server in computer.servers for p in psutil.Process(server.pid).children()]
        sessions = [p for p in children if p.pid in connections]
        assert sessions
        for session in sessions:
            session.kill()
        until(lambda: cluster.lost == 2)
        until(lambda: len(set(by_name(cluster).values()) - set(pids.values())) == 2)  # old ones take a moment to end
        until(lambda: not set(pids.values()) & computer.workers(), 10)


def by_name(cluster: Cluster) -> dict[str, int]:
    """Numbers of the processes of workers that answer."""
    workers = cluster.client.sync(cluster.client.scheduler.identity, n_workers=-1)["workers"]
    names = {address: worker["name"] for address, worker in workers.items()}
    found = cluster.client.run(os.getpid, on_error="ignore")
    return {names[address]: pid for address, pid in found.items() if address in names}


DRIVER = """
import sys, time
from rudel.cluster.ssh_cluster import Cluster
from rudel.cluster.hosts import Host
config, python = sys.argv[1:]
with Cluster([Host("one", python=python), Host("two", python=python)], ssh_config=config) as cluster:
    import os
    print(*cluster.client.run(os.getpid).values(), flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_workers_end_when_the_driver_does(computer: Computer, number: signal.Signals) -> None:
    command = [PYTHON, "-W", "ignore", "-c", DRIVER, str(computer.ssh_config), PYTHON]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as driver:
        assert driver.stdout
        pids = {int(pid) for pid in driver.stdout.readline().split()}
        assert len(pids) == 2
        driver.send_signal(number)
        driver.wait(LONG)
    until(lambda: not pids & computer.workers())


def test_a_worker_that_starts_ends_with_the_driver(tmp_path: Path, warm_python: str) -> None:
    """It is at its scheduler, which does not answer, when the driver goes."""
    authority = Authority()
    with socket.create_server(("127.0.0.1", 0)) as scheduler:
        order = {
            "identity": vars(authority.issue("one")),
            "scheduler": f"rudel://127.0.0.1:{scheduler.getsockname()[1]}",
            "valid": [moment.timestamp() for moment in authority.valid],
            **{"address": "127.0.0.1", "name": "one", "cluster": "first", "modules": []},
        }
        environment = os.environ | {"HOME": str(tmp_path)}
        command = [warm_python, "-m", "rudel.cluster.worker"]
        with started(command, stdin=subprocess.PIPE, env=environment) as worker:
            assert worker.stdin
            worker.stdin.write(json.dumps(order) + "\n")
            worker.stdin.flush()
            scheduler.settimeout(LONG)
            with scheduler.accept()[0]:
                worker.stdin.close()
                assert worker.wait(30) == 0
    assert not list((tmp_path / ".rudel/workers").iterdir())


def test_a_worker_that_cannot_hear_the_driver_ends_with_its_scheduler(computer: Computer) -> None:
    """A scheduler that is gone while the SSH connection holds must not leave a worker that does nothing for ever."""
    with computer.cluster("one") as cluster:
        (pid,) = cluster.client.run(os.getpid).values()
        (address,) = cluster.client.scheduler_info(n_workers=-1)["workers"]
        cluster.background.run(cluster._scheduler.remove_worker(address, stimulus_id="test", close=True))
        until(lambda: cluster.lost == 1)
        until(lambda: by_name(cluster) and pid not in by_name(cluster).values())


# -- what cannot be -------------------------------------------------------------------------------------------------


def refused(cluster: Cluster) -> str:
    with pytest.raises((HostError, ClusterError)) as caught, cluster:
        raise AssertionError("it started")
    return str(caught.value)


@pytest.mark.parametrize("ended_first", [False, True])
def test_a_host_without_rudel_is_told_with_what_mends_it(
    computer: Computer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_first: bool
) -> None:
    """Whether the worker ends before it is given its order, or after."""
    create_process = asyncssh.SSHClientConnection.create_process

    async def ended(*arguments: Any, **options: Any) -> asyncssh.SSHClientProcess[bytes]:
        process = await create_process(*arguments, **options)
        await process.wait_closed()
        return process

    if ended_first:
        monkeypatch.setattr(asyncssh.SSHClientConnection, "create_process", ended)
    bare = tmp_path / "bare"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(bare)], check=True)
    for python in (None, "no/such/python", str(bare / "bin" / "python")):
        hosts = [Host("one", python=python)]
        message = refused(Cluster(hosts, ssh_config=computer.ssh_config))
        assert message.startswith("`one` has no Rudel, or an incomplete one: run `rudel hosts setup one` first.")


def test_all_that_is_wrong_is_told_at_once(computer: Computer) -> None:
    hosts = [Host("one", python="no/such/python"), Host("stranger", python=PYTHON), Host("two", python=PYTHON)]
    message = refused(Cluster(hosts, ssh_config=computer.ssh_config))
    lines = message.splitlines()
    assert lines[0] == "2 of 3 hosts cannot be used:"
    assert lines[1].startswith("  `one` has no Rudel")
    assert lines[2].startswith("  The key of `stranger` (`127.0.0.1`) is not known")


@pytest.mark.parametrize(
    ("through", "sentence"),
    [
        ("two", "`one` is reached by `ProxyCommand`, so it can run commands but not train: there is no"),
        ("stranger", "The SSH connection to `one` (`127.0.0.1`)"),
    ],
)
def test_a_host_that_is_reached_by_a_program_cannot_train_and_the_program_is_waited_for(
    computer: Computer, tmp_path: Path, through: str, sentence: str
) -> None:
    program = f"ssh -F {computer.ssh_config} -o StrictHostKeyChecking=yes -W %h:%p {through}"
    config = tmp_path / "ssh_config"
    config.write_text(f"Host one\n  ProxyCommand {program}\n{computer.ssh_config.read_text()}")
    assert refused(Cluster([Host("one", python=PYTHON)], ssh_config=config)).startswith(sentence)
    gc.collect()  # which warns of a program that nobody waited for


def test_a_computer_that_is_given_under_two_names_has_one_worker(
    computer: Computer, greeting: None, caplog: pytest.LogCaptureFixture
) -> None:
    sentence = "`again` is the same computer as `one`: give each computer once."
    assert refused(computer.cluster("one", "two", "again")) == sentence
    with computer.cluster("one", "two", "again", min_hosts=2) as cluster:
        assert set(by_name(cluster)) == {"one", "two"}
        assert cluster.absent == {"again": sentence}
    assert f"again does not take part: {sentence}" in caplog.text


def test_a_host_left_out_is_named_with_its_reason_on_the_terminal_and_in_the_report(
    computer: Computer, tmp_path: Path, warm_python: str
) -> None:
    (tmp_path / "hosts").write_text(f"one python={PYTHON}\nchanged python={PYTHON}\n")
    command = [warm_python, "-c", "from rudel.cli.main import run; run()", "train", "sine", "--epochs", "1"]
    command += ["--on", str(tmp_path / "hosts"), "--ssh-config", str(computer.ssh_config), "--min-hosts", "1"]
    done = subprocess.run(
        [*command, "--run", str(tmp_path / "run")], capture_output=True, text=True, timeout=LONG, check=True
    )
    reason = "The key of `changed` (`127.0.0.1`) has CHANGED"
    assert done.stderr.count(f"changed does not take part: {reason}") == 1
    assert f"absent   changed: {reason}" in done.stdout
    (absent,) = json.loads((tmp_path / "run" / "summary.json").read_text())["absent"]
    assert absent["host"] == "changed"
    assert absent["reason"].startswith(reason)
    assert "The key of `changed`" in (tmp_path / "run" / "report.html").read_text()


def test_begins_with_as_many_hosts_as_are_asked_for(computer: Computer) -> None:
    hosts = [Host("one", python="no/such/python"), Host("two", python=PYTHON)]
    with Cluster(hosts, ssh_config=computer.ssh_config, min_hosts=1) as cluster:
        assert set(by_name(cluster)) == {"two"}


def test_a_host_that_is_mended_later_joins(computer: Computer) -> None:
    link = computer.folder / "python-link"
    hosts = [Host("one", python=str(link)), Host("two", python=PYTHON)]
    with Cluster(hosts, ssh_config=computer.ssh_config, min_hosts=1) as cluster:
        link.write_text(f'#!/bin/sh\nexec "{PYTHON}" "$@"\n')
        link.chmod(0o755)
        until(lambda: set(by_name(cluster)) == {"one", "two"})


@pytest.mark.parametrize("least", [0, 3, -1])
def test_min_hosts_that_make_no_sense_are_refused(least: int) -> None:
    with pytest.raises(OptionError, match="`min_hosts=` must be between 1 and 2, the number of hosts"):
        Cluster("one,two", min_hosts=least)


def test_a_cluster_that_does_not_run_is_told(computer: Computer) -> None:
    with pytest.raises(ClusterError, match="The cluster is not running: use it in a `with` block"):
        rudel.fit(*model_and_data(), cluster=computer.cluster())


def test_a_dashboard_without_bokeh_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(OptionError, match=r"needs Bokeh, which is not installed: pip install 'rudel\[dashboard\]'"):
        Cluster("one", dashboard=True)


def test_a_recipe_with_a_module_beside_it_trains_on_hosts(computer: Computer, tmp_path: Path, warm_python: str) -> None:
    (tmp_path / "beside.py").write_text(
        "import keras\nclass Twice(keras.layers.Layer):\n    def call(self, x):\n        return 2 * x\n"
    )
    (tmp_path / "own.py").write_text(
        "import keras, numpy as np\n"
        "import rudel\n"
        "from beside import Twice\n"
        "def data():\n"
        "    x = np.random.default_rng(0).normal(size=(640, 4)).astype('float32')\n"
        "    return rudel.Dataset(rudel.Examples(x, (x[:, 0] > 0).astype('int32')))\n"
        "def model(dataset):\n"
        "    model = keras.Sequential([keras.Input((4,)), Twice(), keras.layers.Dense(2)])\n"
        "    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)\n"
        "    model.compile('adam', loss, metrics=['accuracy'])\n"
        "    return model\n"
    )
    (tmp_path / "hosts").write_text(f"one python={PYTHON}\ntwo python={PYTHON}\n")
    command = [warm_python, "-c", "from rudel.cli.main import run; run()", "train", str(tmp_path / "own.py")]
    command += ["--epochs", "20", "--ssh-config", str(computer.ssh_config), "--run", str(tmp_path / "run")]
    command += ["--on", str(tmp_path / "hosts")]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["hosts"] == ["one", "two"]
    assert summary["metrics"]["accuracy"] > 0.8
    assert done.stderr == ""
    missing = subprocess.run(
        [*command[:-1], "nowhere.invalid", "--resume"], capture_output=True, text=True, timeout=LONG
    )
    assert missing.returncode == 2
    assert missing.stderr.startswith("Error: The name of `nowhere.invalid` does not resolve")
    assert missing.stderr.count("\n") == 1
