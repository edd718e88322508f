"""Workers as a strategy calls them: directly, or by way of the scheduler."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import WorkerPlugin

import rudel
from rudel.cluster.fleet import Fleet
from rudel.errors import ClusterError


class Speaking(WorkerPlugin):
    """Adds handlers to a worker."""

    name = "speaking"

    def setup(self, worker: Any) -> None:
        async def say(what: str, after: float = 0.0) -> str:
            await asyncio.sleep(after)
            if what == "no":
                raise LookupError("it said no")
            return f"{worker.name} says {what}"

        worker.handlers["test_say"] = say

    def teardown(self, worker: Any) -> None:
        worker.handlers.pop("test_say", None)


class Failing(WorkerPlugin):
    name = "failing"

    def setup(self, worker: Any) -> None:
        raise ImportError("no such module")


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
    fleet = Fleet(client, borrowed=True)

    def done(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def run() -> Any:
            return await coroutine

        return client.sync(run)

    done(fleet.install(Speaking()))
    yield fleet, done
    done(fleet.uninstall(Speaking.name))


def test_calls_and_gets_answers(fleet: tuple[Fleet, Done]) -> None:
    fleet_, done = fleet
    ((name, address),) = done(fleet_.members()).items()
    assert done(fleet_.call(address, "test_say", what="yes")) == f"{name} says yes"
    with pytest.raises(Exception, match="it said no"):
        done(fleet_.call(address, "test_say", what="no"))
    assert done(fleet_.call(address, "test_say", what="yes")) == f"{name} says yes"


def test_many_calls_at_once(fleet: tuple[Fleet, Done]) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(fleet_.call(address, "test_say", what=str(i), after=0.01) for i in range(20)))

    assert [answer.rpartition(" ")[2] for answer in done(all_of_them())] == [str(i) for i in range(20)]


def test_who_does_not_answer_in_time_is_not_waited_for(fleet: tuple[Fleet, Done]) -> None:
    fleet_, done = fleet
    (address,) = done(fleet_.members()).values()
    with pytest.raises(TimeoutError):
        done(fleet_.call(address, "test_say", what="late", after=100.0, timeout=0.1))
    fleet_.forget(address)
    assert done(fleet_.call(address, "test_say", what="yes")).endswith("says yes")


def test_who_is_not_there_is_told(fleet: tuple[Fleet, Done]) -> None:
    fleet_, done = fleet
    with pytest.raises((OSError, ValueError)):
        done(fleet_.call("tcp://127.0.0.1:1", "test_say", what="yes", timeout=1))


def test_a_plugin_that_fails_is_told_and_leaves_nothing(client: Client) -> None:
    fleet = Fleet(client, borrowed=True)

    async def install() -> None:
        await fleet.install(Failing())

    with pytest.raises(ClusterError, match=r"cannot load Rudel \(ImportError: no such module\): install it there"):
        client.sync(install)


def test_what_was_taken_away_is_gone(client: Client) -> None:
    fleet = Fleet(client, borrowed=True)

    async def come_and_go() -> None:
        await fleet.install(Speaking())
        await fleet.uninstall(Speaking.name)
        await fleet.uninstall(Speaking.name)

    client.sync(come_and_go)
    found: Any = client.run(lambda dask_worker: "test_say" in dask_worker.handlers)
    assert set(found.values()) == {False}


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
