"""Values that all replicas have stay what they are, to the bit; whole numbers become ones that a replica had."""

import keras
import numpy as np
import pytest

from rudel.data.dataset import Examples
from rudel.loop import model_state
from rudel.loop.schedule import Schedule
from rudel.replicas.example_source import Source
from rudel.replicas.setups import Setups
from rudel.replicas.shared_variables import agreed, as_shared, is_shared, mean_of, moved_towards
from rudel.session.job import Job

LOWEST = np.finfo(np.float32).min
MASK = np.array([0.0, 0.1, -1e9, LOWEST, -np.inf, np.inf], np.float32)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_what_is_the_same_everywhere_stays_so_to_the_bit_and_without_warnings() -> None:
    with np.errstate(all="raise"):
        mean = mean_of([MASK, MASK, MASK], [7, 11, 310])
        assert mean.tobytes() == MASK.tobytes()
        assert agreed(MASK, MASK, mean).tobytes() == MASK.tobytes()
        state = MASK
        for weight in (0.3, 0.21, 0.49):
            state = moved_towards(state, MASK, weight)
        assert state.tobytes() == MASK.tobytes()


def test_elements_that_differ_are_averaged_beside_those_that_do_not() -> None:
    one, other = floats(-np.inf, 1.0), floats(-np.inf, 4.0)
    mean = mean_of([one, other], [1, 2])
    np.testing.assert_array_equal(mean, floats(-np.inf, 3.0))
    np.testing.assert_array_equal(agreed(one + 0.5, one, mean), floats(-np.inf, 3.5))
    np.testing.assert_array_equal(moved_towards(one, other, 0.5), floats(-np.inf, 2.5))


def test_a_largest_value_so_far_leaves_infinity() -> None:
    nothing, seen = floats(-np.inf), floats(3.0)
    assert moved_towards(nothing, seen, 0.25) == seen
    assert agreed(nothing, nothing, seen) == seen
    assert agreed(seen, nothing, nothing) == seen


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_of_whole_numbers_the_largest_holds(dtype: str) -> None:
    counts = [np.array([count], dtype) for count in (2**24 + 1, 2**24 + 3, 5)]
    mean = mean_of(counts, [1, 1, 1])
    assert (mean.dtype, mean) == (dtype, 2**24 + 3)
    assert agreed(counts[2] + 1, counts[2], mean) == mean
    assert agreed(mean + 2, mean, mean) == mean + 2
    assert moved_towards(counts[0], counts[1], 0.1) == counts[1]
    assert as_shared(mean).dtype == dtype


def test_a_boolean_is_true_where_one_replica_has_it_so() -> None:
    no, yes = as_shared(np.array([False, False])), as_shared(np.array([False, True]))
    mean = mean_of([no, yes], [3, 1])
    assert mean.astype(bool).tolist() == agreed(no, no, mean).astype(bool).tolist() == [False, True]
    assert moved_towards(no, yes, 0.1).astype(bool).tolist() == [False, True]
    assert agreed(no, yes, yes).astype(bool).tolist() == [False, False], "what a replica has changed since stays"


def test_numbers_and_booleans_are_shared() -> None:
    shared = ("float16", "float32", "int8", "uint16", "int32", "uint32", "int64", "bool")
    assert all(is_shared(np.zeros(2, dtype)) for dtype in shared)
    assert not is_shared(np.zeros(2, "complex64"))


def test_what_is_quantised_is_not_shared() -> None:
    class Counting(keras.layers.Layer):
        def build(self, input_shape: object) -> None:
            self.count = self.add_weight(name="count", dtype="int8", initializer="zeros", trainable=False, shape=())

        def call(self, x: object) -> object:
            return x

    quantised = keras.layers.Dense(4)
    model = keras.Sequential([keras.Input((4,)), quantised, Counting(), keras.layers.Dense(1)])
    quantised.quantize("int8")
    model.compile("sgd", "mse")
    data = Examples(np.zeros((8, 4), np.float32), np.zeros((8, 1), np.float32))
    model_state.build(model, (data.x, data.y, None))
    job, state = Job(model, data, None, Schedule(8, 8, total_steps=1)), model_state.values(model)
    setups = Setups(job, state, Source(data, True, model), replicas=2)
    shared = [model.non_trainable_variables[i].name for i in setups.statistics]
    assert "count" in shared
    assert "kernel" not in shared
    assert "kernel" in [variable.name for variable in model.non_trainable_variables]
