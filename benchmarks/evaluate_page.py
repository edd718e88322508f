"""The page of the evaluation, made of its numbers alone: the same numbers give the same page."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from evaluate_cells import (
    ALONE,
    BATCH_SIZE,
    CENTRE_HOSTS,
    CENTRE_RATES,
    EXTRAPOLATED,
    HOSTS,
    MODELS,
    RATES,
    RIVALS,
    RUDEL,
    default_cells,
    every_cell,
)
from evaluate_numbers import Numbers

TITLES: Mapping[str, str] = {
    "single": "`single` (one host)",
    "single-ema": "`single`, with EMA (one host)",
    "mesh": "`mesh`",
    "diloco": "`diloco`",
    "async": "`async`",
    "mwms": "MultiWorkerMirroredStrategy",
    "parameter-server": "ParameterServerStrategy",
    "ddp": "PyTorch DDP",
    "post-local-sgd": "PyTorch PostLocalSGD",
    "flower": "Flower",
}

SEVERAL = tuple(strategy for strategy in RUDEL if strategy not in ALONE)

DEFINITION = """\
Time to accuracy is defined in the manner of [AlgoPerf](https://github.com/mlcommons/algorithmic-efficiency):

- **Clock.** It runs from the first training step, when data and programs are on the hosts and everything is compiled,
  and counts training only: evaluation and checkpoints are left out for everybody. On several hosts, exchanges, waiting
  and what the driver does meanwhile count.
- **Evaluations.** Every strategy and tool is evaluated on the same validation set after every so many examples: those
  of {evaluations} steps of {batch} for the three models below. A tool that can be evaluated only at the end of its own
  rounds is evaluated there.
- **Target.** A validation accuracy that the median training on one host reaches. The time counts until the first
  evaluation at or above it; nothing is interpolated.
- **Seeds.** Every training is run with {seeds} of weights, dropout and order. The page gives the median, and, in
  brackets, the fastest and the slowest. A training that misses the target counts as infinite, and a cell whose median
  is infinite is "not reached".
- **Settings.** Rudel's defaults. For other tools, the best settings we found ([benchmarks](../benchmarks/README.md)).
"""

_BUSY = 0.95
_NOT_MEASURED, _NOT_REACHED = "not measured", "not reached"
_RUN_AGAIN = """\
```
sudo "$(command -v python)" benchmarks/evaluate.py --data FOLDER --python PY --rival-python PY \\
    --json docs/evaluation.json --again
sudo "$(command -v python)" benchmarks/evaluate.py --data FOLDER --python PY --rival-python PY \\
    --json docs/evaluation.json --only 'diloco/mlp/*/100'
python benchmarks/evaluate.py --json docs/evaluation.json --page docs/evaluation.md --plots docs/images
```

The first line measures everything on this page, in about two hours; after an interruption, run it again without
`--again` to continue. The second measures some cells, and `--all` in the place of `--only` the full product, which
takes a day. The last makes the page and its pictures from the numbers. `FOLDER` has drawings in *Quick, Draw!*'s
layout; [benchmarks](../benchmarks/README.md#several-computers) says how to make the environments. The lab needs Linux
and root.
"""


def written(document: Mapping[str, Any]) -> str:
    """The page, in Markdown.

    Args:
        document: what `evaluate.py` keeps.
    """
    numbers = Numbers(document)
    parts = [
        "# Evaluation",
        "`benchmarks/evaluate.py` makes this page from [its numbers](evaluation.json); nothing on it is written by "
        "hand.",
        "## Time to accuracy",
        _defined(numbers),
        *_setting(document),
        "## Which strategy, at which link speed",
        *_in_short(numbers),
        "![Seconds to the target accuracy over link speed, for each strategy](images/evaluation-links.svg)",
        _table(("", *(f"{rate:,} Mbit/s" for rate in RATES)), _by_rate(numbers)),
        "Seconds to the target on four hosts, with the MLP; in brackets the fastest and the slowest seed, and the "
        "speed-up over one host.",
        *_against_ema(numbers),
        "## How many hosts",
        "![Speed-up over the number of hosts, at 100 and at 20 Mbit/s](images/evaluation-hosts.svg)",
        _table(("", "Mbit/s", *(f"{hosts} hosts" for hosts in HOSTS[1:])), _by_hosts(numbers, numbers.speed_up)),
        "Speed-up: time to accuracy of one host over that of so many; in brackets the efficiency, speed-up over "
        "hosts. The same for examples/s, whatever is learned from them:",
        _table(("", "Mbit/s", *(f"{hosts} hosts" for hosts in HOSTS[1:])), _by_hosts(numbers, numbers.throughput)),
        "## Compared with other tools",
        "![Seconds and megabytes to the target accuracy, for each strategy and tool](images/evaluation-tools.svg)",
        _table(
            (
                "",
                "Mbit/s",
                "ms a step",
                "examples/s",
                "seconds to the target",
                "speed-up",
                "MB to it",
                "in the end",
            ),
            _by_tool(numbers),
        ),
        "Four hosts, the MLP. A step is 32 examples, whichever host computes them; examples/s are multiples of those "
        "of one host. In the end: accuracy after the same examples, the mean over the seeds.",
        "## Small and large models",
        "![Speed-up of four hosts for each model, at 100 and at 20 Mbit/s](images/evaluation-models.svg)",
        _table(
            (
                "model",
                "",
                "Mbit/s",
                "ms a step",
                "examples/s",
                "seconds to the target",
                "speed-up",
                "MB to it",
                "in the end",
            ),
            _by_model(numbers),
        ),
        "## What was not measured",
        *_missing(numbers),
        "## How it was measured",
        _how(document),
        "## All numbers",
        _table(
            (
                "cell",
                "ms a step",
                "steps timed",
                "steps to the target",
                "seconds to it",
                "MB to it",
                "cores busy",
                "by others",
            ),
            _all(numbers),
        ),
        "Names are strategy, model, hosts and Mbit/s. Cores busy: the mean of this computer while the clock ran; by "
        "others: those busy with something else than the evaluation.",
        "## Run it again",
        _RUN_AGAIN.rstrip(),
    ]
    return "\n\n".join(parts) + "\n"


def seconds_of(strategy: str, found: Mapping[str, Any] | None) -> str:
    """Seconds to the target, as a table has them: the median, and the range over the seeds."""
    if found is None:
        return _NOT_MEASURED
    seconds, (low, high) = found["target_seconds"], found["target_range"]
    if seconds is None:
        return _NOT_REACHED
    slowest = "missed" if math.isinf(high) else _short(high)
    return _mark(strategy) + _short(seconds) + (f" [{_short(low)}-{slowest}]" if found["seeds"] > 1 else "")


def _defined(numbers: Numbers) -> str:
    looks = ", ".join(f"{net.eval_every}" for net in MODELS.values())
    count = max((found["seeds"] for found in numbers.cells.values()), default=0)
    seeds = "one seed" if count == 1 else f"{count} seeds"
    return DEFINITION.format(evaluations=looks, batch=BATCH_SIZE, seeds=seeds).rstrip()


def _setting(document: Mapping[str, Any]) -> Iterator[str]:
    job, machine = document["job"], document["machine"]
    yield (
        f"Hosts are nodes of a simulated Wi-Fi ([`rudel lab`](lab.md)) with {job['cpu']:g} of a core each, however "
        f"many they are, {job['latency']:g} ms apart, on {machine['cores']} cores of {_article(machine['processor'])}. "
        f"They learn drawings of {len(job['classes'])} classes of *Quick, Draw!* in batches of {BATCH_SIZE}:"
    )
    rows = [
        (net.title, f"{net.weights:,}", f"{net.weights * 4 / 1e6:.2g} MB", f"{net.steps:,}", f"{net.target:.2f}")
        for net in MODELS.values()
    ]
    yield _table(("model", "weights", "in float32", f"steps of {BATCH_SIZE}", "target"), rows)
    yield "~ marks numbers extrapolated from some of the steps."


def _against_ema(numbers: Numbers) -> Iterator[str]:
    alone = numbers.alone("mlp", "single-ema")
    ups = {
        rate: up for rate in CENTRE_RATES if (up := numbers.speed_up("diloco", "mlp", CENTRE_HOSTS, rate, "single-ema"))
    }
    if alone and ups:
        listed = " and ".join(f"{_ratio(up)} at {rate} Mbit/s" for rate, up in ups.items())
        yield (
            "One host learns faster with an exponential moving average of its weights (Keras' `use_ema`, 0.99): "
            f"{seconds_of('single-ema', alone)} s. Against that, the speed-up of `diloco` on {CENTRE_HOSTS} hosts "
            f"without an average is {listed}."
        )


def _in_short(numbers: Numbers) -> Iterator[str]:
    lines = []
    for rate in RATES:
        ups = {s: up for s in SEVERAL if (up := numbers.speed_up(s, "mlp", CENTRE_HOSTS, rate)) is not None}
        if not ups:
            continue
        best = max(ups, key=lambda strategy: ups[strategy])
        if ups[best] > 1:
            lines.append(f"- {rate:,} Mbit/s: {TITLES[best]}, {ups[best]:.1f}x as fast as one host.")
        else:
            lines.append(f"- {rate:,} Mbit/s: one host by itself; {TITLES[best]} on four is {ups[best]:.2f}x as fast.")
    if lines:
        yield "Fastest on four hosts, with the MLP:"
        yield "\n".join(lines)


def _by_rate(numbers: Numbers) -> Iterator[Sequence[str]]:
    for baseline in ALONE:
        yield TITLES[baseline], *[seconds_of(baseline, numbers.alone("mlp", baseline))] * len(RATES)
    for strategy in (*SEVERAL, *RIVALS):
        found = [numbers.of(strategy, "mlp", CENTRE_HOSTS, rate) for rate in RATES]
        if any(found):
            yield TITLES[strategy], *(_with_speed_up(numbers, strategy, rate) for rate in RATES)


def _with_speed_up(numbers: Numbers, strategy: str, rate: int) -> str:
    found = numbers.of(strategy, "mlp", CENTRE_HOSTS, rate)
    seconds, up = seconds_of(strategy, found), numbers.speed_up(strategy, "mlp", CENTRE_HOSTS, rate)
    return (seconds if up is None else f"{seconds} ({_ratio(up)})") + (_burdened(numbers, found) if found else "")


def _by_hosts(numbers: Numbers, times: Callable[..., float | None]) -> Iterator[Sequence[str]]:
    for strategy in (*SEVERAL, *RIVALS):
        for rate in CENTRE_RATES:
            found = {hosts: numbers.of(strategy, "mlp", hosts, rate) for hosts in HOSTS[1:]}
            if sum(each is not None for each in found.values()) > 1:
                cells = (_efficient(numbers, each, times(strategy, "mlp", n, rate), n) for n, each in found.items())
                yield TITLES[strategy], str(rate), *cells


def _efficient(numbers: Numbers, found: Mapping[str, Any] | None, times: float | None, hosts: int) -> str:
    if found is None or times is None:
        return _NOT_MEASURED if found is None else _NOT_REACHED
    return f"{_ratio(times)} ({times / hosts:.0%}){_burdened(numbers, found)}"


def _by_tool(numbers: Numbers) -> Iterator[Sequence[str]]:
    for baseline in ALONE:
        yield TITLES[baseline], "", *_described(numbers, baseline, "mlp", 1, CENTRE_RATES[0])
    for rate in CENTRE_RATES:
        for strategy in (*SEVERAL, *RIVALS):
            yield TITLES[strategy], str(rate), *_described(numbers, strategy, "mlp", CENTRE_HOSTS, rate)


def _by_model(numbers: Numbers) -> Iterator[Sequence[str]]:
    for model, net in MODELS.items():
        yield net.title, TITLES["single"], "", *_described(numbers, "single", model, 1, CENTRE_RATES[0])
        for rate in CENTRE_RATES:
            for strategy in (*SEVERAL, *RIVALS):
                also = model != "mlp" and numbers.of(strategy, model, CENTRE_HOSTS, rate)
                if strategy in SEVERAL or also:
                    yield (
                        net.title,
                        TITLES[strategy],
                        str(rate),
                        *_described(numbers, strategy, model, CENTRE_HOSTS, rate),
                    )


def _described(numbers: Numbers, strategy: str, model: str, hosts: int, rate: int) -> Sequence[str]:
    """Milliseconds a step, examples a second, seconds to the target, speed-up, megabytes to the target, accuracy."""
    found, up = numbers.of(strategy, model, hosts, rate), numbers.speed_up(strategy, model, hosts, rate)
    if found is None:
        return _NOT_MEASURED, "", "", "", "", ""
    accuracy, times = found["accuracy"], numbers.throughput(strategy, model, hosts, rate)
    air = found["target_bytes"]
    return (
        _short(found["step_seconds"] * 1e3) + _burdened(numbers, found),
        "" if times is None else _ratio(times),
        seconds_of(strategy, found),
        "" if up is None else _mark(strategy) + _ratio(up),
        "" if air is None or hosts == 1 else _mark(strategy) + _short(air / 1e6),
        "as one host" if accuracy is None else f"{accuracy:.3f}",
    )


def _missing(numbers: Numbers) -> Iterator[str]:
    default, everything = default_cells(), every_cell()
    measured = sum(cell.name in numbers.cells for cell in everything)
    yield f"{measured} of the {len(everything)} cells of the full product are measured; nothing else is guessed."
    without = [cell.name for cell in default if cell.name not in numbers.cells and cell.name not in numbers.failures]
    if without:
        yield "Meant to be on this page, and not measured yet: " + ", ".join(f"`{name}`" for name in without) + "."
    if failed := {name: why for name, why in numbers.failures.items() if name not in numbers.cells}:
        yield "Tried, and failed:"
        yield "\n".join(f"- `{name}`: {why}" for name, why in failed.items())


def _how(document: Mapping[str, Any]) -> str:
    quota, cores = document["job"]["cpu"], document["machine"]["cores"]
    return f"""\
- What trains alone, and what all-reduces gradients in every step (`mesh`, MultiWorkerMirroredStrategy, DDP), is timed
  over some steps. All of them learn in a step what one host learns from the same {BATCH_SIZE} examples, so their steps
  to the target are those of whole trainings on one computer, one for each seed, and their seconds are steps times
  seconds a step.
- ParameterServerStrategy is timed over some steps of its workers, too. Its gradients are of older weights, which costs
  some more steps; they are not counted, which is in its favour. The parameter server has the rest of the computer.
- `diloco`, `async`, PostLocalSGD and Flower train to the end. Flower is `start_client` with clients in NumPy, with
  rounds of 256 steps; PostLocalSGD averages every 64 steps.
- Bytes are those of all frames on the network while the clock ran: a step's, times the steps to the target.
- Nodes with {quota:g} of a core share {cores} cores with the driver and with the simulated network itself, which costs
  the more the faster it is. † marks cells for which these cores were busy for {_BUSY:.0%} of the time or more: with a
  computer for each host, it would have been faster. ‡ marks cells during which something else used the computer: they
  are to be measured again.
- A node is slowed to its share when everything is ready. `diloco` and `async` measure speeds and links after that."""


def _all(numbers: Numbers) -> Iterator[Sequence[str]]:
    for cell in every_cell():
        if found := numbers.cells.get(cell.name):
            reached, air = found["target_steps"], found["target_bytes"]
            yield (
                f"`{cell.name}`",
                _short(found["step_seconds"] * 1e3) + _burdened(numbers, found),
                f"{found['steps']:,.0f}",
                _NOT_REACHED if reached is None else f"{reached:,.0f}",
                seconds_of(cell.strategy, found),
                "" if air is None or cell.hosts == 1 else _mark(cell.strategy) + _short(air / 1e6),
                *("" if cores is None else f"{cores:.1f}" for cores in (found["cores_busy"], found["cores_of_others"])),
            )


def _burdened(numbers: Numbers, found: Mapping[str, Any]) -> str:
    busy = found["cores_busy"]
    return ("†" if busy and busy >= _BUSY * numbers.cores else "") + ("‡" if found["disturbed"] else "")


def _mark(strategy: str) -> str:
    return "~" if strategy in EXTRAPOLATED else ""


def _ratio(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2g}"


def _short(number: float) -> str:
    """Three digits that count."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _table(headings: Sequence[str], rows: Any) -> str:
    return "\n".join(_row(cells) for cells in (headings, ["---"] * len(headings), *rows))


def _row(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
