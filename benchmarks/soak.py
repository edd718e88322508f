"""Rudel's server under twice the load that it can bear, for minutes: good, bad, slow and aborted requests at once.

    python benchmarks/soak.py --run runs/quickdraw [--seconds 180] [--json soak.json]

First it is measured how many good requests a second the server answers; then twice as many are sent, whether or not it
has answered (an open loop), on connections of their own. Of ten requests one is bad, one is aborted (its connection is
closed when it is sent), and one is slow (its body comes in two parts). A server that is left behind may refuse with
503, and with nothing else from 500 on. Every answer has to belong to its request: the number of its examples tells. In
the second half, the server's memory may not grow by more than a tenth, or 20 MB.
"""

import asyncio
import collections
import contextlib
import json as json_format
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from serve_places import NAME, free_port, rudel_server, serving

PATH = f"/v1/models/{NAME}:predict"
MOST_OPEN = 400


@dataclass
class Tally:
    """What has come of the requests.

    Args:
        sent: by kind.
        answers: by kind and status.
        broken: what must not happen, by what it is.
        memory: bytes of the server, every second.
    """

    sent: collections.Counter[str] = field(default_factory=collections.Counter)
    answers: collections.Counter[str] = field(default_factory=collections.Counter)
    broken: collections.Counter[str] = field(default_factory=collections.Counter)
    memory: list[int] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """Bytes by which the memory has grown in the second half."""
        half = self.memory[len(self.memory) // 2 :]
        tail = max(1, len(half) // 5)
        return sum(half[-tail:]) / tail - sum(half[:tail]) / tail

    @property
    def problems(self) -> list[str]:
        """Sentences about what must not be; none if all is well."""
        found = [f"{count:,} times: {what}." for what, count in self.broken.items()]
        half = self.memory[len(self.memory) // 2]
        if self.growth > max(0.1 * half, 20e6):
            found.append(f"The memory has grown by {self.growth / 1e6:.0f} MB in the second half.")
        return found


def main(
    run: Annotated[Path, typer.Option(help="A finished run whose inputs are 28 x 28 numbers.")],
    seconds: Annotated[float, typer.Option(min=1, help="How long.")] = 180.0,
    load: Annotated[float, typer.Option(min=0.1, help="How many times what the server can bear.")] = 2.0,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait in the server.")] = 64,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Run it, and say what came of it; exit code 1 where something must not be."""
    port = free_port()
    place = rudel_server(run, NAME, "--queue", str(queue), "--timeout", "10", "--log", "none")
    with serving(place, port):
        tally, capacity = asyncio.run(soak(port, seconds, load))
    print(f"{capacity:,.0f} good requests a second alone; then {sum(tally.sent.values()) / seconds:,.0f} of all kinds")
    for what, count in sorted(tally.answers.items()):
        print(f"{count:10,}  {what}")
    print(f"memory: {tally.memory[len(tally.memory) // 2] / 1e6:.0f} MB, then {tally.growth / 1e6:+.1f} MB")
    if json:
        json.write_text(json_format.dumps({name: _plain(value) for name, value in vars(tally).items()}, indent=2))
    for problem in tally.problems:
        print(problem)
    raise typer.Exit(1 if tally.problems else 0)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, collections.Counter) else value


async def soak(port: int, seconds: float, load: float) -> tuple[Tally, float]:
    """Loads the server; returns what came of it, and what it can bear."""
    capacity = await _capacity(port, min(3.0, seconds / 5))
    tally, chance = Tally(), random.Random(0)
    asking: set[asyncio.Task[None]] = set()
    began = last = time.perf_counter()
    sent, next_look = 0.0, began
    while (now := time.perf_counter()) - began < seconds:
        sent += (now - last) * capacity * load
        last = now
        while sent >= 1 and len(asking) < MOST_OPEN:
            sent -= 1
            task = asyncio.ensure_future(_ask(port, chance, tally))
            asking.add(task)
            task.add_done_callback(asking.discard)
        sent = min(sent, capacity)
        if now >= next_look:
            next_look += 1 if seconds > 20 else seconds / 20
            tally.memory.append(await _memory(port))
        await asyncio.sleep(0.002)
    if asking:
        _, open_still = await asyncio.wait(asking, timeout=30)
        tally.broken["a request was never answered"] += len(open_still)
        for task in open_still:
            task.cancel()
    tally.broken += collections.Counter()  # drops what has not happened
    return tally, capacity


async def _ask(port: int, chance: random.Random, tally: Tally) -> None:
    kind = chance.choices(("good", "bad", "aborted", "slow"), (70, 10, 10, 10))[0]
    rows = chance.randint(1, 4)
    body = _bad(chance) if kind == "bad" else _good(rows)
    tally.sent[kind] += 1
    try:
        status, answer = await _exchange(port, body, kind)
    except (OSError, EOFError, asyncio.IncompleteReadError):
        tally.broken[f"a {kind} request was cut off"] += 1
        return
    if kind == "aborted":
        return
    tally.answers[f"{kind}: {status}"] += 1
    if status >= 500 and status != 503:
        tally.broken[f"an answer {status}"] += 1
    elif kind == "bad" and status != 503 and not 400 <= status < 500:
        tally.broken[f"a bad request was answered by {status}"] += 1
    elif kind != "bad" and status not in (200, 503):
        tally.broken[f"a {kind} request was answered by {status}"] += 1
    elif status == 200 and len(answer["predictions"]) != rows:
        tally.broken["an answer belonged to another request"] += 1
    elif status != 200 and not isinstance(answer.get("error"), str):
        tally.broken["a refusal without a sentence"] += 1


async def _exchange(port: int, body: bytes, kind: str) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [f"POST {PATH} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}"]
        head = "\r\n".join([*lines, "", ""]).encode()
        writer.write(head + body[: len(body) // 2])
        if kind == "slow":
            await writer.drain()
            await asyncio.sleep(0.2)
        writer.write(body[len(body) // 2 :])
        if kind == "aborted":
            return 0, None
        answer = await asyncio.wait_for(reader.read(), 30)
        status, _, rest = answer.partition(b"\r\n")
        return int(status.split()[1]), json_format.loads(rest.partition(b"\r\n\r\n")[2])
    except (IndexError, ValueError) as error:
        raise EOFError from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _good(rows: int) -> bytes:
    return json_format.dumps({"instances": [[[rows] * 28] * 28] * rows}).encode()


def _bad(chance: random.Random) -> bytes:
    return chance.choice(
        (b"{", b'{"instances": [[1, 2]]}', b'{"instances": NaN}', b'{"instances": [["x"]]}', b"[" * 10_000, b"")
    )


async def _capacity(port: int, seconds: float) -> float:
    """Good requests that are answered in a second, one after another on 16 connections each."""
    end, done = time.perf_counter() + seconds, 0

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await _exchange(port, _good(2), "good")
            done += 1

    await asyncio.gather(*(client() for _ in range(16)))
    return done / seconds


async def _memory(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    found = [line for line in text.splitlines() if line.startswith("process_resident_memory_bytes ")]
    return int(float(found[0].split()[1])) if found else 0


if __name__ == "__main__":
    sys.exit(typer.run(main))
