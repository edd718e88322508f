"""The strategy `mesh` on eight virtual devices: the same training as on one, with weights cut or whole.

Everything is done by `mesh_jobs.py` in one process, as JAX has to be told of virtual devices before it starts.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import rudel
from rudel.errors import OptionError
from rudel.mesh.layouts import layouts_of, read_layouts
from rudel.mesh.mesh_options import read_axes
from rudel.mesh.moments import moments_by_shard
from rudel.training.strategies import with_options

JOBS = Path(__file__).with_name("mesh_jobs.py")

ROUNDINGS = 16
"""By how many roundings of float32 gradients may differ: they are sums of as many terms, added in another order."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> dict[str, Any]:
    """The results of all jobs, in a process of their own."""
    folder = tmp_path_factory.mktemp("mesh")
    environment = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run(
        [warm_python, JOBS, folder], capture_output=True, text=True,
        env=environment | {"KERAS_BACKEND": "jax"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mesh" not in done.stdout + done.stderr  # nobody looks, so nothing is told
    return json.loads((folder / "results.json").read_text())


def close(history: dict[str, list[float]], tolerance: float = 1e-4) -> dict[str, Any]:
    return {name: pytest.approx(values, abs=tolerance) for name, values in history.items()}


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_the_losses_are_those_of_one_device(results: dict[str, Any], devices: int) -> None:
    found = results["same_losses"]
    assert len(found["dense single"]["val_loss"]) == 2
    assert found[f"dense {devices}"] == close(found["dense single"])
    if devices in (2, 8):
        assert found[f"convolutional {devices}"] == close(found["convolutional single"])


@pytest.mark.parametrize("case", ["all at once", "given size", "own logs", "default size", "default size, all at once"])
def test_a_validation_has_the_batches_of_one_device(results: dict[str, Any], case: str) -> None:
    single, mesh = results["validations"][case]
    assert min(single) > 0
    assert mesh == pytest.approx(single, rel=1e-5)


def test_a_convolutional_step_moves_sums_and_statistics_alone(results: dict[str, Any]) -> None:
    kernel, statistics = 3 * 3 * 8 * 16, 2 * 16  # the largest of its arrays; of a layer and a device
    single, two, eight = results["same_losses"]["moved"]
    assert single == {}
    assert two == {"all-reduce": kernel, "all-gather": 2 * statistics}
    assert eight == {"all-reduce": kernel, "all-gather": 8 * statistics}
    assert results["collectives"]["kept in place"] == {"all-reduce": 3 * 3 * 32 * 8}
    assert "all-gather" in results["collectives"]["not kept in place"]
    assert results["collectives"]["depthwise"] == {"all-reduce": 3 * 3 * 32}


def test_a_step_is_traced_once(results: dict[str, Any]) -> None:
    assert results["same_losses"]["traced"] == 2  # on 2 devices, and on 8


@pytest.mark.parametrize("model", ["convolutional", "dense", "attentive"])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_gradients_of_a_step_agree_within_rounding(results: dict[str, Any], model: str, devices: int) -> None:
    one, many = results["gradients"][f"{model} 1"], results["gradients"][f"{model} {devices}"]
    largest = max(np.abs(gradient).max() for gradient in one)
    assert largest > 1e-2
    for ours, theirs in zip(many, one, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=ROUNDINGS * 2.0**-24 * max(1.0, largest))


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_that_of_one_device(results: dict[str, Any], precision: str) -> None:
    found = results["precisions"]
    assert found[f"{precision} mesh"] == pytest.approx(found[f"{precision} single"], abs=5e-3)


def test_variables_are_cut_as_was_chosen(results: dict[str, Any]) -> None:
    found = results["layouts"]
    held = {path.rpartition("attention/")[2]: whole // part for path, (part, whole) in found["chosen held"].items()}
    assert held == {
        "embedding/embeddings": 4,
        "query/kernel": 4, "query/bias": 4, "key/kernel": 4, "key/bias": 4, "value/kernel": 4, "value/bias": 4,
        "attention_output/kernel": 4, "attention_output/bias": 1,
        "dense/kernel": 4, "dense/bias": 4, "dense_1/kernel": 4, "dense_1/bias": 1,
        "slots": 3,
    }  # fmt: skip
    assert found["chosen"] == close(found["single"])


def test_what_was_chosen_is_kept(results: dict[str, Any]) -> None:
    found = results["layouts"]
    options = found["summary"]["strategy_options"]
    assert found["config"]["strategy"] == found["summary"]["strategy"] == "mesh"
    assert found["config"]["strategy_options"] == options
    assert options["devices"] == "8 (virtual, of the processor)"
    assert options["axes"] == "data=2,model=4"
    assert options["layouts"]["dense_1/kernel"] == "model,-: by rows"
    assert options["layouts"]["embedding/embeddings"] == "model,-: by rows"
    assert "data=2,model=4" in found["report"]


def test_variables_are_cut_as_was_asked_for(results: dict[str, Any]) -> None:
    held = results["layouts"]["asked held"]
    assert held["dense/dense/kernel"] == [2304, 4608]
    assert held["dense/dense/bias"] == [32, 32]
    assert results["layouts"]["asked"] == close(without_validation(results["same_losses"]["dense single"]))


def test_slots_are_cut_where_batches_alone_are(results: dict[str, Any]) -> None:
    held = results["layouts"]["zero held"]
    part, whole = held["slots"]
    assert part < whole / 7
    assert held["dense/dense/kernel"] == [4608, 4608]
    assert results["layouts"]["zero"] == close(without_validation(results["same_losses"]["dense single"]))


def without_validation(history: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: values for name, values in history.items() if not name.startswith("val_")}


def test_a_run_goes_on_with_other_devices(results: dict[str, Any]) -> None:
    found = results["resumed"]
    assert found["history"] == close(found["expected"], 1e-3)
    assert found["seen"] == found["last"]
    assert found["best"] > 0


def test_streamed_and_in_memory_are_the_same_bits(results: dict[str, Any]) -> None:
    found = results["streams"]
    assert found["streamed"] == found["in memory"] == close(found["single"])


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("devices", "9 devices are asked for, and JAX has started with 8 in this process: make the rudel.Mesh("),
        ("shape", "The mesh data=3 has 3 devices, which does not divide the 8 that there are: give sizes"),
        ("shape and devices", "The mesh data=3 has 3 devices, which does not fit the 4 asked for"),
        ("no variable", "The layout `lstm` matches no variable: there are `dense/dense/kernel`, `dense/dense/bias`, "),
        ("no axis", "The layout `dense` names the axis `model`, which the mesh data=8 does not have: use data."),
        ("dimensions", "The layout `kernel` has 1 dimension, and `dense/dense/kernel` has 2, (144, 32)"),
        ("size", "shards 4 into 8 unequal parts in `dense/dense_1/kernel` (32, 4)"),
        ("regex", "The layout `(` is not a regular expression"),
        ("batch", "A batch of 30 cannot be divided into 8 equal shards, for the mesh data=8: give a batch_size"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_a_sentence(results: dict[str, Any], case: str, sentence: str) -> None:
    assert sentence in results["errors"][case]
    assert results["errors"][case].startswith("OptionError: ")


def test_more_devices_than_jax_started_with(classifier: Callable[..., Any], blobs: Any) -> None:
    there = len(jax.devices())
    with pytest.raises(OptionError, match=f"JAX has started with {there} in this process: make the rudel.Mesh"):
        rudel.fit(classifier(), *blobs, strategy=rudel.Mesh(devices=there + 1))


@pytest.mark.parametrize("axes", ["", "data", "data=0", "data=two", {"data": 2.5}, {}, 5, "data=2,=3"], ids=repr)
def test_axes_that_are_none(axes: Any) -> None:
    with pytest.raises(OptionError, match="A mesh is axes with sizes, as in `data=4,model=2`"):
        read_axes(axes)


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ("data=2,data=4", "The mesh data=2,data=4 has the axis `data` twice"),
        ("data=2,expert=4", "Nothing is sharded along the axis `expert` of the mesh data=2,expert=4"),
    ],
)
def test_axes_that_make_no_sense(axes: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        rudel.Mesh(axes=axes, layouts=["dense=-,model"])


def test_axes_that_layouts_name() -> None:
    jax.devices()
    assert rudel.Mesh(axes="data=2,expert=4", layouts=["experts=expert,-"]).axes == {"data": 2, "expert": 4}


def test_only_what_divides_is_cut() -> None:
    inputs = keras.Input((6,))
    wide = keras.layers.Dense(8, name="wide")(inputs)
    other = keras.layers.BatchNormalization(name="other")(inputs)
    both = keras.layers.Concatenate()([keras.layers.BatchNormalization(name="own")(wide), other])
    model = keras.Model(inputs, keras.layers.Dense(3, name="odd")(both))
    found = layouts_of(model, {"data": 1, "model": 4}, None)
    owners = {path.partition("/")[0] for path in found.why}
    assert owners == {"wide", "own"}
    assert found.whole == ("odd/kernel",)


def test_what_lora_adapts_is_cut_without_its_two_factors() -> None:
    words = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(40, 16, name="table")(words)
    x = keras.layers.MultiHeadAttention(4, 4, name="attention")(x, x)
    x = keras.layers.Dense(8, name="first")(keras.layers.Flatten()(x))
    model: Any = keras.Model(words, keras.layers.Dense(2, name="second")(x))
    expected = layouts_of(model, {"data": 1, "model": 2}, None)
    for name in ("table", "first", "second"):
        model.get_layer(name).enable_lora(2)
    for projection in ("query", "output"):
        getattr(model.get_layer("attention"), f"{projection}_dense").enable_lora(2)
    assert layouts_of(model, {"data": 1, "model": 2}, None) == expected
    assert expected.why["second/kernel"] == "model,-: by rows"
    assert not expected.whole


@pytest.mark.parametrize("axes", [0, None, -2, (0, 1), (1,)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_moments_of_shards_are_those_of_the_whole(axes: Any, keepdims: bool) -> None:
    x = np.random.default_rng(0).normal(3, 2, (8, 5)).astype("float32")
    place = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",)), PartitionSpec())
    with moments_by_shard(4, place):
        found: Any = keras.ops.moments(x, axes, keepdims)
    np.testing.assert_allclose(found[0], x.mean(axes, keepdims=keepdims), rtol=1e-5)
    np.testing.assert_allclose(found[1], x.var(axes, keepdims=keepdims), rtol=1e-5)


@pytest.mark.parametrize(
    "layouts", [["dense"], {"": ("model",)}, {"dense": "model"}, {"dense": (2,)}, {"dense": None}, {2: ()}, 5], ids=repr
)
def test_layouts_that_are_none(layouts: Any) -> None:
    with pytest.raises(OptionError, match="A layout is an axis or none for each dimension"):
        read_layouts(layouts)


def test_options_choose_the_strategy() -> None:
    jax.devices()
    given = {"devices": 1, "mesh": "data=1", "layout": ["a=b=-,model"]}
    chosen = with_options(None, given | {"sync_every": None})
    assert chosen == rudel.Mesh(devices=1, axes={"data": 1}, layouts={"a=b": (None, "model")})
    with pytest.raises(OptionError, match="--mesh belongs to the strategy mesh, not to diloco"):
        with_options("diloco", {"mesh": "data=1"})
