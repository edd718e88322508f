"""Workers as a strategy calls them: directly, or by way of the scheduler; and one driver at a time."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from processes import LONG

import rudel
from rudel.cluster import guest as guests
from rudel.cluster.fleet import TRANSPORT_ERRORS, Fleet, NoLineError, OperationError, installed
from rudel.cluster.guest import Gone, Guest
from rudel.cluster.ssh_cluster import ClientCluster
from rudel.errors import ClusterError, NonFiniteError


class Speaking:
    """A service with a voice."""

    async def say(self, what: str, after: float = 0.0) -> str:
        await asyncio.sleep(after)
        if what == "no":
            raise LookupError("it said no")
        if what == "disk":
            raise OSError("No space left on device")
        if what == "nan":
            raise NonFiniteError("The loss became NaN.")
        return f"says {what}"

    def listen(self, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
        return lambda message: send(b"hears " + message)

    async def close(self) -> None:
        """It ends."""


class Failing(Speaking):
    """A service that cannot be made."""

    def __init__(self) -> None:
        raise ImportError("no such module")


def speaking(purpose: str = "a test") -> Guest:
    return Guest(Speaking, ["say"], purpose)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


Done = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["directly", "through the scheduler"])
def fleet(
    client: Client, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Fleet, Done]]:
    if request.param != "directly":

        async def unreachable(self: Fleet, address: str) -> bool:
            return False

        monkeypatch.setattr(Fleet, "_reachable", unreachable)
    with ClientCluster(client) as cluster, installed(cluster, speaking()) as fleet:
        yield fleet, lambda coroutine: cluster.start(coroutine).result()


def handlers(client: Client) -> list[str]:
    found: Any = client.run(lambda dask_worker: [n for n in dask_worker.handlers if n.startswith("rudel_")])
    return [name for names in found.values() for name in names]


def plugins(client: Client) -> list[str]:
    found: Any = client.run(lambda dask_worker: [n for n in dask_worker.plugins if n.startswith("rudel")])
    return [name for names in found.values() for name in names]


def test_calls_and_gets_answers(fleet: tuple[Fleet, Done]) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()
    assert done(fleet_.call(address, "say", what="yes")) == "says yes"
    assert done(fleet_.call(address, "say", what="yes")) == "says yes"


def test_errors_of_an_operation_are_not_those_of_the_network(fleet: tuple[Fleet, Done]) -> None:
    fleet_, done = fleet
    ((name, address),) = done(fleet_.members()).items()
    with pytest.raises(OperationError, match=rf"^LookupError: it said no \(on {name}\)") as caught:
        done(fleet_.call(address, "say", what="no"))
    assert "in say\n" in caught.value.__notes__[0], "its traceback"
    with pytest.raises(NonFiniteError, match="The loss became NaN"):
        done(fleet_.call(address, "say", what="nan"))
    with pytest.raises(OperationError, match="OSError: No space left on device") as caught:
        done(fleet_.call(address, "say", what="disk"))
    assert not isinstance(caught.value, TRANSPORT_ERRORS)


def test_many_calls_at_once(fleet: tuple[Fleet, Done]) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(fleet_.call(address, "say", what=str(i), after=0.01) for i in range(20)))

    assert [answer.rpartition(" ")[2] for answer in done(all_of_them())] == [str(i) for i in range(20)]


def test_who_does_not_answer_in_time_is_not_waited_for(fleet: tuple[Fleet, Done]) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()
    with pytest.raises(TimeoutError):
        done(fleet_.call(address, "say", what="late", after=100.0, timeout=0.1))
    fleet_.forget(address)
    assert done(fleet_.call(address, "say", what="yes")).endswith("says yes")


def test_bytes_go_over_a_line_where_a_worker_is_reached_directly(fleet: tuple[Fleet, Done], client: Client) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()
    done(fleet_.call(address, "say", what="yes"))
    if not fleet_._direct[address]:
        with pytest.raises(NoLineError):
            done(fleet_.ask(address, b"this"))
        return
    assert [done(fleet_.ask(address, what)) for what in (b"this", b"that")] == [b"hears this", b"hears that"]
    fleet_.forget(address)
    done(fleet_.call(address, "say", what="yes"))
    assert done(fleet_.ask(address, b"a new one")) == b"hears a new one"
    client.restart()
    with pytest.raises(TRANSPORT_ERRORS):
        done(fleet_.ask(address, b"after a restart"))


def test_who_is_not_there_is_told(fleet: tuple[Fleet, Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudel.cluster.fleet._LEAVING_SECONDS", 0.2)
    fleet_, done = fleet
    with pytest.raises(TRANSPORT_ERRORS):
        done(fleet_.call("tcp://127.0.0.1:1", "say", what="yes", timeout=1))


def test_what_cannot_be_made_on_a_worker_is_told_and_leaves_nothing(client: Client) -> None:
    failing = Guest(Failing, ["say"], "a test")
    with (
        ClientCluster(client) as cluster,
        pytest.raises(ClusterError, match=r"cannot load Rudel \(ImportError: no such module\): install it there"),
        installed(cluster, failing),
    ):
        pytest.fail("installed")
    assert (handlers(client), plugins(client)) == ([], [])


def test_nothing_is_left_whatever_ends_the_block(client: Client) -> None:
    found: list[str] = []

    def interrupted() -> None:
        with ClientCluster(client) as cluster, installed(cluster, speaking()):
            found.extend(handlers(client))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sorted(found) == ["rudel_call", "rudel_line", "rudel_renew"]
    assert (handlers(client), plugins(client)) == ([], [])


def test_calls_that_go_on_when_the_block_ends_install_nothing_again(fleet: tuple[Fleet, Done], client: Client) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()

    async def ended_by_leaving() -> BaseException | None:
        async def call_on_and_on() -> None:
            while True:
                await fleet_.call(address, "say", what="yes", after=0.05)

        calling = asyncio.create_task(call_on_and_on())
        await fleet_.call(address, "say", what="yes", after=0.2)  # meanwhile, the others have begun
        await fleet_.uninstall()
        try:
            await asyncio.wait([calling], timeout=5)
            return None if calling.done() else AssertionError("calls go on")
        finally:
            calling.cancel()

    assert done(ended_by_leaving()) is None
    assert (handlers(client), plugins(client)) == ([], [])


def test_a_call_that_begins_when_the_block_ends_installs_nothing_again(
    fleet: tuple[Fleet, Done], client: Client
) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()

    async def called_too_late() -> bool:
        leaving = asyncio.create_task(fleet_.uninstall())
        await asyncio.sleep(0)  # it has begun
        try:
            await fleet_.call(address, "say", what="yes")
        except asyncio.CancelledError:
            return True
        finally:
            await leaving
        return False

    assert done(called_too_late())
    assert (handlers(client), plugins(client)) == ([], [])


def test_a_busy_worker_is_refused_and_the_first_driver_goes_on(fleet: tuple[Fleet, Done], client: Client) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()
    who = rf"^\S+ is in use: a test of \S+@\S+ \(process {os.getpid()}\) runs on it\. Wait until"
    with (
        ClientCluster(client) as cluster,
        pytest.raises(ClusterError, match=who),
        installed(cluster, speaking("another")),
    ):
        pytest.fail("installed")
    assert done(fleet_.call(address, "say", what="yes")) == "says yes"
    assert len(plugins(client)) == 1


def test_a_worker_frees_itself_when_its_driver_is_killed(client: Client) -> None:
    with driver(client, abandoned=1.0) as process:
        process.kill()
        process.wait()
        deadline = time.monotonic() + LONG
        while handlers(client) or plugins(client):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_what_was_given_up_while_it_was_installed_is_freed_at_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C when the worker is too busy with its imports to hear that the guest is removed again."""
    monkeypatch.setattr(guests, "SILENT_SECONDS", 0.5)
    with ClientCluster(client) as cluster:
        (address,) = cluster.start(cluster.fleet.members()).result().values()
        cluster.start(cluster.fleet._add(address, speaking())).result()
    deadline = time.monotonic() + guests.ABANDONED_SECONDS / 4
    while handlers(client) or plugins(client):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_driver_that_was_killed_can_be_replaced_and_one_that_lives_cannot(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driver(client, silent=3.0) as process, ClientCluster(client) as cluster:
        used = rf"is in use: the other of \S+ \(process {process.pid}\)"
        with pytest.raises(ClusterError, match=used), installed(cluster, speaking()):
            pytest.fail("installed")
        (other,) = plugins(client)
        process.kill()
        process.wait()
        send, late = Fleet._send, [other]

        async def and_one_word_comes_late(self: Fleet, address: str, op: str, **message: Any) -> Any:
            """As where TCP delivers it again after the network was gone."""
            answer = await send(self, address, op, **message)
            if op == "rudel_renew" and late:
                await send(self, address, op, guest=late.pop())
            return answer

        monkeypatch.setattr(Fleet, "_send", and_one_word_comes_late)
        with installed(cluster, speaking()) as fleet:
            (address,) = cluster.start(fleet.members()).result().values()
            assert cluster.start(fleet.call(address, "say", what="yes")).result() == "says yes"


class driver:  # noqa: N801  # reads like a function
    """Another process that has installed something on the workers, until it is killed."""

    def __init__(self, client: Client, **seconds: float) -> None:
        lines = [f"guest.{name.upper()}_SECONDS = {value}" for name, value in seconds.items()]
        code = "\n".join(
            [
                "import sys, time",
                "from rudel.cluster import guest",
                *lines,
                "from rudel.cluster.ssh_cluster import ClientCluster",
                "from rudel.cluster.fleet import installed",
                "from rudel.mesh.hosts.member_service import Service",
                f"with ClientCluster({client.scheduler_info()['address']!r}) as cluster:",
                "    with installed(cluster, guest.Guest(Service, ['describe'], 'the other')):",
                "        print('ready', flush=True)",
                "        time.sleep(600)",
            ]
        )
        self._process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "subprocess.Popen[str]":
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()


def test_what_was_freed_is_said_to_be_gone(fleet: tuple[Fleet, Done], client: Client) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()
    (name,) = plugins(client)

    async def free(dask_worker: Any) -> None:
        await dask_worker.plugin_remove(name)

    client.run(free)
    with pytest.raises(Gone, match=re.escape(str(Gone()))):
        done(fleet_.call(address, "say", what="yes"))
    assert done(fleet_.call(address, "say", what="yes")) == "says yes", "it is installed again when it is called"


def test_a_user_without_a_name_is_called_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number which its /etc/passwd does not have."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert speaking().holder["user"] == "54321"


def test_a_claim_is_renewed_while_nobody_calls(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudel.cluster.fleet.RENEW_SECONDS", 0.05)
    monkeypatch.setattr(guests, "ABANDONED_SECONDS", 0.5)
    with ClientCluster(client) as cluster, installed(cluster, speaking()) as fleet:
        (address,) = cluster.start(fleet.members()).result().values()
        cluster.start(asyncio.sleep(1.5)).result()
        assert cluster.start(fleet.call(address, "say", what="yes")).result() == "says yes"


def test_trains_on_workers_that_only_the_scheduler_can_reach(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from rudel.backend import keras_on_jax

    async def unreachable(self: Fleet, address: str) -> bool:
        return False

    monkeypatch.setattr(Fleet, "_reachable", unreachable)
    keras = keras_on_jax()
    x = np.random.default_rng(0).normal(size=(640, 4)).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(
        keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    history = rudel.fit(model, x, (x[:, 0] > 0).astype("int32"), epochs=20, client=client)
    assert history.history["accuracy"][-1] > 0.8
