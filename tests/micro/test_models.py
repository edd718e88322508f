"""The public models: bits, size, and how long compiling takes."""

import time

import numpy as np
import pytest

from rudel.errors import CompileError
from rudel.micro.arithmetic import ROUNDINGS
from rudel.micro.check import check
from rudel.micro.compiler import compile_model

_COUNTS = {
    "ad01": 1000,
    "hello_world": 1000,
    "ic_resnet8": 40,
    "kws_dscnn": 100,
    "micro_speech": 1000,
    "person_detect": 100,
    "sww_ref": 500,
    "vww_96": 40,
}
_ARENAS = {"hello_world": 32, "micro_speech": 4248, "person_detect": 36_888}


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", sorted(_COUNTS))
def test_same_bits_as_the_interpreter(shared_data, name, rounding, share):
    path = shared_data / "tflite" / f"{name}_int8.tflite"
    compiled = compile_model(path, rounding=rounding)
    result = check(compiled, path.read_bytes(), count=_COUNTS[name] // share)
    assert result.passed
    assert result.elements[0] == 0
    assert result.random == _COUNTS[name] // share
    assert result.corrected == (name == "person_detect")


@pytest.mark.usefixtures("gcc", "interpreters")
def test_a_model_that_takes_long_is_checked_with_fewer_inputs(shared_data, monkeypatch):
    path = shared_data / "tflite" / "vww_96_int8.tflite"
    monkeypatch.setattr("rudel.micro.check.SECONDS", 0.2)
    shown: list[tuple[int, int]] = []
    result = check(compile_model(path), path.read_bytes(), progress=lambda done, total: shown.append((done, total)))
    assert 8 <= result.random < 1000
    assert result.passed
    done, totals = zip(*shown, strict=True)
    assert list(done) == sorted(done)
    assert shown[0] == (0, 1000)
    assert (done[-1], totals[-1]) == (result.random, result.random)


@pytest.mark.usefixtures("gcc", "interpreters")
def test_a_small_model_is_checked_with_a_thousand_inputs(shared_data):
    path = shared_data / "tflite" / "hello_world_int8.tflite"
    assert check(compile_model(path), path.read_bytes()).random == 1000


@pytest.mark.usefixtures("gcc", "interpreters")
def test_real_inputs_are_checked_too(shared_data):
    path = shared_data / "tflite" / "hello_world_int8.tflite"
    angles = np.linspace(0, 6.28, 50, dtype=np.float32)[:, None]
    result = check(compile_model(path), path.read_bytes(), count=0, real=[angles])
    assert (result.random, result.real, result.passed) == (0, 50, True)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.array([[12], [200]], np.uint8), "contain 200, which does not fit int8: give integers from -128 to 127, or"),
        (np.array([[-129]]), "contain -129, which does not fit int8"),
        (np.array([[0.5], [np.nan]], np.float32), "contain nan, which does not fit int8"),
    ],
)
def test_real_inputs_that_the_model_cannot_take_are_refused(shared_data, values, problem):
    path = shared_data / "tflite" / "hello_world_int8.tflite"
    with pytest.raises(CompileError, match=f"^Examples for the input `.*` {problem}"):
        check(compile_model(path), path.read_bytes(), count=0, real=[values])


@pytest.mark.usefixtures("gcc", "interpreters")
def test_infinite_inputs_are_the_ends_of_the_range(shared_data):
    path = shared_data / "tflite" / "hello_world_int8.tflite"
    given = np.array([[np.inf], [-np.inf], [1e30]], np.float32)
    assert check(compile_model(path), path.read_bytes(), count=0, real=[given]).passed


@pytest.mark.usefixtures("gcc", "interpreters")
def test_a_check_finds_what_is_wrong(shared_data):
    path = shared_data / "tflite" / "hello_world_int8.tflite"
    other = bytearray(path.read_bytes())
    weights = compile_model(path).graph
    first = next(tensor.data for tensor in weights.tensors if tensor.data is not None and tensor.data.size == 256)
    place = bytes(other).index(first.tobytes())
    other[place : place + 40] = bytes(40)
    result = check(compile_model(path), bytes(other), count=100)
    assert not result.passed
    assert result.different > 10


@pytest.mark.parametrize("target", ["generic", "cortex-m4"])
@pytest.mark.parametrize("name", sorted(_ARENAS))
def test_compiling_takes_less_than_two_seconds(shared_data, name, target):
    path = shared_data / "tflite" / f"{name}_int8.tflite"
    begun = time.process_time()
    compile_model(path, target=target)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("name", sorted(_ARENAS))
def test_arenas_are_small(shared_data, name):
    assert compile_model(shared_data / "tflite" / f"{name}_int8.tflite").arena_bytes <= _ARENAS[name]


def test_compiling_twice_gives_the_same_text(shared_data):
    path = shared_data / "tflite" / "micro_speech_int8.tflite"
    first, second = compile_model(path), compile_model(path)
    assert (first.header, first.source) == (second.header, second.source)
