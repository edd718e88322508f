"""The WebAssembly module, in Node."""

import functools
import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from micro_support.models import Op, T, build
from micro_support.oracles import runner
from package_models import dense, lstm, run, softmax_of_floats, sum_of_two, three_of_one_shape, tool

from rudel.errors import CompileError
from rudel.micro import compile_model
from rudel.micro.packages import wasm, write_wasm

# Loads a model as its reader would, runs `code` on it with the arrays in `given`, and prints what that returns.
SCRIPT = """
import {{ readFileSync }} from "node:fs";
import {{ classes, inputs, load, outputs }} from "./{name}.js";
const model = await load();
const given = JSON.parse(readFileSync("given.json"));
const listed = (value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
const plain = (value) => (Array.isArray(listed(value)) ? listed(value).map(plain) : value);
console.log(JSON.stringify(plain(await (async () => {{ {code} }})())));
"""


def in_node(folder: Path, name: str, code: str, given: Any = None) -> Any:
    """What JavaScript returns that is run beside the model."""
    (folder / "given.json").write_text(json.dumps(given))
    (folder / "script.mjs").write_text(SCRIPT.format(name=name, code=code))
    return json.loads(run(tool("node", "apt-get install nodejs"), "script.mjs", folder=folder))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes, str], Path]:
    """Compiles a model under a name, once, and returns the folder."""

    @functools.cache
    def compiled(model: bytes, name: str) -> Path:
        folder = tmp_path_factory.mktemp("modules")
        write_wasm(compile_model(model, name=name), folder)
        return folder

    return compiled


@pytest.fixture
def sine(shared_data: Path, tmp_path: Path, modules: Callable[[bytes, str], Path]) -> Path:
    """The folder of a sine that somebody else has trained."""
    model = (shared_data / "tflite/hello_world_int8.tflite").read_bytes()
    return shutil.copytree(modules(model, "sine"), tmp_path, dirs_exist_ok=True)


def test_the_module_is_small_and_imports_nothing(sine: Path) -> None:
    assert sorted(path.name for path in sine.iterdir()) == ["package.json", "sine.js", "sine.wasm"]
    assert (sine / "sine.wasm").stat().st_size < 4_000
    code = """
    const module = new WebAssembly.Module(readFileSync("sine.wasm"));
    return [WebAssembly.Module.imports(module), WebAssembly.Module.exports(module).map((one) => one.name).sort()]"""
    assert in_node(sine, "sine", code) == [[], ["input0", "invoke", "memory", "output0", "reset"]]


def test_all_its_answers_are_those_of_litert(sine: Path, shared_data: Path) -> None:
    outputs = in_node(sine, "sine", "return given.map((number) => model.invoke([number])[0])", list(range(-128, 128)))
    reference = runner((shared_data / "tflite/hello_world_int8.tflite").read_bytes(), "litert")
    right = [int(reference([np.array([[number]], np.int8)])[0][0, 0]) for number in range(-128, 128)]
    assert outputs == right


def test_it_takes_and_gives_real_numbers(sine: Path) -> None:
    x = np.linspace(0, 6, 61)
    outputs = np.array(in_node(sine, "sine", "return given.map((x) => model.run([x])[0])", x.tolist()))
    assert np.abs(outputs - np.sin(x)).max() < 0.12
    assert in_node(sine, "sine", "return [inputs[0].shape, outputs[0].scale]") == [[1, 1], 0.008290956728160381]
    beyond = in_node(sine, "sine", "return [model.run([1e9])[0], model.run([-1e9])[0], model.run([NaN]).length]")
    assert np.isfinite(beyond).all()


def test_halves_are_rounded_away_from_zero(tmp_path: Path) -> None:
    """0.02 a number: 0.01 and -0.01 lie between two."""
    write_wasm(compile_model(dense(5, 3), name="layer"), tmp_path)
    scale = compile_model(dense(5, 3), name="layer").inputs[0].scale
    assert scale is not None
    real, numbers = [scale / 2, -scale / 2, scale * 1.49, 1000, -1000], [4, 2, 4, 127, -128]
    assert in_node(tmp_path, "layer", "return [model.run(given[0]), model.run(given[1])]", [real, real]) == in_node(
        tmp_path, "layer", "const r = model.invoke(given).length && model.run; "
        "const o = Float32Array.from(model.invoke(given), (v) => (v - outputs[0].zeroPoint) * outputs[0].scale); "
        "return [o, o]", numbers,
    )  # fmt: skip


def test_it_names_the_classes_of_its_outputs(sine: Path, tmp_path: Path) -> None:
    names = ["dog", 'a "cat"\n', "größer 🐈"]
    write_wasm(compile_model(dense(5, 3), name="layer", class_names=names), tmp_path)
    assert in_node(tmp_path, "layer", "return classes") == names
    assert in_node(sine, "sine", "return classes") == []


def test_it_says_which_real_numbers_integers_stand_for(sine: Path) -> None:
    found = re.findall(r"real numbers from (\S+) to (\S+)\n", (sine / "sine.js").read_text())
    ends = "return [inputs, outputs].map(([side]) => [side.least, side.greatest].map((n) => real(n, side)))"
    computed = in_node(sine, "sine", f"const real = (n, p) => (n - p.zeroPoint) * p.scale; {ends}")
    assert [[float(end) for end in port] for port in found] == [pytest.approx(port, rel=1e-3) for port in computed]


def test_it_is_loaded_from_bytes_and_addresses_too(sine: Path) -> None:
    code = """
    const bytes = readFileSync("sine.wasm");
    const address = "data:application/wasm;base64," + bytes.toString("base64");
    const sources = [bytes, address, new Response(bytes), new URL("./sine.wasm", import.meta.url)];
    return Promise.all(sources.map(async (source) => (await load(source)).invoke([5])[0]))"""
    assert len(set(in_node(sine, "sine", code))) == 1


def test_wrong_numbers_of_numbers_are_refused(sine: Path) -> None:
    code = """
    const say = (call) => { try { call() } catch (error) { return error.message } };
    return [say(() => model.run([1, 2])), say(() => model.run())]"""
    assert in_node(sine, "sine", code) == ["Input 0 of sine has 1 numbers, not 2.", "sine takes 1 input(s), not 0."]


def test_a_model_with_several_inputs_and_outputs(tmp_path: Path) -> None:
    write_wasm(compile_model(sum_of_two(), name="two"), tmp_path)
    a, b = np.array([[1, -2, 100, 127]], np.int8), np.array([[5, 6, -7, 127]], np.int8)
    outputs = in_node(tmp_path, "two", "return model.invoke(...given)", [a.ravel().tolist(), b.ravel().tolist()])
    assert outputs == [out.ravel().tolist() for out in runner(sum_of_two(), "litert")([a, b])]


def test_inputs_and_outputs_have_the_order_and_names_of_the_signature(tmp_path: Path) -> None:
    write_wasm(compile_model(three_of_one_shape(), name="net"), tmp_path)
    given = [[9, 8, 7, 6], [1, 2, 3, 4], [0.1, -0.2, 0.3, -0.4]]
    outputs = in_node(tmp_path, "net", "return [inputs, outputs].map((side) => side.map((port) => port.name))")
    assert outputs == [["query", "doc", "ctx"], ["zz", "aa"]]
    zz, aa = in_node(tmp_path, "net", "return model.run(...given)", given)
    assert zz == pytest.approx([8, 6, 4, 2], abs=0.01)
    assert aa == pytest.approx([0, -0.5, 1, -1.5], abs=0.01)
    assert (
        "const [output_zz, output_aa] = model.run(input_query, input_doc, input_ctx);"
        in (tmp_path / "net.js").read_text()
    )


def test_functions_of_a_c_library_are_right_to_the_last_bit_or_two(tmp_path: Path) -> None:
    functions = ["expf", "expm1f", "tanhf"]
    wrapper = ["#include <math.h>", *(f"float of_{name}(float x) {{ return {name}(x); }}" for name in functions)]
    wrapper.append("double power(double x, int power) { return ldexp(x, power); }")
    exports = [*(f"of_{name}" for name in functions), "power"]
    (tmp_path / "maths.wasm").write_bytes(wasm._compile({}, wrapper, exports))
    ends = np.array([0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 89, -104])
    x = np.concatenate([ends, np.linspace(-90, 88, 357), np.linspace(-1, 1, 201), np.logspace(-38, 0, 77)])
    x = x.astype("float32").astype("float64")
    powers = np.array([0, 1, -1, 52, 1023, -1022, -1060, -1074, 1024, 2000, -3000])
    (tmp_path / "maths.mjs").write_text(
        f"""
import {{ readFileSync }} from "node:fs";
const all = new WebAssembly.Instance(new WebAssembly.Module(readFileSync("maths.wasm"))).exports;
const x = {x.tolist()}.map(Number);
const found = [{", ".join(f"x.map(all.of_{name})" for name in functions)}];
console.log(JSON.stringify([...found, {powers.tolist()}.map((n) => all.power(0.75, n))].map((row) => row.map(String))));
""".replace("inf", "Infinity").replace("nan", "NaN")
    )
    printed = json.loads(run(tool("node", "apt-get install nodejs"), "maths.mjs", folder=tmp_path))
    *found, scaled = (np.array([float(value) for value in row]) for row in printed)
    with np.errstate(over="ignore"):
        for ours, exact in zip(found, (np.exp(x), np.expm1(x), np.tanh(x)), strict=True):
            np.testing.assert_allclose(ours, exact.astype("float32"), rtol=2.5e-7, atol=2e-45)
        np.testing.assert_array_equal(scaled, np.ldexp(0.75, powers))


def test_a_model_in_floats_that_needs_a_c_library(tmp_path: Path) -> None:
    write_wasm(compile_model(softmax_of_floats(4), name="shares"), tmp_path)
    x = np.array([0.5, -1, 2, 0])
    outputs = in_node(tmp_path, "shares", "return model.run(given)", x.tolist())
    assert outputs == pytest.approx((np.exp(x) / np.exp(x).sum()).tolist(), rel=1e-5)
    assert (
        in_node(
            tmp_path, "shares", "return WebAssembly.Module.imports(new WebAssembly.Module(readFileSync('shares.wasm')))"
        )
        == []
    )


def test_inferences_of_an_lstm_stand_alone_or_go_on(tmp_path: Path) -> None:
    given = np.random.default_rng(0).integers(-128, 128, 30).tolist()
    alone = runner(lstm(), "litert")([np.array(given, np.int8).reshape(1, 6, 5)])[0].ravel().tolist()
    code = "const first = model.invoke(given), second = model.invoke(given); model.reset(); "
    code += "return [first, second, model.invoke(given)]"
    for stateless in (True, False):
        folder = tmp_path / str(stateless)
        write_wasm(compile_model(lstm(), name="gate", stateless=stateless), folder)
        first, second, after_reset = in_node(folder, "gate", code, given)
        assert first == after_reset == alone
        assert (second == alone) == stateless


def test_a_model_with_infinite_constants(tmp_path: Path) -> None:
    """Their names are in math.h."""
    constant = np.array([-np.inf, 1, 2, 3], np.float32)
    tensors = [T((1, 4), "float32"), T((4,), "float32", data=constant), T((1, 4), "float32")]
    model = build(tensors, [Op("ADD", (0, 1), (2,), {"activation": "NONE"})], [0], [2])
    write_wasm(compile_model(model, name="masked"), tmp_path)
    outputs = in_node(tmp_path, "masked", "return model.run(given)", [1, 2, 3, 4])
    assert outputs == runner(model, "litert")([np.array([[1, 2, 3, 4]], np.float32)])[0].ravel().tolist()


@pytest.mark.parametrize("name", ["rudel_", "my_rudel_net", "Rudel_x", "main", "wasm_exports"])
def test_any_name_of_a_model_makes_a_module(tmp_path: Path, name: str) -> None:
    write_wasm(compile_model(dense(5, 3), name=name), tmp_path)
    given = np.array([[1, -2, 3, 100, -100]], np.int8)
    outputs = in_node(tmp_path, name, "return model.invoke(given)", given.ravel().tolist())
    assert outputs == runner(dense(5, 3), "litert")([given])[0].ravel().tolist()


def test_it_is_a_package_for_npm(sine: Path) -> None:
    package = json.loads((sine / "package.json").read_text())
    assert package["type"] == "module"
    (sine / "user/node_modules").mkdir(parents=True)
    (sine / "user/node_modules/sine").symlink_to(sine)
    (sine / "user/main.mjs").write_text(
        f'import {{ load }} from "{package["name"]}";\nconsole.log((await load()).run([0]).length);\n'
    )
    assert run(tool("node", "apt-get install nodejs"), "main.mjs", folder=sine / "user") == "1\n"


def test_without_zig_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="pip install ziglang"):
        write_wasm(compile_model(dense(5, 3), name="layer"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
