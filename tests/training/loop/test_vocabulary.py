"""Tokens beyond the vocabulary of an `Embedding`: refused before the first step, and only where that is certain."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from predicting import predict_files

import rudel
from rudel.backend import keras_on_jax
from rudel.data.records.writer import write_examples
from rudel.errors import DataError, NonFiniteError
from rudel.loop.vocabulary import first_outside, lookups_of

keras = keras_on_jax()
layers, ops = keras.layers, keras.ops


def compiled(inputs: Any, outputs: Any) -> Any:
    model = keras.Model(inputs, layers.Dense(1)(layers.Flatten()(outputs)))
    model.compile("sgd", "mse")
    return model


def words(dtype: str = "int32", length: int | None = 4) -> Any:
    x = keras.Input((length,), name="words", dtype=dtype)
    looked_up = layers.Embedding(10, 2, name="table")(x)
    return compiled(x, layers.GlobalAveragePooling1D()(looked_up))


def sequential() -> Any:
    model = keras.Sequential([layers.Embedding(10, 2, name="table"), layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def nested() -> Any:
    inner = keras.Sequential(
        [keras.Input((2, 2), dtype="int32"), layers.Flatten(), layers.Embedding(10, 2, name="table")]
    )
    x = keras.Input((4,), name="words", dtype="int32")
    return compiled(x, inner(layers.Reshape((2, 2))(x)))


def sliced() -> Any:
    """The first two columns go into `table`, the third into a longer one, and the last is taken modulo."""
    x = keras.Input((4,), name="words", dtype="int32")
    parts = [
        layers.Embedding(10, 2, name="table")(x[:, :2]),
        layers.Embedding(100, 2, name="other")(ops.cast(x[:, 2:3], "float32")),
        layers.Embedding(5, 2, name="safe")(x[:, 3:] % 5),
    ]
    return compiled(x, layers.Concatenate(axis=1)(parts))


def tokens(value: float, column: int = 1, dtype: str = "int32") -> np.ndarray:
    x = np.zeros((16, 4), dtype)
    x[5, column] = value
    return x


@pytest.mark.parametrize(
    "make", [words, sequential, nested, sliced, lambda: words("float32"), lambda: words(length=None)]
)
@pytest.mark.parametrize("value", [10, -1])
def test_an_index_beyond_the_table_is_refused_before_the_first_step(make: Callable[[], Any], value: int) -> None:
    with pytest.raises(DataError) as error:
        rudel.fit(make(), tokens(value), np.zeros(16), batch_size=4, verbose=False)
    assert f"holds {value} at example 5, and the layer `table` takes 0 to 9" in str(error.value)
    assert "learning rate" not in str(error.value)


@pytest.mark.parametrize("make", [words, sequential, nested, sliced])
def test_what_is_in_the_table_is_trained_on(make: Callable[[], Any]) -> None:
    history = rudel.fit(make(), tokens(9), np.zeros(16), batch_size=4, verbose=False)
    assert np.isfinite(history.history["loss"]).all()


def test_only_what_is_certainly_looked_up_is_refused() -> None:
    model = sliced()
    rudel.fit(model, tokens(99, 2), np.zeros(16), batch_size=4, verbose=False)
    rudel.fit(model, tokens(10**6, 3), np.zeros(16), batch_size=4, verbose=False)
    with pytest.raises(DataError, match="`other` takes 0 to 99"):
        rudel.fit(model, tokens(100, 2), np.zeros(16), batch_size=4, verbose=False)


def test_rows_of_other_examples_are_no_lookup() -> None:
    """A slice along the examples, or a table of its own kind, is not followed."""

    class Hashing(layers.Embedding):
        def call(self, inputs: Any) -> Any:
            return super().call(inputs % self.input_dim)

    x = keras.Input((4,), name="words", dtype="int32")
    assert lookups_of(keras.Model(x, layers.Embedding(10, 2)(x[0]))) == ()
    assert lookups_of(keras.Model(x, Hashing(10, 2)(x))) == ()


def test_one_table_for_several_inputs() -> None:
    table = layers.Embedding(10, 2, name="table")
    query, doc = (keras.Input((4,), name=name, dtype="int32") for name in ("query", "doc"))
    model = compiled({"query": query, "doc": doc}, layers.Concatenate()([table(query), table(doc)]))
    for name in ("query", "doc"):
        x = {"query": tokens(1), "doc": tokens(1)} | {name: tokens(12)}
        found = first_outside(model, lookups_of(model), x)
        assert found
        assert (found.lookup.input, found.row, found.value) == (name, 5, 12)
        with pytest.raises(DataError, match=f"The input `{name}` holds 12"):
            rudel.evaluate(model, x, np.zeros(16))


def test_predictions_refuse_them_too(tmp_path: Path) -> None:
    model = words()
    message = "holds 12 at example 5, and the layer `table` takes 0 to 9"
    write_examples(tmp_path / "shards", ({"x": row.astype("int64")} for row in tokens(12)))
    stream = rudel.Records(tmp_path / "shards", features={"x": (4,)}).map(lambda given: given["x"].astype("int32"))
    for x in (tokens(12), stream):
        with pytest.raises(DataError, match=message):
            rudel.predict(model, x, batch_size=4)
    assert rudel.predict(model, tokens(9), batch_size=4).shape == (16, 1)
    rudel.fit(model, tokens(9), np.zeros(16), batch_size=4, verbose=False, run=tmp_path / "run")
    np.save(tmp_path / "x.npy", tokens(12))
    with pytest.raises(DataError, match=message):
        predict_files(tmp_path / "run", [tmp_path / "x.npy"])


def test_a_model_that_cannot_be_followed_does_not_blame_the_learning_rate() -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table = layers.Embedding(10, 2, name="table")
            self.last = layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.last(ops.mean(self.table(inputs), axis=1))

    model = Own()
    model.compile("sgd", "mse")
    with pytest.raises(NonFiniteError, match="an input holds 10, and the longest table of the model, `table`") as error:
        rudel.fit(model, tokens(10), np.zeros(16), batch_size=4, verbose=False)
    assert "learning rate" not in str(error.value)
