"""The evaluation's part of the page of results, made of its numbers alone: the same numbers give the same text."""

import math
from collections.abc import Iterator, Mapping, Sequence
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
In the manner of [AlgoPerf](https://github.com/mlcommons/algorithmic-efficiency):

- **Clock.** From the first training step, with data and programs on the hosts and compiled, to the target.
  Evaluations and checkpoints do not count; exchanges, waiting and the driver's work do.
- **Evaluations.** On the same validation set after every {evaluations} steps of {batch} examples (the three models
  below), or at the end of a tool's own rounds.
- **Target.** The first evaluation with at least the validation accuracy below, which the median training on one host
  reaches.
- **Seeds.** {seeds}, of weights, dropout and order: the median, and in brackets the range. A miss counts as
  infinite; a cell with an infinite median is "not reached".
- **Settings.** Rudel's defaults; for other tools, the [best we found](../benchmarks/README.md).
"""

BEGIN, END = "<!-- the evaluation: begin -->", "<!-- the evaluation: end -->"
"""Lines between which a page has the evaluation."""

_BUSY = 0.95

_MARKS = {
    "†": f"cells for which the cores were busy for {_BUSY:.0%} of the time or more",
    "‡": "cells during which something else used the computer",
    "§": "cells measured on an earlier day, when it may have been slower",
}
"""Marks of cells, and which have them."""

_NOT_MEASURED, _NOT_REACHED = "–", "not reached"
_RUN_AGAIN = """\
```
sudo "$(command -v python)" benchmarks/evaluate.py --data FOLDER --python PY --rival-python PY \\
    --json docs/evaluation.json
python benchmarks/evaluate.py --json docs/evaluation.json --page docs/results.md --plots docs/images
```

The first command measures what is missing; `--only 'diloco/mlp/*/100'` measures some cells. The second writes this
part of the page. [Environments](../benchmarks/README.md#several-computers).
"""


def written(page: str, document: Mapping[str, Any]) -> str:
    """A page with the evaluation between its two marks, in Markdown.

    Args:
        page: the page as it is.
        document: what `evaluate.py` keeps.

    Raises:
        ValueError: the page has no marks, or has some more than once.
    """
    if not page.count(BEGIN) == page.count(END) == 1:
        raise ValueError(f"The page must have one line `{BEGIN}`, and below it one line `{END}`.")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_evaluation(document)}\n\n{END}{after}"


def _evaluation(document: Mapping[str, Any]) -> str:
    numbers = Numbers(document)
    parts = [
        "## Several hosts",
        "`benchmarks/evaluate.py` makes this part from [its numbers](evaluation.json), which are also a "
        "[table](evaluation.csv).",
        "### Time to accuracy",
        _defined(numbers),
        *_setting(document),
        "### Link speeds",
        "![Seconds to the target accuracy over link speed, for each strategy](images/evaluation-links.svg)",
        _table(("", *(f"{rate:,} Mbit/s" for rate in RATES)), _by_rate(numbers)),
        "Seconds to the target on four hosts, with the MLP; in round brackets the speed-up over one host.",
        *_alone(numbers),
        "### Numbers of hosts",
        "![Speed-up over the number of hosts, at 100 and at 20 Mbit/s](images/evaluation-hosts.svg)",
        _table(("", "Mbit/s", *(f"{hosts} hosts" for hosts in HOSTS[1:])), _by_hosts(numbers)),
        "Speed-up: time to accuracy of one host over that of several; in brackets the efficiency.",
        "### Other tools, and other models",
        "![Seconds and megabytes to the target accuracy, for each strategy and tool](images/evaluation-tools.svg)",
        "![Speed-up of four hosts for each model, at 100 and at 20 Mbit/s](images/evaluation-models.svg)",
        _table(
            ("model", "", "Mbit/s", "examples/s", "seconds to the target", "speed-up", "MB to it", "final"),
            _by_model(numbers),
        ),
        "Four hosts; examples/s are multiples of one host's. Final: accuracy after all examples, the seeds' mean.",
        *_missing(numbers),
    ]
    shown = "\n\n".join(parts)
    how = _how(document, [f"{mark} marks {which}." for mark, which in _MARKS.items() if mark in shown])
    return "\n\n".join([shown, "### How it was measured", how, "### Run it again", _RUN_AGAIN.rstrip()])


def comma_separated(document: Mapping[str, Any]) -> str:
    """All numbers as comma-separated values; a cell is strategy/model/hosts/Mbit/s."""
    numbers = Numbers(document)
    names = (
        "step_seconds", "steps", "target_steps", "target_seconds", "target_bytes", "accuracy", "cores_busy",
        "cores_of_others",
    )  # fmt: skip
    rows = [
        ",".join([cell.name, *("" if found[name] is None else f"{found[name]:.6g}" for name in names)])
        for cell in every_cell()
        if (found := numbers.cells.get(cell.name))
    ]
    return "\n".join([",".join(["cell", *names]), *rows]) + "\n"


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
    seeds = "One" if count == 1 else str(count)
    return DEFINITION.format(evaluations=looks, batch=BATCH_SIZE, seeds=seeds).rstrip()


def _setting(document: Mapping[str, Any]) -> Iterator[str]:
    job, machine = document["job"], document["machine"]
    yield (
        f"Hosts are nodes of a simulated Wi-Fi ([`rudel lab`](lab.md)) with {job['cpu']:g} of a core each, however "
        f"many they are, {job['latency']:g} ms one way, on {machine['cores']} cores of "
        f"{_article(machine['processor'])}. They learn drawings of {len(job['classes'])} classes of *Quick, "
        f"Draw!* in batches of {BATCH_SIZE}:"
    )
    rows = [
        (net.title, f"{net.weights:,}", f"{net.weights * 4 / 1e6:.2g} MB", f"{net.steps:,}", f"{net.target:.2f}")
        for net in MODELS.values()
    ]
    yield _table(("model", "weights", "in float32", f"steps of {BATCH_SIZE}", "target"), rows)
    yield "~ marks numbers extrapolated from some of the steps, – cells that are not measured."


def _alone(numbers: Numbers) -> Iterator[str]:
    found = {baseline: numbers.alone("mlp", baseline) for baseline in ALONE}
    if alone := found["single"]:
        yield f"One host takes {seconds_of('single', alone)} s."
    ups = {
        rate: up for rate in CENTRE_RATES if (up := numbers.speed_up("diloco", "mlp", CENTRE_HOSTS, rate, "single-ema"))
    }
    if (averaged := found["single-ema"]) and ups:
        listed = " and ".join(f"{_ratio(up)} at {rate} Mbit/s" for rate, up in ups.items())
        yield (
            "It learns faster with an exponential moving average of its weights (Keras' `use_ema`, 0.99): "
            f"{seconds_of('single-ema', averaged)} s. Against that, the speed-up of `diloco` on {CENTRE_HOSTS} hosts "
            f"without an average is {listed}."
        )


def _by_rate(numbers: Numbers) -> Iterator[Sequence[str]]:
    for strategy in (*SEVERAL, *RIVALS):
        found = [numbers.of(strategy, "mlp", CENTRE_HOSTS, rate) for rate in RATES]
        if any(found):
            yield TITLES[strategy], *(_with_speed_up(numbers, strategy, rate) for rate in RATES)


def _with_speed_up(numbers: Numbers, strategy: str, rate: int) -> str:
    found = numbers.of(strategy, "mlp", CENTRE_HOSTS, rate)
    seconds, up = seconds_of(strategy, found), numbers.speed_up(strategy, "mlp", CENTRE_HOSTS, rate)
    return (seconds if up is None else f"{seconds} ({_ratio(up)})") + (_burdened(numbers, found) if found else "")


def _by_hosts(numbers: Numbers) -> Iterator[Sequence[str]]:
    for strategy in (*SEVERAL, *RIVALS):
        for rate in CENTRE_RATES:
            found = {hosts: numbers.of(strategy, "mlp", hosts, rate) for hosts in HOSTS[1:]}
            if sum(each is not None for each in found.values()) > 1:
                ups = {hosts: numbers.speed_up(strategy, "mlp", hosts, rate) for hosts in found}
                yield TITLES[strategy], str(rate), *(_efficient(numbers, found[n], ups[n], n) for n in found)


def _efficient(numbers: Numbers, found: Mapping[str, Any] | None, times: float | None, hosts: int) -> str:
    if found is None or times is None:
        return _NOT_MEASURED if found is None else _NOT_REACHED
    return f"{_ratio(times)} ({times / hosts:.0%}){_burdened(numbers, found)}"


def _by_model(numbers: Numbers) -> Iterator[Sequence[str]]:
    for model, net in MODELS.items():
        cells = [("single", 1, CENTRE_RATES[0])]
        cells += [(strategy, CENTRE_HOSTS, rate) for rate in CENTRE_RATES for strategy in ("diloco", "async")]
        for strategy, hosts, rate in cells:
            if described := _described(numbers, strategy, model, hosts, rate):
                yield net.title, TITLES[strategy], str(rate) if hosts > 1 else "", *described


def _described(numbers: Numbers, strategy: str, model: str, hosts: int, rate: int) -> Sequence[str] | None:
    """Examples a second, seconds to the target, speed-up, megabytes to the target, accuracy."""
    found, up = numbers.of(strategy, model, hosts, rate), numbers.speed_up(strategy, model, hosts, rate)
    if found is None:
        return None
    accuracy, times = found["accuracy"], numbers.throughput(strategy, model, hosts, rate)
    air = found["target_bytes"]
    return (
        "" if times is None else _ratio(times) + _burdened(numbers, found),
        seconds_of(strategy, found),
        "" if up is None else _mark(strategy) + _ratio(up),
        "" if air is None or hosts == 1 else _mark(strategy) + _short(air / 1e6),
        "as one host" if accuracy is None else f"{accuracy:.3f}",
    )


def _missing(numbers: Numbers) -> Iterator[str]:
    everything = every_cell()
    measured = sum(cell.name in numbers.cells for cell in everything)
    failed = sorted(name for name in numbers.failures if name not in numbers.cells)
    without = f"; tried, and failed: {', '.join(f'`{name}`' for name in failed)}" if failed else ""
    yield f"{measured} of the {len(everything)} cells of the full product are measured{without}."


def _how(document: Mapping[str, Any], marks: Sequence[str]) -> str:
    quota, cores = document["job"]["cpu"], document["machine"]["cores"]
    measured = any(name.startswith("post-local-sgd/") for name in document["cells"])
    post_local_sgd = ", PostLocalSGD (every 64 steps)" if measured else ""
    about = f"""\
- One host, and tools that all-reduce in every step (`mesh`, MultiWorkerMirroredStrategy, DDP), are timed over some
  steps, and take those to the target that a training on one computer takes. So does ParameterServerStrategy, in its
  favour: its gradients are of older weights.
- `diloco`, `async`{post_local_sgd} and Flower (NumPy clients, rounds of 256) train to the end.
- Bytes are all frames on the network while the clock ran.
- Nodes with {quota:g} of a core share {cores} cores with driver and network."""
    return "\n- ".join([about, *marks])


def _burdened(numbers: Numbers, found: Mapping[str, Any]) -> str:
    busy = found["cores_busy"]
    holds = busy and busy >= _BUSY * numbers.cores, found["disturbed"], found["day"] < numbers.day
    return "".join(mark for mark, held in zip(_MARKS, holds, strict=True) if held)


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
