"""Batches: what waits is computed together, everything is answered once, and too much is refused."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from processes import LONG

from rudel.serve.batcher import Batcher, Columns
from rudel.serve.metrics import Metrics
from rudel.serve.model_signature import Signature
from rudel.serve.models import Models
from rudel.serve.refusal import Refusal
from rudel.serve.runtimes.runtime import Loaded
from rudel.serve.server_limits import Limits


class Model:
    """Doubles numbers, and remembers its batches; waits for `gate` where it is closed."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def __call__(self, columns: Columns) -> list[np.ndarray]:
        self.begun.set()
        self.gate.wait(LONG)
        if (columns[0] < 0).any():
            raise ValueError("negative")
        self.batches.append(len(columns[0]))
        return [columns[0] * 2]


def run(test: Callable[[Model, Callable[..., Batcher]], Any]) -> None:
    """Runs a test in an event loop, with a model and a maker of batchers for it."""
    model = Model()

    def make(quick: bool = False, **limits: Any) -> Batcher:
        return Batcher(model, Limits(**limits), quick, lambda rows, seconds: None)

    asyncio.run(test(model, make))


def ask(batcher: Batcher, *numbers: float, began: float | None = None) -> "asyncio.Task[Columns]":
    columns = [np.array(numbers)]
    return asyncio.ensure_future(batcher.submit(columns, time.perf_counter() if began is None else began))


async def begun(model: Model) -> None:
    await asyncio.get_running_loop().run_in_executor(None, model.begun.wait, 30)


def values(answers: Sequence[Columns]) -> list[list[float]]:
    return [answer[0].tolist() for answer in answers]


@pytest.mark.parametrize("quick", [True, False])
def test_what_comes_together_is_computed_together(quick: bool) -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make(quick)
        assert values(await asyncio.gather(*(ask(batcher, i, i + 1) for i in range(5)))) == [
            [2 * i, 2 * i + 2] for i in range(5)
        ]
        assert sum(model.batches) == 10
        if quick:
            assert model.batches == [10]

    run(test)


def test_what_waits_for_a_busy_model_is_one_batch() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make(batch=4)
        model.gate.clear()
        first = ask(batcher, 1)
        await begun(model)
        rest = [ask(batcher, i) for i in range(2, 8)]
        while batcher.waiting < 6:
            await asyncio.sleep(0)
        model.gate.set()
        assert values(await asyncio.gather(first, *rest)) == [[2 * i] for i in range(1, 8)]
        assert model.batches == [1, 4, 2]

    run(test)


def test_a_batch_can_wait_for_more() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make(True, delay=20.0, batch=3)
        first, second = ask(batcher, 1), ask(batcher, 2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not first.done()
        third = ask(batcher, 3)
        await asyncio.wait_for(asyncio.gather(first, second, third), 10)
        assert model.batches == [3]

    run(test)


def test_many_examples_are_several_batches() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make(batch=4)
        assert values([await ask(batcher, *range(11))]) == [[2 * i for i in range(11)]]
        assert model.batches == [4, 4, 3]

    run(test)


@pytest.mark.parametrize("quick", [True, False])
def test_others_take_turns_with_many_examples(quick: bool) -> None:
    """One request is one of those that wait, however many batches it takes."""

    async def test(model: Model, make: Any) -> None:
        batcher = make(quick, batch=2, waiting=2)
        many = ask(batcher, *range(100))
        assert values([await ask(batcher, 500.0)]) == [[1000.0]]
        assert not many.done()
        assert values([await many]) == [[2.0 * i for i in range(100)]]

    run(test)


@pytest.mark.parametrize("quick", [True, False])
def test_one_bad_request_does_not_spoil_its_neighbours(quick: bool) -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make(quick)
        answers = await asyncio.gather(*(ask(batcher, i) for i in (1, -1, 3)), return_exceptions=True)
        assert isinstance(answers[1], ValueError)
        assert values([a for a in answers if not isinstance(a, BaseException)]) == [[2], [6]]

    run(test)


def test_too_many_are_refused() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make(waiting=2)
        model.gate.clear()
        first = ask(batcher, 1)
        await begun(model)
        waiting = [ask(batcher, 2), ask(batcher, 3)]
        while batcher.waiting < 2:
            await asyncio.sleep(0)
        with pytest.raises(Refusal) as refusal:
            await ask(batcher, 4)
        assert (refusal.value.status, refusal.value.headers) == (503, ((b"retry-after", b"1"),))
        model.gate.set()
        assert values(await asyncio.gather(first, *waiting)) == [[2], [4], [6]]

    run(test)


def test_those_that_wait_too_long_are_answered_and_not_computed() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make(seconds=30)
        model.gate.clear()
        first = ask(batcher, 1)
        await begun(model)
        late = ask(batcher, 2, began=time.perf_counter() - 31)
        while not batcher.waiting:
            await asyncio.sleep(0)
        batcher.expire(time.perf_counter())
        with pytest.raises(Refusal, match="within 30 seconds") as refusal:
            await late
        assert refusal.value.status == 504
        model.gate.set()
        await first
        await ask(batcher, 3)
        assert model.batches == [1, 1]

    run(test)


def test_closing_waits_for_what_was_begun() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make()
        model.gate.clear()
        answers = [ask(batcher, 1)]
        await begun(model)
        answers.append(ask(batcher, 2))
        while not batcher.waiting:
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(batcher.finish())
        model.gate.set()
        await closing
        assert values(await asyncio.gather(*answers)) == [[2], [4]]

    run(test)


def test_closing_waits_for_all_batches_of_a_large_request() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make(batch=2)
        model.gate.clear()
        answer = ask(batcher, *range(5))
        await begun(model)
        closing = asyncio.ensure_future(batcher.finish())
        model.gate.set()
        await closing
        assert model.batches == [2, 2, 1]
        assert values([await answer]) == [[0, 2, 4, 6, 8]]

    run(test)


def test_what_comes_when_all_was_finished_is_computed() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make()
        await batcher.finish()
        assert values([await ask(batcher, 1)]) == [[2]]

    run(test)


def test_the_time_of_those_that_asked_a_version_which_was_replaced_ends() -> None:
    async def test(model: Model, make: Any) -> None:
        models, signature = Models(Limits(seconds=5), Metrics()), Signature((), ())
        models.put("m", 1, Loaded(signature, model, "test"), seconds=1)
        asked = models.find("m").batcher
        model.gate.clear()
        before = ask(asked, 1)
        await begun(model)
        models.put("m", 2, Loaded(signature, model, "test"), seconds=1, alone=True)
        after = ask(asked, 2)
        while not asked.waiting:
            await asyncio.sleep(0)
        models.expire(time.perf_counter() + 6)
        for each in (before, after):
            with pytest.raises(Refusal, match="has not answered within 5 seconds"):
                await each
        model.gate.set()

    run(test)


def test_a_client_that_has_gone_takes_nobody_with_it() -> None:
    async def test(model: Model, make: Any) -> None:
        batcher = make()
        model.gate.clear()
        gone = ask(batcher, 1)
        await begun(model)
        also_gone, stays = ask(batcher, 2), ask(batcher, 3)
        while batcher.waiting < 2:
            await asyncio.sleep(0)
        gone.cancel()
        also_gone.cancel()
        await asyncio.sleep(0)
        model.gate.set()
        assert values([await stays]) == [[6]]
        assert model.batches == [1, 1]

    run(test)
