"""How fast links are found to be that are known: in time that passes where nobody has anything to do."""

import asyncio
import selectors
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rudel.planning import link_probe as probe
from rudel.planning.link_probe import Found

FAST, SLOW, TRIP = 12e6, 0.12e6, 3e-3
CHUNK = 1 << 14


class Ahead(selectors.DefaultSelector):
    """Does not wait, and counts for how long it would have waited."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.passed += timeout or 0.0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """Its time is what its selector would have waited."""

    def __init__(self) -> None:
        self._ahead = Ahead()
        super().__init__(self._ahead)

    def time(self) -> float:
        return self._ahead.passed


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=Loop) as runner:
        yield runner


class Air:
    """A medium that all share, piece by piece, and hosts with links of their own to it."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free, self.alone, self._under_way = rate, asyncio.Lock(), Counter[str](), 0

    def host(self, name: str, down: float, up: float) -> probe.Call:
        async def call(operation: str, content: bytes, back: int = 0) -> int:
            self._under_way += 1
            await asyncio.sleep(0)
            self.alone[name] += self._under_way == 1
            await self._carry(len(content), down)
            await asyncio.sleep(TRIP)
            await self._carry(back, up)
            self._under_way -= 1
            return len(content)

        return call

    async def _carry(self, size: int, own: float) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        for sent in range(CHUNK, size + CHUNK, CHUNK):
            async with self._free:
                await asyncio.sleep(CHUNK / self._rate)
            await asyncio.sleep(began + sent / own - clock())


async def found(rate: float, *hosts: tuple[float, float]) -> tuple[Found, Air, float]:
    """What is found of hosts of these rates, down and up, the air, and the seconds that it took."""
    air, clock = Air(rate), asyncio.get_running_loop().time
    began = clock()
    links = await probe.links([air.host(f"h{number}", *rates) for number, rates in enumerate(hosts)])
    return links, air, clock() - began


def test_of_equal_hosts_each_has_the_whole_medium_by_itself(runner: asyncio.Runner) -> None:
    links, _, seconds = runner.run(found(FAST, *[(FAST, FAST)] * 4))
    assert links.round_trips == pytest.approx([TRIP] * 4)
    assert links.rates == pytest.approx([FAST] * 4, rel=0.02)
    assert links.rates_up == pytest.approx([FAST] * 4, rel=0.02)
    assert [links.together, links.together_up] == pytest.approx([FAST] * 2, rel=0.02)
    assert [count for count, _ in links.trials] == [1, 4]
    assert seconds < 3


def test_links_of_their_own_add_up(runner: asyncio.Runner) -> None:
    links, _, _ = runner.run(found(1e9, (FAST, FAST), (FAST, FAST), (FAST / 2, FAST / 2)))
    assert links.rates == pytest.approx([FAST, FAST, FAST / 2], rel=0.02)
    assert links.together == pytest.approx(2.5 * FAST, rel=0.05)


def test_one_slow_link_is_not_taken_for_the_medium_and_is_soon_measured(runner: asyncio.Runner) -> None:
    links, _, seconds = runner.run(found(FAST, (SLOW, SLOW), *[(FAST, FAST)] * 3))
    assert links.rates == pytest.approx([SLOW, FAST, FAST, FAST], rel=0.02)
    assert [links.together, links.together_up] == pytest.approx([FAST] * 2, rel=0.1)
    usual = dict(links.trials)[1]
    assert usual == pytest.approx(TRIP + probe.TRIAL_BYTES / FAST, rel=0.05)
    assert seconds < 9


def test_what_comes_back_more_slowly_is_measured_as_that(runner: asyncio.Runner) -> None:
    links, _, _ = runner.run(found(FAST, *[(FAST, FAST / 10)] * 2))
    assert links.rates == pytest.approx([FAST] * 2, rel=0.02)
    assert links.rates_up == pytest.approx([FAST / 10] * 2, rel=0.02)
    assert links.together_up == pytest.approx(FAST / 5, rel=0.05)


def test_of_many_hosts_some_are_measured_by_themselves_and_slow_ones_are_found(runner: asyncio.Runner) -> None:
    hosts = [(FAST, FAST)] * 60
    hosts[17] = SLOW / 2, SLOW / 2
    links, air, seconds = runner.run(found(FAST, *hosts))
    measured = [name for name, count in air.alone.items() if count > 3]
    assert len(measured) == 8
    assert "h17" not in measured
    others = [rate for number, rate in enumerate(links.rates) if number != 17]
    assert others == pytest.approx([FAST] * 59, rel=0.02)
    assert links.rates[17] == pytest.approx(SLOW / 2, rel=0.1)
    assert links.together == pytest.approx(FAST, rel=0.1)
    assert seconds < 20
