"""The bench counts instructions exactly, tells a model's bytes from its own, and sees wrong bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from micro_board import needs_board
from micro_layers import LAYERS, model
from package_models import softmax_of_floats
from typer.testing import CliRunner

from rudel.cli.application import app
from rudel.errors import RudelError
from rudel.micro import compile_model
from rudel.micro.bench import BenchError, bench, measure, uniform_inputs
from rudel.micro.bench.boards import CORES, Core, core
from rudel.micro.bench.build import build, size
from rudel.micro.bench.emulator import run
from rudel.micro.bench.host import host_outputs

PORTS = """
#include "board.h"
static int8_t in[4], out[4];
const bench_port bench_inputs[] = {{in, 4}}, bench_outputs[] = {{out, 4}};
const uint32_t bench_input_count = 1, bench_output_count = 1;
void bench_reset_model(void) {}
"""

LOOP = """
void bench_invoke(void) {
    uint32_t n = 100000;
    for (int i = 0; i < 4; i++) out[i] = (int8_t)(in[i] + 1);
#ifdef __riscv
    __asm__ volatile("1: addi %0, %0, -1\\n nop\\n bnez %0, 1b" : "+r"(n));
#else
    __asm__ volatile("1: sub %0, #1\\n cmp %0, #0\\n bne 1b" : "+r"(n) : : "cc");
#endif
}
"""


@pytest.mark.parametrize("place", dict.fromkeys(CORES.values()), ids=lambda place: place.board.machine)
def test_every_core_counts_exactly(place: Core, tmp_path: Path) -> None:
    needs_board(next(target for target in CORES if CORES[target] is place))
    image = build(tmp_path, place, {"model.c": PORTS + LOOP})
    outputs, records = run(image, place.board, [bytes(4), bytes([1, 2, 3, 127])])
    assert outputs == [bytes([1, 1, 1, 1]), bytes([2, 3, 4, 128])]
    for record in records:
        assert 300_000 <= record.instructions <= 300_040
        assert record.stack_bytes <= 16


def test_stack_and_ram_are_seen(tmp_path: Path) -> None:
    needs_board()
    place = core("cortex-m4")
    deep = (
        "static volatile int8_t more[1000];"
        "void bench_invoke(void) { volatile int8_t s[4000]; s[0] = 1; more[in[0]] = s[0]; }"
    )
    empty = "void bench_invoke(void) {}"
    images = []
    for name, text in (("deep", deep), ("empty", empty)):
        (tmp_path / name).mkdir()
        images.append(build(tmp_path / name, place, {"model.c": PORTS + text}))
    assert 1000 <= (size(images[0], place) - size(images[1], place)).ram <= 1008
    (_, (record,)) = run(images[0], place.board, [bytes(4)])
    assert 4000 <= record.stack_bytes <= 4032


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55", "rv32imc"])
def test_a_fault_is_told(target: str, tmp_path: Path) -> None:
    needs_board(target)
    place = core(target)
    image = build(tmp_path, place, {"model.c": PORTS + "void bench_invoke(void) { __builtin_trap(); }"})
    with pytest.raises(BenchError, match="the processor stopped at a fault"):
        run(image, place.board, [bytes(4)])


def test_an_endless_model_is_given_up(tmp_path: Path) -> None:
    needs_board()
    place = core("cortex-m4")
    image = build(tmp_path, place, {"model.c": PORTS + "void bench_invoke(void) { for (;;) {} }"})
    with pytest.raises(BenchError, match="did not finish within 1 s"):
        run(image, place.board, [bytes(4)], timeout=1)


def test_a_model_that_does_not_fit_is_told(tmp_path: Path) -> None:
    needs_board()
    text = PORTS + "int8_t huge[5 << 20]; void bench_invoke(void) { huge[in[0]] = 1; }"
    with pytest.raises(BenchError, match=r"could not build the image for mps2-an386 .*RAM"):
        build(tmp_path, core("cortex-m4"), {"model.c": text})


@pytest.mark.parametrize("target", ["cortex-m0plus", "cortex-m33", "cortex-m55", "rv32imc"])
def test_a_model_is_measured(target: str) -> None:
    needs_board(target)
    measured = bench(model(LAYERS["few channels"]), name="few", target=target)
    assert measured.differing == 0
    assert measured.inputs == 3
    assert len(measured.layers) == 1
    assert measured.estimated_cycles is None
    assert abs(measured.layers[0].instructions - measured.instructions) < 100
    assert 9 * 9 * 3 <= measured.ram <= 9 * 9 * 3 + 5 * 5 * 8 + 500
    assert 300 < measured.code < 3000
    assert measured.parameters >= 3 * 3 * 3 * 8
    assert 0 < measured.stack < 1000


def test_wrong_bits_are_seen() -> None:
    needs_board()
    compiled = compile_model(model(LAYERS["dense"]), name="dense", target="cortex-m4")
    inputs = uniform_inputs(compiled, 2)
    good = host_outputs(compiled, inputs)
    wrong = [good[0], bytes([good[1][0] ^ 1]) + good[1][1:]]
    assert measure(compiled, inputs, wrong).differing == 1


def test_floats_are_the_same_within_rounding() -> None:
    needs_board()
    compiled = compile_model(softmax_of_floats(32), name="floats", target="cortex-m4")
    inputs = uniform_inputs(compiled, 2)
    good = host_outputs(compiled, inputs)
    wrong = [good[0], (np.frombuffer(good[1], np.float32) * np.float32(1.01)).tobytes()]
    measured = measure(compiled, inputs, wrong)
    assert (measured.differing, measured.exact) == (1, False)


def test_the_command_measures_floats_of_a_file_with_any_name(tmp_path: Path) -> None:
    needs_board()
    file = tmp_path / "startup.tflite"
    file.write_bytes(softmax_of_floats(32))
    result = CliRunner().invoke(app, ["micro", "bench", str(file), "-n", "1"])
    assert result.exit_code == 0, result.output
    assert "1 inputs: the same within rounding as on this computer" in result.output


@pytest.mark.parametrize("name", ["startup", "board", "harness", "bench_model", "bench"])
def test_a_model_with_a_name_of_the_benchs_own_is_refused(name: str) -> None:
    compiled = compile_model(model(LAYERS["dense"]), name=name, target="cortex-m4")
    inputs = uniform_inputs(compiled, 1)
    with pytest.raises(BenchError, match=rf"^The bench has C of its own that is called `{name}`: rename"):
        measure(compiled, inputs, inputs)


def test_a_target_without_a_board_is_one_sentence() -> None:
    with pytest.raises(RudelError, match=r"^`generic` cannot be measured: there are boards for cortex-m0, .*\.$"):
        bench(model(LAYERS["dense"]), target="generic")


def test_a_missing_program_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match=r"`arm-none-eabi-gcc` is needed .*: apt-get install gcc-arm-none-eabi"):
        build(tmp_path, core("cortex-m4"), {})


def test_inputs_and_expectations_have_to_fit() -> None:
    compiled = compile_model(model(LAYERS["dense"]), name="dense", target="cortex-m4")
    with pytest.raises(BenchError, match="There are 0 inputs and 0 expected outputs"):
        measure(compiled, [], [])


@pytest.mark.slow
def test_the_benchmark_holds_its_claims(shared_data: Path, tmp_path: Path) -> None:
    needs_board()
    out = tmp_path / "numbers.json"
    done = _benchmark("--models", shared_data / "tflite", "--inputs", 1, "--layers", "--json", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All claims hold." in done.stdout
    assert "clock cycles on silicon" in done.stdout
    assert "an estimate for memory without wait states" in done.stdout
    document = json.loads(out.read_text())
    assert len(document["models"]) == 8
    assert not document["notes"]
    for name, numbers in document["models"].items():
        assert numbers["differing"] == 0
        for what in ("instructions", "code", "ram"):
            claimed, rival = document["claims"][name][what], document["tflm"][name][what]
            assert numbers[what] <= claimed
            assert rival is None or claimed < rival
        assert numbers["instructions"] < numbers["estimated_cycles"] < 2 * numbers["instructions"]
    assert "github.com/mlcommons/tiny_results" in done.stdout
    vendors = {name: result["cycles"] for name, result in document["vendors"].items()}
    assert set(vendors) == {"ad01", "kws_dscnn", "ic_resnet8", "vww_96", "sww_ref"}
    assert vendors["ad01"] == pytest.approx(486_000, abs=500)
    cycles = {name: document["models"][name]["estimated_cycles"] for name in vendors}
    behind = [name for name in vendors if cycles[name] >= vendors[name]]
    assert [sentence.partition(":")[0] for sentence in document["slower"]] == behind


def test_a_model_that_is_not_there_is_left_out_with_a_note(tmp_path: Path) -> None:
    done = _benchmark("--models", tmp_path, "--only", "ad01")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ad01 is left out: there is no `{tmp_path / 'ad01_int8.tflite'}`." in " ".join(done.stdout.split())
    assert "All claims hold." not in done.stdout


def _benchmark(*arguments: object) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).parents[2] / "benchmarks" / "micro.py"
    environment = {**os.environ, "COLUMNS": "400"}
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_an_unknown_model_is_one_sentence() -> None:
    done = _benchmark("--only", "abacus")
    assert done.returncode == 1
    assert done.stderr.startswith("There is no model abacus: there are hello_world, ")
