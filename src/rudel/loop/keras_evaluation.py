"""Evaluation and prediction by Keras' own steps, where Keras is not on JAX; every example counts exactly once."""

import contextlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rudel.data.batch_source import BatchStream
from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.errors import ModelError
from rudel.loop import model_state
from rudel.loop.blocks import Blocks
from rudel.loop.data_checks import check_examples
from rudel.loop.metric_values import as_floats, results_or_logs
from rudel.loop.model_state import ModelState, first_line
from rudel.loop.read_ahead import Ahead

if TYPE_CHECKING:
    import keras


class OwnEvaluator:
    """Does what `rudel.loop.evaluation.Evaluator` does, by the model's `test_step`, batch by batch.

    Args:
        model: a built, compiled Keras model.
        examples: what to evaluate on.
        batch_size: examples a step.
        what: what messages call them.
    """

    compile_seconds = 0.0

    def __init__(
        self, model: "keras.Model", examples: Examples | Stream, batch_size: int, what: str = "evaluation"
    ) -> None:
        self._model, self._examples, self._batch_size, self._what = model, examples, batch_size, what
        self._blocks: Blocks | None = None
        if isinstance(examples, Stream) and not isinstance(examples, BatchStream):
            self._blocks = Blocks(examples, model, what)

    def run(self, state: ModelState) -> dict[str, float]:
        """The metrics of a state, by Keras' names; model and metric variables hold what belongs to them afterwards.

        Of a model whose `test_step` logs something else, what it logged of the last batch.

        Raises:
            DataError: an example of a stream cannot be read, or is none that can be evaluated.
            ModelError: the model's `test_step` fails.
        """
        model = self._model
        model_state.write(model, state)
        model.reset_metrics()
        model.make_test_function()
        assert model.test_function is not None
        logs: Any = {}
        with contextlib.closing(self._batches()) as batches:
            for rows in batches:
                try:
                    logs = model.test_function([(rows.x, rows.y, rows.sample_weight)])
                except Exception as error:
                    message = f"`test_step` of the model `{model.name}` fails: {first_line(error)}"
                    raise ModelError(message) from error
        return results_or_logs(model, as_floats(logs))

    def _batches(self) -> Generator[Examples, None, None]:
        if isinstance(self._examples, BatchStream):
            with Ahead(self._examples.pieces()) as pieces:
                for piece in pieces:
                    check_examples(piece.examples, self._model, self._what)
                    yield piece.examples
            return
        with contextlib.closing(self._example_blocks()) as blocks:
            for block in blocks:
                for first in range(0, len(block), self._batch_size):
                    yield block.take(slice(first, first + self._batch_size))

    def _example_blocks(self) -> Generator[Examples, None, None]:
        if self._blocks is None:
            assert isinstance(self._examples, Examples)
            yield self._examples
            return
        blocks, count = self._blocks, len(self._examples)
        rows = self._batch_size * blocks.batches(self._batch_size, max(1, count // self._batch_size))
        read = (blocks.examples(np.arange(first, min(first + rows, count))) for first in range(0, count, rows))
        with Ahead(read) as ahead:
            yield from ahead


def predicted(model: "keras.Model", inputs: Iterator[Any]) -> Iterator[Any]:
    """The outputs for each of some batches of inputs, as NumPy arrays."""
    for x in inputs:
        try:
            outputs = model.predict_on_batch(x)
        except Exception as error:
            raise ModelError(f"`predict_step` of the model `{model.name}` fails: {first_line(error)}") from error
        yield jax.tree.map(np.asarray, outputs)
