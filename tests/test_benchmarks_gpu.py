"""`benchmarks/gpu.py` runs without an accelerator, too, and counts right; and what `recommend.py` judges."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudel.backend import keras_on_jax

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
keras = keras_on_jax()


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "contestants"))
    return importlib.import_module


def operations(module: Any, layers: list[Any], x: np.ndarray) -> int:
    """Of a training step."""
    model = keras.Sequential([keras.Input(x.shape[1:]), *layers])
    model.compile("sgd", "mse")
    y = np.zeros((len(x), *model.output_shape[1:]), "float32")
    model._symbolic_build(data_batch=(x, y, None))
    model.optimizer.build(model.trainable_variables)
    state = [model.trainable_variables, model.non_trainable_variables, model.optimizer.variables]
    values = [[variable.value for variable in part] for part in (*state, model.metrics_variables)]
    return module.flops(model.train_step, tuple(values), (x, y))


def test_operations_of_a_step_are_counted(benchmark_module: Any) -> None:
    flops = benchmark_module("gpu_flops")
    dense = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)]
    # forwards, and backwards for the weights of both and for what lies between them
    assert operations(flops, dense, np.zeros((32, 8), "float32")) == 2 * 32 * (2 * 8 * 16 + 3 * 16 * 4)


def test_operations_of_convolutions_are_those_of_their_outputs(benchmark_module: Any) -> None:
    flops = benchmark_module("gpu_flops")
    first = 2 * 4 * 8 * 8 * 3 * 3 * 2 * 5
    second = 2 * 4 * 4 * 4 * 3 * 3 * 5 * 6
    layers = [keras.layers.Conv2D(5, 3, padding="same"), keras.layers.Conv2D(6, 3, strides=2, padding="same")]
    assert operations(flops, layers, np.zeros((4, 8, 8, 2), "float32")) == 2 * first + 3 * second


def test_loops_count_as_often_as_they_run(benchmark_module: Any) -> None:
    import jax

    flops = benchmark_module("gpu_flops")
    matrix = np.ones((8, 8), "float32")
    assert flops.flops(lambda a: jax.lax.scan(lambda c, _: (c @ a, None), a, None, length=5)[0], matrix) == 5 * 2 * 8**3
    assert flops.flops(jax.jit(lambda a: jax.checkpoint(lambda b: b @ b)(a) @ a), matrix) == 2 * 2 * 8**3


@pytest.mark.parametrize(
    ("kind", "bfloat16"),
    [
        *(("NVIDIA H200", 989.5), ("NVIDIA H100 80GB HBM3", 989.5), ("NVIDIA H100 PCIe", 756.5), ("NVIDIA L4", 121)),
        *(("NVIDIA L40S", 366), ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA GeForce RTX 4090", 165.2), ("TPU v4", 275)),
        *(("TPU v5 lite", 197), ("TPU v5", 459), ("TPU v6 lite", 918), ("Tesla T4", None)),
    ],
)
def test_makers_figures_are_found_by_the_name_that_jax_gives(
    benchmark_module: Any, kind: str, bfloat16: float | None
) -> None:
    ceiling = benchmark_module("gpu_ceilings").ceiling_of(kind)
    assert ceiling.tflops.get("bfloat16") == bfloat16
    assert ceiling.source


@pytest.mark.parametrize("kind", ["cpu", "NVIDIA L20", "NVIDIA A10G", "AMD Instinct MI300X", "NVIDIA GeForce RTX 40"])
def test_what_is_not_known_is_not_guessed(benchmark_module: Any, kind: str) -> None:
    assert benchmark_module("gpu_ceilings").ceiling_of(kind) is None


def test_shares_are_those_of_one_device(benchmark_module: Any) -> None:
    gpu = benchmark_module("gpu")
    about = {"platform": "gpu", "kind": "NVIDIA A100-SXM4-80GB", "devices": 4, "matmul": {"bfloat16": 260.0}}
    rounds = [{"rudel": 1.0, "keras": 3.0}, {"rudel": 1.0, "keras": 2.0}, {"rudel": 4.0, "keras": 4.0}]
    row = {"net": "mlp", "precision": "bfloat16", "devices": 4, "flops": 5.2e14, "rounds": rounds, "batch": 1}
    (line,) = gpu.summary(about, [row | {"contestants": ["rudel", "keras"]}])["rows"]
    assert (line["tflops"], line["of_maker"], line["of_matmul"]) == pytest.approx((130, 130 / 312, 0.5))
    assert line["ratios"] == {"keras": 2.0}
    assert gpu._counts(None, {"devices": 6}) == [1, 2, 4, 6]
    assert gpu._counts(None, {"devices": 1}) == [1]


@pytest.mark.slow
def test_it_runs_from_end_to_end_on_virtual_devices(tmp_path: Path, warm_python: str) -> None:
    out = tmp_path / "numbers.json"
    arguments = ["--nets", "article", "--precisions", "float32", "--devices", "1,2", "--seconds", 0.05]
    done = run(*arguments, "--size", "small", "--json", out, python=warm_python)
    assert done.returncode == 0, done.stderr
    assert "what its maker says is not known here" in done.stdout
    document = json.loads(out.read_text())
    one, row = document["rows"]
    assert {name: ratio > 0 for name, ratio in one["ratios"].items()} == dict.fromkeys(("mesh", "keras", "jax"), True)
    assert 2 * one["flops"] == row["flops"]
    assert row["ratios"] == {}
    assert row["flops"] == 2 * 64 * (2 * 784 * 256 + 3 * 256 * 16)
    assert row["tflops"] == pytest.approx(row["flops"] / row["step_seconds"] / 2 / 1e12)
    assert row["of_maker"] is None
    assert row["of_matmul"] > 0
    assert document["device"]["matmul"]["float32"] > 0


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ({}, [True, True]),
        ({"largest_table_bytes": 800}, [False, True]),
        ({"devices_that_hold_some": 1}, [False, True]),
        ({"recall": 0.31}, [True, False]),
    ],
)
def test_a_recommender_is_judged_by_its_share_and_its_recall(
    benchmark_module: Any, cut: dict[str, Any], expected: list[bool]
) -> None:
    whole = {"largest_table_bytes": 800, "devices_that_hold_some": 1, "recall": 0.4}
    parts = {"largest_table_bytes": 200, "devices_that_hold_some": 4, "recall": 0.401} | cut
    document = benchmark_module("recommend").summary({1: whole, 4: parts}, {"users": 10})
    assert list(document["claims"].values()) == expected


def test_what_cannot_be_measured_is_one_sentence() -> None:
    done = run("--nets", "mlp,abacus")
    assert (done.returncode, done.stderr) == (
        1,
        "There is no net abacus: there are article, mlp, cnn, mobilenet, transformer.\n",
    )


def run(*arguments: Any, python: str = sys.executable) -> Any:
    command = [python, str(BENCHMARKS / "gpu.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
