"""The C that is written: nothing but what it may be, clean under sanitizers, several models in one program."""

import re
import subprocess
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from micro_support import host
from micro_support.cases import KINDS
from micro_support.int16_cases import INT16_KINDS
from micro_support.models import Op, T, build
from micro_support.oracles import runner
from package_models import lstm, three_of_one_shape

from rudel.errors import CompileError
from rudel.micro import operators
from rudel.micro.check import check, random_inputs
from rudel.micro.compiler import compile_model
from rudel.micro.host import HostModel
from rudel.micro.registry import OPERATORS
from rudel.micro.schema import BUILTIN_OPERATORS

_MAIN = """\
#include <stdio.h>
#include "{name}.h"
int main(void)
{{
    static const int8_t inputs[{count}][{size}] = {{{values}}};
    int32_t sum = 0;
    for (int i = 0; i < {count}; i++) {{
        int8_t output[{outputs}];
        {name}_invoke(inputs[i], output);
        for (int k = 0; k < {outputs}; k++) sum = sum * 31 % 65521 + output[k];
        for (int k = 0; k < {size}; k++) {upper}_INPUT[k] = inputs[i][k];
        {name}_invoke({upper}_INPUT, {upper}_OUTPUT);
        for (int k = 0; k < {outputs}; k++) sum = sum * 31 % 65521 + {upper}_OUTPUT[k];
    }}
    printf("%d\\n", (int)sum);
    return 0;
}}
"""


def _sanitized(tmp_path, compiled, optimisation="-O1") -> None:
    compiled.write(tmp_path)
    runs = random_inputs(compiled.inputs, 6, seed=0)
    values = ", ".join("{" + ", ".join(map(str, run[0].ravel().tolist())) + "}" for run in runs)
    text = _MAIN.format(
        name=compiled.name,
        upper=compiled.name.upper(),
        count=len(runs),
        size=compiled.inputs[0].size,
        outputs=compiled.outputs[0].size,
        values=values,
    )
    (tmp_path / "run.model.c").write_text(text)
    flags = [*host.STRICT, optimisation, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = tmp_path / "run.model"
    subprocess.run(
        ["gcc", *flags, str(tmp_path / "run.model.c"), str(tmp_path / f"{compiled.name}.c"), "-o", str(program)],
        check=True,
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("rounding", ["litert", "xnnpack", "tflm"])
def test_a_model_of_many_operators_is_clean_under_sanitizers(tmp_path, rounding):
    _sanitized(tmp_path, compile_model(_of_many_operators(), name="many", rounding=rounding))


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize(("name", "target"), [("micro_speech", "generic"), ("person_detect", "cortex-m4")])
def test_public_models_are_clean_under_sanitizers(tmp_path, shared_data, name, target):
    _sanitized(tmp_path, compile_model(shared_data / "tflite" / f"{name}_int8.tflite", target=target))


def _of_many_operators() -> bytes:
    generator = np.random.default_rng(0)

    def weights(*shape: int, axis: int = 0) -> T:
        scales = generator.uniform(0.005, 0.02, shape[axis])
        return T(shape, scale=scales, data=generator.integers(-127, 128, shape).astype(np.int8), axis=axis)

    def biases(count: int) -> T:
        return T((count,), "int32", scale=0.001, data=generator.integers(-3000, 3000, count).astype(np.int32))

    tensors = [
        T((1, 9, 7, 3), scale=0.05, zero_point=3),
        weights(6, 3, 3, 3),
        biases(6),
        T((1, 9, 7, 6), scale=0.3, zero_point=-5),
        weights(1, 3, 3, 6, axis=3),
        biases(6),
        T((1, 9, 7, 6), scale=0.7, zero_point=9),
        T((1, 9, 7, 6), scale=0.8, zero_point=2),
        T((1, 5, 4, 6), scale=0.8, zero_point=2),
        T((1, 5, 4, 6), scale=0.5, zero_point=-20),
        T((2,), "int32", data=np.array([1, 2], np.int32)),
        T((1, 6), scale=0.4, zero_point=1),
        weights(5, 6),
        T((1, 5), scale=0.3),
        T((1, 5), scale=1 / 256, zero_point=-128),
        T((1, 5), scale=1 / 256, zero_point=-128),
    ]
    window = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE"}
    pool = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_h": 3, "filter_w": 3, "activation": "NONE"}
    operators = [
        Op("CONV_2D", (0, 1, 2), (3,), window),
        Op("DEPTHWISE_CONV_2D", (3, 4, 5), (6,), {**window, "depth_multiplier": 1}),
        Op("ADD", (3, 6), (7,), {"activation": "NONE"}),
        Op("AVERAGE_POOL_2D", (7,), (8,), pool),
        Op("LEAKY_RELU", (8,), (9,), {"alpha": 0.2}),
        Op("MEAN", (9, 10), (11,), {"keep_dims": False}),
        Op("FULLY_CONNECTED", (11, 12, -1), (13,), {"activation": "NONE"}),
        Op("LOGISTIC", (13,), (14,)),
        Op("SOFTMAX", (13,), (15,), {"beta": 1.0}),
    ]
    return build(tensors, operators, [0], [15])


@pytest.mark.usefixtures("gcc")
def test_models_live_side_by_side_in_one_program(tmp_path):
    """Also with their sources in one: no name of one is a name of the other."""
    first = compile_model(_of_many_operators(), name="first")
    second = compile_model(_of_many_operators(), name="second", rounding="xnnpack")
    library = host.build([first, second], tmp_path)
    inputs = random_inputs(first.inputs, 1, seed=3)[0]
    alone = host.invoke(library, first, inputs)
    host.invoke(library, second, random_inputs(first.inputs, 2, seed=4)[1])
    np.testing.assert_array_equal(host.invoke(library, first, inputs)[0], alone[0])


@pytest.mark.usefixtures("gcc")
def test_models_of_one_name_and_folder_each_run_their_own_c(tmp_path):
    """As both halves of an Arduino library do, where they are compared with the interpreter."""
    hosts = []
    for added in (1, -7):
        tensors = [
            T((1, 3), scale=0.1),
            T((1, 3), scale=0.1, data=np.full((1, 3), added, np.int8)),
            T((1, 3), scale=0.1),
        ]
        model = build(tensors, [Op("ADD", (0, 1), (2,), {"activation": "NONE"})], [0], [2])
        hosts.append(HostModel(compile_model(model, name="net"), tmp_path))
    given = np.array([[10, 20, 30]], np.int8)
    assert [host_model(given)[0].tolist() for host_model in hosts] == [[[11, 21, 31]], [[3, 13, 23]]]


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize(
    "name", ["rudel", "rudel_", "my_rudel_net", "Rudel_x", "RUDEL_NET", "input", "weights", "main"]
)
def test_any_name_of_a_model_makes_c_that_compiles(tmp_path, name):
    """Also with the macros of its header, and beside another model in one source."""
    compiled = compile_model(_of_many_operators(), name=name)
    _sanitized(tmp_path, compiled, "-O0")
    plain = compile_model(_of_many_operators(), name="plain")
    library = host.build([plain, compiled], tmp_path, ("-O0",))
    inputs = random_inputs(plain.inputs, 1, seed=3)[0]
    np.testing.assert_array_equal(host.invoke(library, compiled, inputs)[0], host.invoke(library, plain, inputs)[0])


@pytest.mark.parametrize("name", ["string", "math", "stdint", "Stdio", "features", "newlib", "Arduino", "spi", "Wire"])
def test_a_model_whose_header_would_hide_one_of_the_c_library_or_of_arduino_is_refused(name):
    with pytest.raises(CompileError, match=rf"its header {name}.h would hide"):
        compile_model(_of_many_operators(), name=name)


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_constants_that_are_not_finite_compile(tmp_path, value):
    constant = np.array([1, value, -2], np.float32)
    tensors = [T((1, 3), "float32"), T((3,), "float32", data=constant), T((1, 3), "float32")]
    model = build(tensors, [Op("ADD", (0, 1), (2,), {"activation": "NONE"})], [0], [2])
    compiled = compile_model(model, name="net")
    assert "math.h" in compiled.headers
    given = np.array([[1, 2, 3]], np.float32)
    outputs = host.invoke(host.build([compiled], tmp_path), compiled, [given])[0]
    np.testing.assert_array_equal(outputs, runner(model, "litert")([given])[0])


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize(("value", "other"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (1.0, np.inf)])
def test_numbers_that_are_not_finite_equal_themselves_alone(value, other):
    tensors = [T((1, 3), "float32"), T((1, 3), "float32")]
    models = []
    for constant in (value, other):
        data = T((3,), "float32", data=np.array([1, constant, -2], np.float32))
        models.append(build([*tensors, data], [Op("ADD", (0, 2), (1,), {"activation": "NONE"})], [0], [1]))
    compiled = compile_model(models[0])
    assert check(compiled, models[0], count=4).passed
    found = check(compiled, models[1], count=4)
    assert not found.passed
    assert found.elements == (4, 12)
    assert found.largest > 1e38  # infinite, or as far apart as LiteRT clamps sums


@pytest.mark.usefixtures("gcc")
def test_names_of_arrays_differ_in_models_of_many_inputs_and_layers(tmp_path):
    """Input 11 of layer 0 is constant, as is input 1 of layer 10."""
    constant = T((1, 2), scale=0.1, data=np.array([[3, -4]], np.int8))
    tensors = [*(T((1, 2), scale=0.1) for _ in range(11)), constant, T((1, 24), scale=0.1)]
    operators = [Op("CONCATENATION", tuple(range(12)), (12,), {"axis": 1, "activation": "NONE"})]
    for number in range(10):
        added = np.full((1, 24), number + 1, np.int8)
        tensors += [T((1, 24), scale=0.1, data=added), T((1, 24), scale=0.1)]
        operators.append(Op("ADD", (len(tensors) - 3, len(tensors) - 2), (len(tensors) - 1,), {"activation": "NONE"}))
    compiled = compile_model(build(tensors, operators, list(range(11)), [len(tensors) - 1]), name="many")
    (sums,) = host.invoke(host.build([compiled], tmp_path), compiled, [np.zeros((1, 2), np.int8)] * 11)
    assert sums.tolist() == [[55] * 22 + [58, 51]]


def test_neither_heap_nor_floating_point_nor_libm(shared_data):
    for name in ("micro_speech", "person_detect"):
        source = compile_model(shared_data / "tflite" / f"{name}_int8.tflite").source
        assert set(re.findall(r"#include (\S+)", source)) == {f'"{name}_int8.h"', "<string.h>"}
        assert not re.search(r"\b(malloc|calloc|free|float|double|exp|alloca)\b", source)


def test_every_name_that_others_see_begins_with_the_models(shared_data, tmp_path):
    compiled = compile_model(shared_data / "tflite" / "person_detect_int8.tflite", name="sees")
    names = re.findall(r"^(?:static |const |extern |typedef )*\w[\w ]*?[ *](\w+)(?:\(|\[|;| = )", compiled.source, re.M)
    assert names
    assert all(name.startswith("sees_") for name in names)


def test_macros_tell_sizes_and_quantisation(shared_data):
    header = compile_model(shared_data / "tflite" / "hello_world_int8.tflite", name="sine").header
    for line in (
        "#define SINE_INPUT_SIZE 1",
        "#define SINE_INPUT_SCALE 0.024480116f",
        "#define SINE_INPUT_ZERO_POINT (-128)",
        "#define SINE_OUTPUT_ZERO_POINT (5)",
        "void sine_invoke(const int8_t *input, int8_t *output);",
    ):
        assert line in header


@pytest.mark.usefixtures("gcc")
def test_several_inputs_and_outputs_are_parameters(tmp_path):
    tensors = [T((2, 3), scale=0.1), T((2, 3), scale=0.2), T((2, 3), scale=0.3), T((2, 3), scale=0.3, zero_point=4)]
    operators = [Op("ADD", (0, 1), (2,), {"activation": "NONE"}), Op("SUB", (0, 2), (3,), {"activation": "NONE"})]
    compiled = compile_model(build(tensors, operators, [0, 1], [2, 3]), name="two")
    assert "two_invoke(const int8_t *input0, const int8_t *input1, int8_t *output0, int8_t *output1)" in compiled.header
    assert "TWO_OUTPUT1_ZERO_POINT (4)" in compiled.header
    library = host.build([compiled], tmp_path)
    ones = [np.full((2, 3), 30, np.int8), np.full((2, 3), 60, np.int8)]
    total, rest = host.invoke(library, compiled, ones)
    assert (total == 50).all()
    assert (rest == 10 - 50 + 4).all()


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("rounding", ["litert", "tflm"])
def test_inputs_and_outputs_have_the_order_and_names_of_the_signature(tmp_path, rounding):
    model = three_of_one_shape()
    compiled = compile_model(model, name="net", rounding=rounding)
    assert [port.name for port in compiled.inputs] == ["query", "doc", "ctx"]
    assert [port.name for port in compiled.outputs] == ["zz", "aa"]
    parameters = "*input_query, const int8_t *input_doc, const int8_t *input_ctx, int8_t *output_zz, int8_t *output_aa"
    assert f"net_invoke(const int8_t {parameters});" in compiled.header
    assert "/* doc, int8 [1, 4] */\n#define NET_INPUT1 " in compiled.header
    query, doc, ctx = (np.array([values], np.int8) for values in ([90, 80, 70, 60], [10, 20, 30, 40], [1, -2, 3, -4]))
    library = host.build([compiled], tmp_path)
    for run in (host.invoke, host.invoke_inside):
        zz, aa = run(library, compiled, [query, doc, ctx])
        assert zz.tolist() == [[45, 35, 25, 15]]  # 0.1 (query - doc) / 0.2 + 5
        assert aa.tolist() == [[-3, -4, -1, -6]]  # 0.1 doc 0.1 ctx / 0.5 - 3
    assert check(compiled, model, count=50).passed


@pytest.mark.parametrize(
    ("names", "parameters"),
    [
        (["a b", "c/d*/"], ["input_a_b", "input_c_d"]),
        (["a b", "a_b"], ["input0", "input1"]),
        (["int", "2nd"], ["input_int", "input_model_2nd"]),
        (["", "x" * 99], ["input0", "input1"]),
    ],
)
@pytest.mark.usefixtures("gcc")
def test_any_names_of_inputs_make_c_that_compiles(tmp_path, names, parameters):
    tensors = [T((1, 3), scale=0.1), T((1, 3), scale=0.2), T((1, 3), scale=0.3)]
    operators = [Op("ADD", (0, 1), (2,), {"activation": "NONE"})]
    tensor_of: dict[str, int] = dict(zip(names, (1, 0), strict=True))
    signature = tensor_of, {"y": 2}
    compiled = compile_model(build(tensors, operators, [0, 1], [2], signature), name="net")
    assert [port.name for port in compiled.inputs] == names
    assert [port.variable for port in compiled.inputs] == parameters
    host.build([compiled], tmp_path)


@pytest.mark.usefixtures("gcc")
def test_outputs_that_are_inputs_or_constants_are_copied(tmp_path):
    tensors = [T((4,), scale=0.1), T((4,), scale=0.1, data=np.array([1, 2, 3, 4], np.int8)), T((2, 2), scale=0.1)]
    operators = [Op("RESHAPE", (0,), (2,), {"new_shape": (2, 2)})]
    compiled = compile_model(build(tensors, operators, [0], [2, 1, 0]), name="copies")
    library = host.build([compiled], tmp_path)
    given = [np.array([5, 6, 7, 8], np.int8)]
    for run in (host.invoke, host.invoke_inside):
        shaped, constant, same = run(library, compiled, given)
        assert shaped.tolist() == [[5, 6], [7, 8]]
        assert constant.tolist() == [1, 2, 3, 4]
        assert same.tolist() == [5, 6, 7, 8]


@pytest.mark.usefixtures("gcc", "interpreters")
def test_inferences_stand_alone_where_the_model_is_compiled_without_a_state(tmp_path):
    data = np.random.default_rng(0)
    first, second = ([data.integers(-128, 128, (1, 6, 5), np.int8)] for _ in range(2))
    kept = compile_model(lstm(), name="kept")
    forgotten = compile_model(lstm(), name="forgotten", stateless=True)
    assert (kept.remembers, forgotten.remembers) == (True, False)
    assert "_reset" in kept.header
    assert "_reset" not in forgotten.header + forgotten.source
    assert (kept.arena_bytes, kept.weights_bytes) == (forgotten.arena_bytes, forgotten.weights_bytes)
    library = host.build([kept, forgotten], tmp_path)
    alone = [runner(lstm(), "litert")(given)[0].tolist() for given in (first, second, second, first)]
    for run in (host.invoke, host.invoke_inside):
        found = [run(library, forgotten, given)[0].tolist() for given in (first, second, second, first)]
        assert found == alone
        assert run(library, kept, first)[0].tolist() == alone[0]
        assert run(library, kept, first)[0].tolist() != alone[0]
        library.kept_reset()


@pytest.mark.usefixtures("gcc")
def test_inputs_that_no_operator_reads_compile_without_a_warning(tmp_path):
    tensors = [*(T((1, 3), scale=0.1) for _ in range(4)), T((1, 3), scale=0.1), T((1, 3), scale=0.1)]
    operators = [Op("ADD", (1, 1), (4,), {"activation": "NONE"}), Op("ADD", (2, 2), (5,), {"activation": "NONE"})]
    compiled = compile_model(build(tensors, operators, [0, 1, 2, 3], [4]), name="net")
    given = [np.full((1, 3), value, np.int8) for value in (1, 10, 20, 30)]
    (doubled,) = host.invoke(host.build([compiled], tmp_path), compiled, given)
    assert doubled.tolist() == [[20, 20, 20]]


def test_every_kind_of_the_documentation_is_tested():
    compiled = {entry.kind for entry in OPERATORS.values() if entry.lower and not entry.is_made_up}
    assert compiled - set(KINDS) == {"DEQUANTIZE", "RELU_N1_TO_1"}
    of_int16 = {entry.kind for entry in OPERATORS.values() if entry.int16}
    assert of_int16 - set(INT16_KINDS) == {"EXPAND_DIMS", "RESIZE_NEAREST_NEIGHBOR", "SQUEEZE"}


def test_every_entry_of_the_registry_is_an_operator_of_the_schema():
    assert {entry.kind for entry in OPERATORS.values() if not entry.is_made_up} <= set(BUILTIN_OPERATORS)
    written = {way for entry in OPERATORS.values() for way in (entry.lower, entry.floats, entry.int16)}
    modules = [import_module(f"rudel.micro.operators.{module.name}") for module in iter_modules(operators.__path__)]
    functions = {
        found
        for module in modules
        for name, found in vars(module).items()
        if name.startswith("lower_") and found.__module__ == module.__name__ and name != "lower_patches"
    }
    assert functions - written == set()
