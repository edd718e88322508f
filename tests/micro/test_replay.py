"""Process replay: the C of the public models is what it was, and takes as many instructions.

A refactoring changes nothing here. What an optimisation changes is listed by kernel and by model, and written to
`replay.json` by `./dev test tests/micro/test_replay.py --regenerate`.
"""

import hashlib
import itertools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from golden import Golden
from micro_board import needs_board
from missing import skip_or_fail

from rudel.micro.arithmetic import ROUNDINGS
from rudel.micro.bench import uniform_inputs
from rudel.micro.bench.boards import core
from rudel.micro.bench.build import build
from rudel.micro.bench.emulator import run
from rudel.micro.bench.measure import glue
from rudel.micro.bench.tools import program
from rudel.micro.compiler import Compiled, compile_model
from rudel.micro.write import kernels_of

GOLDEN = Path(__file__).with_name("replay.json")
MODELS = ("ad01", "hello_world", "ic_resnet8", "kws_dscnn", "micro_speech", "person_detect", "sww_ref", "vww_96")
TARGETS = ("generic", "cortex-m4")
COUNTED = ("cortex-m0plus", "cortex-m4")
IN_BANDS = ("person_detect", "cortex-m4", "tflm", 20_000)
"""A model in so few bytes of RAM that its first layers are computed in bands."""


def test_the_generated_c_is_what_it_was(shared_data: Path, golden: Golden) -> None:
    models: dict[str, dict[str, Any]] = {name: {} for name in MODELS}
    kernels: dict[str, str] = {}
    for name, target, rounding, ram in (*itertools.product(MODELS, TARGETS, ROUNDINGS, [None]), IN_BANDS):
        compiled = compile_model(model(shared_data, name), rounding=rounding, target=target, ram=ram)
        for kernel in kernels_of(compiled.steps):
            found = kernels.setdefault(kernel.name, digest(kernel.text))
            assert found == digest(kernel.text), f"two kernels are named {kernel.name}"
        models[name][f"{target}, {rounding}" + (f", {ram} bytes" if ram else "")] = {
            "source": digest(compiled.source),
            "header": digest(compiled.header),
            "arena": compiled.arena_bytes,
            "parameters": compiled.weights_bytes,
        }
    golden.check(GOLDEN, kernels=dict(sorted(kernels.items())), models=models)


def test_inferences_take_as_many_instructions(shared_data: Path, golden: Golden) -> None:
    needs_board()
    compiler = subprocess.run(
        [program("arm-none-eabi-gcc"), "-dumpfullversion"], capture_output=True, text=True, check=True
    ).stdout.strip()
    counted = golden.read(GOLDEN).get("compiler", compiler)
    if counted != compiler and not golden.regenerate:
        skip_or_fail(f"The instructions were counted with arm-none-eabi-gcc {counted}, and this is {compiler}.")
    found = {
        name: {
            target: instructions(compile_model(model(shared_data, name), name=name, target=target))
            for target in COUNTED
        }
        for name in MODELS
    }
    golden.check(GOLDEN, compiler=compiler, instructions=found)


def model(shared_data: Path, name: str) -> Path:
    return shared_data / "tflite" / f"{name}_int8.tflite"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def instructions(compiled: Compiled) -> dict[str, int]:
    """The instructions of each layer for one input, by its number and kind."""
    place, steps = core(compiled.target.name), compiled.steps
    sources = {f"{compiled.name}.h": compiled.header, f"{compiled.name}.c": compiled.source, "model.c": glue(compiled)}
    macros = (f"BENCH_LAYERS={len(steps)}", f"{compiled.name.upper()}_PROFILE")
    with tempfile.TemporaryDirectory() as folder:
        image = build(Path(folder), place, sources, macros=macros)
        _, (record,) = run(image, place.board, uniform_inputs(compiled, 1), layers=len(steps))
    return {
        f"{number} {step.operator.kind}": count
        for number, (step, count) in enumerate(zip(steps, record.layer_instructions, strict=True))
    }


@pytest.mark.parametrize("regenerate", [False, True])
def test_what_has_changed_is_named(regenerate: bool, tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    Golden(regenerate=True).check(path, models={"a": {"source": "1f", "arena": 100}, "b": "2e"}, compiler="12")
    Golden(regenerate=True).check(path, kernels={"line": "3d"})
    again, found = Golden(regenerate), {"models": {"a": {"source": "1f", "arena": 98}, "b": "4c"}, "compiler": "12"}
    if regenerate:
        again.check(path, **found)
        assert again.read(path) == {**found, "kernels": {"line": "3d"}}
        return
    with pytest.raises(pytest.fail.Exception, match=r"^golden\.json has another value at 2 places") as failed:
        again.check(path, **found)
    assert str(failed.value).splitlines()[1:] == ["  models: a: arena: 100 -> 98 (-2.0 %)", "  models: b: 2e -> 4c"]
