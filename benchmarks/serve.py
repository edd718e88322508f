"""Rudel's server against MLServer and KServe's Python server: the time that it adds, and how many requests it answers.

    python benchmarks/serve.py --run runs/quickdraw --mlserver mlserver/bin/python --kserve kserve/bin/python

All compute the article's MLP by JAX, on the same weights: Rudel as it serves any run, the rivals in a runtime as their
users write them (contestants/serve_mlp.py), in environments of their own, as their packages do not go together:

    python -m venv mlserver && mlserver/bin/pip install mlserver jax 'uvloop<0.22'
    python -m venv kserve && kserve/bin/pip install kserve jax

Overhead is what a request takes, from one client by a connection that stays open, less the median of calling the model
in a Python process. Throughput is what a number of clients get who ask again as soon as they have their answer; the
program that asks (contestants/serve_client.py) shares the cores with the server. JSON and binary tensors are those of
the Open Inference Protocol, which all three speak (MLServer's REST server has no binary tensors). MLServer takes part
with and without its adaptive batching, in one process and with a worker.
"""

import base64
import json as json_format
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import measure
import numpy as np
import typer
from cluster_record import wide_console
from rich.table import Table
from serve_places import NAME, Place, free_port, kserve, mlserver, rudel_server, serving
from show import claims_table

CLIENT = Path(__file__).with_name("contestants") / "serve_client.py"


def main(
    run: Annotated[Path, typer.Option(help="A finished run of quickdraw.")],
    mlserver_python: Annotated[Path | None, typer.Option("--mlserver", help="A Python with MLServer and JAX.")] = None,
    kserve_python: Annotated[Path | None, typer.Option("--kserve", help="A Python with KServe and JAX.")] = None,
    clients: Annotated[int, typer.Option(min=1, help="For the throughput.")] = 64,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of every measurement.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often all is measured.")] = 3,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        direct = direct_seconds(run, Path(folder))
        places = [rudel_server(run, NAME)]
        if mlserver_python:
            places += mlserver(mlserver_python, Path(folder) / "weights.npz", NAME, Path(folder))
        if kserve_python:
            places.append(kserve(kserve_python, Path(folder) / "weights.npz", NAME))
        measured = []
        for _ in range(rounds):
            measured.append({place.name: asked(place, clients, seconds) for place in places})
    report: dict[str, Any] = {"machine": measure.machine(), "direct": direct, "clients": clients, "rounds": measured}
    console = wide_console()
    console.print(overhead_table(direct, measured))
    console.print(throughput_table(measured, clients))
    console.print(claims_table(verdicts(direct, measured, clients)))
    if json:
        json.write_text(json_format.dumps(report, indent=2))


def direct_seconds(run: Path, folder: Path) -> dict[str, float]:
    """How long a call of the model takes in a process that does nothing else; leaves its weights in `folder`."""
    done = subprocess.run(
        [sys.executable, CLIENT.with_name("serve_direct.py"), run, folder / "weights.npz"],
        capture_output=True, text=True, check=True, env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    return json_format.loads(done.stdout.splitlines()[-1])


def asked(place: Place, clients: int, seconds: float) -> measure.Numbers:
    """What one server does: overhead by one client, throughput by many, in every form that it takes."""
    numbers: measure.Numbers = {}
    port = free_port()
    with serving(place, port):
        for form in place.forms:
            for count in (1, clients):
                measured = load(port, request(form), count, seconds)
                numbers |= {f"{form} {count} {key}": value for key, value in measured.items()}
    return numbers


def request(form: str) -> dict[str, Any]:
    """One drawing, as a request."""
    drawing = np.random.default_rng(0).integers(0, 256, (1, 28, 28)).astype(np.float32)
    about: dict[str, Any] = {"name": "input_layer", "shape": [1, 28, 28], "datatype": "FP32"}
    if form == "json":
        body = json_format.dumps({"inputs": [about | {"data": drawing.reshape(-1).tolist()}]}).encode()
        headers = {"Content-Type": "application/json"}
    else:
        given = about | {"parameters": {"binary_data_size": drawing.nbytes}}
        head = json_format.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
        body = head + drawing.tobytes()
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return {"path": f"/v2/models/{NAME}/infer", "body": base64.b64encode(body).decode(), "headers": headers}


def load(port: int, what: Mapping[str, Any], clients: int, seconds: float) -> dict[str, float]:
    """Lets clients ask; they are in a process of their own."""
    job = {"host": "127.0.0.1", "port": port, "clients": clients, "seconds": seconds, **what}
    done = subprocess.run([sys.executable, CLIENT, json_format.dumps(job)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise measure.BenchmarkError(f"The clients got no answer ({done.stderr.strip().splitlines()[-1]}).")
    return json_format.loads(done.stdout)


def overhead_table(direct: Mapping[str, float], rounds: measure.Rounds) -> Table:
    """Milliseconds that a server adds to calling the model."""
    table = Table("server", "form", "p50, ms", "p99, ms", title=f"added to a call of {direct['p50'] * 1e3:.3f} ms")
    for name, form in _rows(rounds):
        cells = []
        for share in ("p50", "p99"):
            found = measure.spread(measure.values(rounds, name, f"{form} 1 {share}"))
            cells.append(_told([1e3 * (s - direct["p50"]) for s in (found.median, found.least, found.largest)], ".2f"))
        table.add_row(name, form, *cells)
    return table


def throughput_table(rounds: measure.Rounds, clients: int) -> Table:
    """Requests a second."""
    table = Table("server", "form", "requests/s", "p50, ms", "p99, ms", "Rudel over it", title=f"{clients} clients")
    for name, form in _rows(rounds):
        requests = measure.spread(measure.values(rounds, name, f"{form} {clients} requests"))
        times = [measure.spread(measure.values(rounds, name, f"{form} {clients} {p}")).median for p in ("p50", "p99")]
        ratios = measure.paired_ratios(rounds, f"{form} {clients} requests", "rudel", name)
        ratio = measure.spread(ratios)
        table.add_row(
            name,
            form,
            _told([requests.median, requests.least, requests.largest], ",.0f"),
            *(f"{1e3 * each:.1f}" for each in times),
            _told([ratio.median, ratio.least, ratio.largest], ".2f"),
        )
    return table


def verdicts(direct: Mapping[str, float], rounds: measure.Rounds, clients: int) -> list[dict[str, Any]]:
    """What Rudel claims, and whether the rounds bear it out."""
    found: list[dict[str, Any]] = []
    for form in ("json", "binary"):
        for share, most in (("p50", 1.5), ("p99", 5.0)):
            added = 1e3 * (measure.spread(measure.values(rounds, "rudel", f"{form} 1 {share}")).median - direct["p50"])
            found.append({"text": f"{form}: adds at most {most} ms ({share})", "median": added, "holds": added <= most})
        for name, other in _rows(rounds):
            if other == form and name != "rudel":
                ratio = measure.spread(
                    measure.paired_ratios(rounds, f"{form} {clients} requests", "rudel", name)
                ).median
                text = f"{form}: at least 3 times the requests per second of {name}"
                found.append({"text": text, "median": ratio, "holds": ratio >= 3})
    return found


def _rows(rounds: measure.Rounds) -> list[tuple[str, str]]:
    return [
        (name, form)
        for name in rounds[0]
        for form in ("json", "binary")
        if any(key.startswith(f"{form} ") for key in rounds[0][name])
    ]


def _told(numbers: Sequence[float], form: str) -> str:
    median, least, largest = (format(number, form) for number in numbers)
    return f"{median} ({least} to {largest})"


if __name__ == "__main__":
    typer.run(main)
