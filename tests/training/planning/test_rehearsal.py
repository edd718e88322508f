"""A rehearsal, without hosts: what it says of the work."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from rudel.data.dataset import Dataset, Examples
from rudel.errors import ClusterError
from rudel.planning.measure_hosts import Nowhere, Rehearsal, rehearsal_of
from rudel.replicas import host_checks as checks
from rudel.session.training_options import TrainingOptions
from rudel.training.whole_run import Request, job_of


def rehearsed(model: Any, dataset: Dataset) -> Rehearsal:
    return rehearsal_of(job_of(requested(model, dataset, steps=10), {}), Nowhere(3))


def requested(model: Any, dataset: Dataset, steps: int) -> Request:
    options = TrainingOptions(steps=steps)
    return Request(model, dataset, options.schedule(len(dataset.train)), options)


def test_work_is_what_replicas_are_checked_for(blobs: Any, classifier: Callable[..., Any]) -> None:
    rehearsal = rehearsed(classifier(), Dataset(Examples(*blobs)))
    work, state = rehearsal.work, rehearsal._spec.state
    assert work is rehearsal.work
    assert work.weights == 4 * (6 * 16 + 16 + 16 * 3 + 3)
    assert work.variables == sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tuple(state)))
    assert work.replica == checks._needed(state, 0)
    assert work.data == 192 * (6 * 4 + 4)
    assert not work.streamed
    desk = rehearsal.desk()
    assert desk.take > 0
    assert desk.close > 0


def test_a_computer_that_cannot_hold_it_is_told_in_a_sentence(
    blobs: Any, classifier: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 123 bytes.")

    monkeypatch.setattr("rudel.planning.measure_hosts.Replica", full)
    with pytest.raises(
        ClusterError, match=r"^This computer cannot be measured: RESOURCE_EXHAUSTED: Out of memory alloc"
    ):
        rehearsed(classifier(), Dataset(Examples(*blobs))).here()


def test_a_training_of_any_length_is_rehearsed(blobs: Any, classifier: Callable[..., Any]) -> None:
    import keras

    rate: Any = keras.optimizers.schedules.CosineDecay(1e-3, 1000)
    model, data, steps = classifier(), Dataset(Examples(*blobs)), 10**12
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    assert rehearsal_of(job_of(requested(model, data, steps), {}), Nowhere(3)).work.steps == steps


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_stream_may_be_on_this_computer_alone(blobs: Any, classifier: Any, listed: Any, part: str) -> None:
    parts: dict[str, Any] = {"train": Examples(*blobs), "validation": Examples(*blobs)} | {part: listed(*blobs)}
    assert rehearsed(classifier(), Dataset(**parts)).work.streamed
