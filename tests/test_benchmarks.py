"""The benchmarks run and count right; how fast anything is, no test says."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import typer
from PIL import Image
from processes import LONG, started

from rudel.backend import keras_on_jax

keras = keras_on_jax()
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def drawings(tmp_path: Path) -> Path:
    """Three made-up classes of 60 drawings, in Quick, Draw!'s layout."""
    folder = tmp_path / "full" / "numpy_bitmap"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name in ("bit", "bot", "but"):
        np.save(folder / f"{name}.npy", random.integers(0, 256, (60, 784), np.uint8))
    return tmp_path


@pytest.mark.others("torch")
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(("kernel", "stride"), [(5, 2), (4, 2), (3, 3), (2, 1)])
def test_pytorchs_net_computes_what_keras_does(
    monkeypatch: pytest.MonkeyPatch, kernel: int, stride: int, padding: str
) -> None:
    torch = importlib.import_module("torch")
    monkeypatch.syspath_prepend(str(BENCHMARKS / "contestants"))
    translated = importlib.import_module("torch_net").translated
    layers = [keras.Input((10, 10)), keras.layers.Reshape((10, 10, 1))]
    layers += [keras.layers.Conv2D(3, kernel, strides=stride, padding=padding)]
    model = keras.Sequential([*layers, keras.layers.DepthwiseConv2D(3, padding="same", activation="relu")])
    net = translated(model)
    (first, bias), (second, other) = (layer.get_weights() for layer in model.layers[1:])
    weights = (first.transpose(3, 2, 0, 1), bias, second.transpose(2, 3, 0, 1), other)
    for parameter, value in zip(net.parameters(), weights, strict=True):
        parameter.data = torch.tensor(value)
    x = np.random.default_rng(0).random((2, 10, 10), np.float32)
    outputs = net(torch.tensor(x)).detach().numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(outputs, np.asarray(model(x)), atol=1e-5)


@pytest.mark.slow
def test_single_runs_from_end_to_end(drawings: Path, tmp_path: Path) -> None:
    out = tmp_path / "numbers.json"
    arguments = ["--data", drawings, "--classes", "bit,bot,but", "--steps", 40, "--repeats", 1]
    arguments += ["--contestants", "rudel,numpy-floor", "--json", out]
    process = subprocess.run(
        [sys.executable, str(BENCHMARKS / "single.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "numpy-floor" in process.stdout

    document = json.loads(out.read_text())
    (results,) = document["rounds"]
    assert list(results) == ["rudel, first run", "rudel", "numpy-floor"]
    for numbers in results.values():
        assert numbers["steps"] == 40
        assert numbers["step_seconds"] > 0
        assert numbers["job_seconds"] > 0
        assert numbers["peak_bytes"] > 10e6
    for name in ("rudel, first run", "rudel"):
        assert 0 <= results[name]["accuracy"] <= 1
        assert results[name]["versions"]["keras"]
    assert results["rudel"]["accuracy"] == results["rudel, first run"]["accuracy"]

    (ratio,) = document["step_seconds_over_rudel"]["numpy-floor"]
    assert ratio == pytest.approx(results["numpy-floor"]["step_seconds"] / results["rudel"]["step_seconds"])
    assert document["job"]["steps"] == 40
    assert str(tmp_path) not in out.read_text()
    holds = {claim["text"]: claim["holds"] for claim in document["claims"]}
    assert holds["0.805 of the held-out drawings right"] is None
    assert holds["at least 1.3 times the steps per second of Keras on JAX"] is None


def test_an_unknown_contestant_is_one_sentence(drawings: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(BENCHMARKS / "single.py"), "--data", str(drawings), "--contestants", "abacus"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr.startswith("There is no contestant abacus: ")


def test_images_run_from_end_to_end(tmp_path: Path) -> None:
    for name in ("bit", "bot"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(20):
            pixels = np.full((9, 9, 3), number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.jpg")
    out = tmp_path / "numbers.json"
    arguments = ["--data", tmp_path / "pictures", "--repeats", 1, "--contestants", "rudel", "--json", out]
    process = subprocess.run(
        [sys.executable, str(BENCHMARKS / "images.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    document = json.loads(out.read_text())
    (results,) = document["rounds"]
    assert results["rudel"]["records"] == 40
    assert results["rudel"]["seconds"] > 0
    assert [claim["holds"] for claim in document["claims"]] == [None, None]
    assert str(tmp_path) not in out.read_text()


@pytest.mark.slow
def test_streaming_runs_from_end_to_end(tmp_path: Path) -> None:
    out = tmp_path / "numbers.json"
    process = subprocess.run(
        [sys.executable, str(BENCHMARKS / "streaming.py"), "--gigabytes", "0.1", "--json", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    document = json.loads(out.read_text())
    assert document["records"]["gigabytes"] == pytest.approx(0.1, rel=0.02)
    assert document["records"]["steps"] == 63
    assert 0 <= document["records"]["waiting"] <= 1
    assert document["records"]["peak_bytes"] > 100e6
    assert len(document["claims"]) == 2


def test_what_is_claimed_of_waiting_and_memory_is_judged(benchmark_module: Any) -> None:
    streaming = benchmark_module("streaming")
    for waiting, same, expected in ((0.04, 1.0, [True, True]), (0.06, 0.0, [False, False])):
        verdicts = streaming.judged_waiting({"waiting": waiting, "same_metrics": same})
        assert [verdict.holds for verdict in verdicts] == expected
    for peak, flat, expected in ((5e8, 1.0, [True, True]), (7e8, 1.3, [False, False])):
        measured = {"gigabytes": 4.0, "peak_bytes": peak, "last_quarter_over_second": flat}
        assert [verdict.holds for verdict in streaming.judged_memory(measured)] == expected


def test_ratios_are_paired_within_rounds(benchmark_module: Any) -> None:
    measure = benchmark_module("measure")
    rounds = [
        {"rudel": {"step_seconds": 1.0}, "slow": {"step_seconds": 6.0}},
        {"rudel": {"step_seconds": 10.0}, "slow": {"step_seconds": 40.0}},
        {"rudel": {"step_seconds": 2.0}, "slow": {"step_seconds": 10.0}},
        {"rudel": {"step_seconds": 2.0}},
    ]
    ratios = measure.paired_ratios(rounds, "step_seconds", "slow", "rudel")
    assert ratios == [6.0, 4.0, 5.0]
    assert measure.spread(ratios) == measure.Spread(5.0, 4.0, 6.0)
    assert measure.values(rounds, "slow", "step_seconds") == [6.0, 40.0, 10.0]
    assert measure.paired_ratios(rounds, "accuracy", "slow", "rudel") == []


def test_a_claim_is_judged_by_the_median_of_its_ratios(benchmark_module: Any) -> None:
    claims = benchmark_module("claims")
    rounds = [
        {"rudel": {"step_seconds": 1.0, "accuracy": 0.81}, "keras-jax": {"step_seconds": ratio}}
        for ratio in (1.2, 1.4, 9.0)
    ]
    verdicts = {verdict.text: verdict for verdict in claims.judged(claims.MLP, rounds, claims.ARTICLE_STEPS)}
    over_jax = verdicts["at least 1.3 times the steps per second of Keras on JAX"]
    assert (over_jax.median, over_jax.holds) == (1.4, True)
    assert verdicts["0.805 of the held-out drawings right"].holds is True
    assert verdicts["compiled within 1 s at later runs"].holds is None


def test_a_missing_package_is_told_with_its_remedy(benchmark_module: Any) -> None:
    measure = benchmark_module("measure")
    here = measure.Contestant("here", Path("x.py"), ("json",), "nothing")
    gone = measure.Contestant("gone", Path("x.py"), ("json", "no_such_package"), "no-such-package")
    assert here.absence == ""
    assert gone.absence.endswith("no_such_package cannot be imported: pip install no-such-package")


def test_a_contestant_that_fails_is_told_in_one_sentence(benchmark_module: Any, tmp_path: Path) -> None:
    measure = benchmark_module("measure")
    script = tmp_path / "falls.py"
    script.write_text("raise SystemExit('no legs')")
    with pytest.raises(measure.BenchmarkError, match=r"^walker ended with code 1 and no result \(no legs\)\.$"):
        measure.run(measure.Contestant("walker", script), {}, {})


def test_hidden_packages_look_as_if_not_installed(benchmark_module: Any, tmp_path: Path) -> None:
    measure = benchmark_module("measure")
    script = tmp_path / "looks.py"
    script.write_text(
        "import importlib.util, json, sys\n"
        "found = {name: importlib.util.find_spec(name) is not None for name in ('numpy', 'jax')}\n"
        "print(json.dumps(found | json.loads(sys.argv[1])))"
    )
    contestant = measure.Contestant("looks", script, hidden=("jax",), settings={"b": 2})
    numbers = measure.run(contestant, {"a": 1}, {})
    assert numbers.pop("job_seconds") > 0
    assert numbers == {"numpy": True, "jax": False, "a": 1, "b": 2}


def test_a_cluster_benchmark_names_an_unknown_contestant_in_one_sentence(drawings: Path) -> None:
    for script, option, sentence in (
        ("cluster.py", "--contestants", "There is no contestant abacus@100: "),
        ("faults.py", "--faults", "There is no fault abacus@100: "),
    ):
        process = subprocess.run(
            [sys.executable, str(BENCHMARKS / script), "--data", str(drawings), option, "abacus@100"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 1
        assert process.stderr.startswith(sentence)


def test_claims_on_a_cluster_are_judged(benchmark_module: Any) -> None:
    claims = benchmark_module("cluster_claims")
    one = {"samples": 262_144, "train_seconds": 16.0, "accuracy": 0.81}
    four = {"samples": 262_144, "train_seconds": 4.0, "accuracy": 0.803, "air_bytes": 2e6}
    rounds = [
        {"rudel-node": one, "rudel-4@100": four, "tf-mwms@100": {"train_seconds": 4000.0, "accuracy": None}},
        {"rudel-node": one | {"accuracy": 0.806}, "rudel-4@100": four | {"accuracy": 0.807}},
    ]
    verdicts = {verdict.text: verdict for verdict in claims.verdicts(rounds, 262_144)}
    assert verdicts["4 nodes are at least 3.5 times as fast as 1, at 100 Mbit/s"].holds is True
    assert verdicts["4 nodes are at least 3 times as fast as 1, at 20 Mbit/s"].holds is None
    assert verdicts["at least 500 times as fast as MultiWorkerMirroredStrategy"].median == 1000
    assert verdicts["at most 10 MB on the air for the job"].holds is True
    accuracy = verdicts["4 nodes are as accurate as 1, within 0.5 points"]
    assert accuracy.median == pytest.approx(-0.003)
    assert accuracy.holds is True
    shorter = {verdict.text: verdict for verdict in claims.verdicts(rounds, 1000)}
    assert shorter["4 nodes are as accurate as 1, within 0.5 points"].holds is None


def test_a_fault_is_read_from_the_rounds(benchmark_module: Any) -> None:
    faults = benchmark_module("faults")
    both, one = {"a": {"steps": 10}, "b": {"steps": 10}}, {"a": {"steps": 20}}
    moments = (1.0, 2.0, 3.0, 3.1, 5.6, 6.6, 7.6)
    rounds: list[dict[str, Any]] = [
        {"round": number, "step": 20 * number, "seconds": seconds, "hosts": one if 4 < number < 7 else both}
        for number, seconds in enumerate(moments, start=1)
    ]
    rounds.insert(4, {"event": "lost", "host": "b", "seconds": 3.5, "reason": "it is gone"})
    rounds.insert(6, {"event": "joined", "host": "b", "seconds": 6.0, "reason": ""})
    row = faults.after_fault(rounds, "b", 3.05)
    assert row["usual_seconds"] == 1.0
    assert row["standstill_seconds"] == pytest.approx(2.5)
    assert row["noticed_seconds"] == pytest.approx(0.45)
    assert row["back_seconds"] == pytest.approx(2.95)
    assert row["rounds_lost"] == 1
    assert row["round_steps"] == 10
    assert faults.after_fault(rounds, "a", 3.05)["noticed_seconds"] is None


def test_a_document_is_gone_on_with(benchmark_module: Any, tmp_path: Path) -> None:
    record, measure = benchmark_module("cluster_record"), benchmark_module("measure")
    path = tmp_path / "numbers.json"
    document = record.begun(path, "cluster", {"samples": 10}, [0])
    document["rounds"][0]["rudel-node"] = {"train_seconds": 1.0}
    record.keep(document, path)
    again = record.begun(path, "cluster", {"samples": 10}, [0, 1])
    assert again["rounds"] == [{"rudel-node": {"train_seconds": 1.0}}, {}]
    with pytest.raises(measure.BenchmarkError, match="is of another job"):
        record.begun(path, "cluster", {"samples": 20}, [0])


def test_rivals_are_judged_by_their_snapshots(
    benchmark_module: Any, drawings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "contestants"))
    node, job_module = benchmark_module("cluster_node"), benchmark_module("cluster_job")
    net_module = benchmark_module("cluster_numpy_net")
    monkeypatch.chdir(tmp_path)
    job = job_module.ClusterJob(drawings, ("bit", "bot", "but"), 1000)
    (tmp_path / "share-0-of-2.npz").write_bytes(job.share(0, 2))
    part = node.Part(0, ["a:1", "b:1"], 3, 60, 27, 1e-2, 20, 0)
    x, y = node.share(part)
    assert len(job.dataset.train) == 162
    assert x.shape == (81, 784)
    net, batches, kept = net_module.Net(part, node.initial_weights(3, 0)), node.Batches(len(y), part), node.Snapshots()
    assert sorted(np.concatenate([batches.next() for _ in range(3)])) == list(range(81))
    kept.keep(0.0, net.weights)
    for _ in range(60):
        chosen = batches.next()
        net.step(x[chosen], y[chosen])
    kept.keep(1.5, net.weights)
    kept.save()
    judged = job.judged((tmp_path / "snapshots.npz").read_bytes())
    assert [seconds for seconds, _ in judged] == [0.0, 1.5]
    assert all(0 <= accuracy <= 1 for _, accuracy in judged)

    keras_answers = _keras_accuracy(net.weights, job.dataset.validation)
    assert judged[1][1] == pytest.approx(keras_answers)
    x_train = x.astype(np.float32) / 255
    hidden = np.maximum(x_train @ net.weights[0] + net.weights[1], 0)
    learned = ((hidden @ net.weights[2] + net.weights[3]).argmax(1) == y).mean()
    assert learned > 0.9  # it knows by heart what it has seen


def _keras_accuracy(weights: list[np.ndarray], examples: Any) -> float:
    import keras

    layers = [keras.layers.Flatten(), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((28, 28)), *layers])
    model.set_weights(weights)
    answers = np.asarray(model(examples.x.astype(np.float32) / 255)).argmax(1)
    return float((answers == examples.y).mean())


def test_a_tied_program_ends_with_its_connection(tmp_path: Path) -> None:
    tied = [sys.executable, str(BENCHMARKS / "contestants" / "cluster_tied.py"), sys.executable, "-u", "-c"]
    echo = "import os, sys\nprint(os.getpid())\nfor line in sys.stdin: print(line, end='')"
    with started([*tied, echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin
        assert program.stdout
        number = int(program.stdout.readline())
        program.stdin.write("go\n")
        program.stdin.flush()
        assert program.stdout.readline() == "go\n"
        program.stdin.close()
        ended = json.loads(program.stdout.read())
        assert program.wait(LONG) == 0
    assert (ended["event"], ended["code"]) == ("exited", -signal.SIGKILL)
    assert ended["peak_bytes"] > 1e6
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_measurement_is_taken_again_while_the_computer_stands_still(
    benchmark_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, measure = benchmark_module("cluster_record"), benchmark_module("measure")
    stalls = [[0.5, 2.0], [3.0], []]
    monkeypatch.setattr(record, "stalls_watched", lambda: contextlib.nullcontext(stalls.pop(0)))
    taken: list[int] = []

    def measured() -> dict[str, Any]:
        taken.append(1)
        if len(taken) == 2:
            raise measure.BenchmarkError("it did not answer in time")
        return {"train_seconds": float(len(taken))}

    assert record.undisturbed(measured) == {"train_seconds": 3.0, "stalled_seconds": 0}

    stalls.append([])
    taken[:] = [1]
    with pytest.raises(measure.BenchmarkError, match="it did not answer in time"):
        record.undisturbed(measured)


def test_records_runs_from_end_to_end(tmp_path: Path) -> None:
    for number in range(20):
        (folder := tmp_path / "photographs" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        Image.effect_noise((100, 100), 50).convert("RGB").save(folder / f"{number}.jpg")
    out = tmp_path / "numbers.json"
    arguments = ["--photographs", tmp_path / "photographs", "--records", 1000, "--seconds", 0.1, "--repeats", 1]
    arguments += ["--batch-size", 8, "--gigabytes", 0.01, "--work", tmp_path, "--json", out]
    arguments += ["--contestants", "rudel, bytes;rudel, photographs;decoder, threads"]
    command = [sys.executable, str(BENCHMARKS / "records.py"), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    (numbers,) = json.loads(out.read_text())["rounds"]
    assert numbers["rudel, bytes"]["examples"] % 1000 == 0
    assert numbers["rudel, photographs"]["examples"] % 16 == 0
    assert len(numbers["rudel, memory"]["resident"]) >= 10


def test_sound_compares_the_features_of_all_recordings(benchmark_module: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for word in ("no", "yes"):
        (tmp_path / "spoken-digits" / word).mkdir(parents=True)
        for number in range(2):
            samples = random.integers(-30_000, 30_000, 9000).astype(np.int16)
            soundfile.write(tmp_path / "spoken-digits" / word / f"{number}.wav", samples, 8000)
    sound, out = benchmark_module("sound"), tmp_path / "sound.json"
    sound.features(data=tmp_path, json=out)
    found = json.loads(out.read_text())["features"]
    same = {"jax": 0, "c": 0, "webassembly": 0}
    assert found == {"windows": 4, "LogMel": {"integers": 4000, **same}, "MFCC": {"integers": 2000, **same}}


def test_sound_says_what_does_not_hold(
    benchmark_module: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "words").mkdir()
    summary = {"total_seconds": 60.0, "metrics": {"val_accuracy": 0.97}}
    (tmp_path / "words/summary.json").write_text(json.dumps(summary))
    with pytest.raises(typer.Exit):
        benchmark_module("sound").words(data=tmp_path, runs=tmp_path)
    output = capsys.readouterr().out
    assert (output.count("does not hold"), output.count("holds")) == (1, 1)


def test_results_have_what_the_numbers_of_the_evaluation_say(benchmark_module: Any) -> None:
    module, docs = benchmark_module("evaluate_page"), BENCHMARKS.parent / "docs"
    document = json.loads((docs / "evaluation.json").read_text())
    page = (docs / "results.md").read_text(encoding="utf-8")
    assert module.written(page, document) == page
    assert module.comma_separated(document) == (docs / "evaluation.csv").read_text(encoding="utf-8")
    some = next(name for name in document["cells"] if not name.startswith("single"))
    document["failures"] = {some: "It took longer than 9 s."}
    del document["cells"][some]
    without = module.written(page, document)
    assert f"tried, and failed: `{some}`." in without
    assert without.partition(module.END)[2] == page.partition(module.END)[2]
    with pytest.raises(ValueError, match="must have one line"):
        module.written(page.replace(module.END, ""), document)


def test_the_evaluation_compares_with_the_node_alone(benchmark_module: Any, tmp_path: Path) -> None:
    page, plots = benchmark_module("evaluate_page"), benchmark_module("evaluate_plots")
    one = {"step_seconds": 2e-3, "steps": 64, "air_bytes_a_step": 0, "cores_busy": 0.3, "disturbed": True}
    four = {"step_seconds": 5e-4, "steps": 8192, "air_bytes_a_step": 800, "cores_busy": 1.95, "disturbed": False}
    curves = [[[1.0, 0.75], [seconds, 0.85]] for seconds in (1.25, 1.5, 1.0)] + [[[1.0, 0.7]]]
    fours = [four | {"accuracy": curve[-1][1], "curve": curve} for curve in curves]
    cells = {"single/mlp/1/100": [one], "single-ema/mlp/1/100": [one], "diloco/mlp/4/100": fours}
    cells = {name: [run | {"cores_of_others": 0.1} for run in runs] for name, runs in cells.items()}
    document = {"machine": {"processor": "abacus", "cores": 2}, "job": {"cpu": 0.2, "latency": 1.5, "classes": ["a"]}}
    alone = [[[1000, 0.7], [steps, 0.8], [3000, 0.9]] for steps in (2000, 1800, 2400)]
    document |= {
        "cells": cells,
        "curves": {"mlp": alone, "mlp-ema": [[[1500, 0.8]]]},
        "failures": {"mesh/mlp/4/5": "It took longer than 9 s."},
    }
    numbers = benchmark_module("evaluate_numbers").Numbers(document)
    assert numbers.speed_up("diloco", "mlp", 4, 100) == pytest.approx(4 / 1.5)
    assert numbers.speed_up("diloco", "mlp", 4, 100, "single-ema") == pytest.approx(3 / 1.5)
    assert numbers.speed_up("diloco", "mlp", 4, 20) is None
    written = page.written(f"{page.BEGIN}\n{page.END}\n", document)
    assert "3.6-4.8" in written
    assert "| MLP | `diloco` | 100 | 4.0† | 1.5 [1-missed] | 2.7 | 2.4 | 0.812 |" in written
    assert "without an average is 2.0 at 100 Mbit/s." in written
    assert "| MLP | `single` (one host) | | 1.0‡ |" in written
    assert ["§ marks" in written, "† marks" in written, "‡ marks" in written] == [False, True, True], "as there are"
    table = page.comma_separated(document).splitlines()
    assert table[0].startswith("cell,step_seconds,steps,target_steps,target_seconds,")
    assert table[1].startswith("single/mlp/1/100,0.002,64,2000,4,")
    assert "tried, and failed: `mesh/mlp/4/5`." in written
    cells["diloco/mlp/4/100"] = [run | {"day": "2026-11-25"} for run in cells["diloco/mlp/4/100"]]
    later = page.written(written, document)
    assert "| MLP | `single` (one host) | | 1.0‡§ |" in later, "on an earlier day"
    assert "- § marks" in later
    document["cells"]["diloco/mlp/4/100"] = cells["diloco/mlp/4/100"][2:]
    assert "| MLP | `diloco` | 100 | 4.0† | not reached | | | 0.775 |" in page.written(written, document)
    plots.draw_all(document, tmp_path)
    assert len(list(tmp_path.glob("evaluation-*.svg"))) == 4
    for path in tmp_path.glob("*.svg"):
        assert "<text" in path.read_text()


def test_cells_of_the_evaluation_are_chosen_by_patterns(benchmark_module: Any) -> None:
    cells, numbers = benchmark_module("evaluate_cells"), benchmark_module("evaluate_numbers")
    measure = benchmark_module("measure")
    default, everything = cells.default_cells(), cells.every_cell()
    assert set(default) < set(everything)
    for axis in ("hosts", "rate", "model", "strategy"):
        assert {getattr(cell, axis) for cell in default} == {getattr(cell, axis) for cell in everything}
    assert [cell.name for cell in cells.chosen("ddp/mlp/[24]/5", False)] == ["ddp/mlp/2/5", "ddp/mlp/4/5"]
    with pytest.raises(measure.BenchmarkError, match="No cell is called abacus: "):
        cells.chosen("abacus", True)
    assert numbers.first_reached([(1, 0.2), (3, 0.6), (5, 0.5)], 0.4) == 3
    assert numbers.first_reached([(1, 0.2), (3, 0.3)], 0.4) == float("inf")
    assert numbers.first_reached([], 0.4) == float("inf")
