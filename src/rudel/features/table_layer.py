"""The columns of a table as a Keras layer, so that a model takes numbers as they are in the table."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from rudel.aliases import Tensor, Tree
from rudel.features.table_columns import Column, column_of

_FARTHEST = 8.0
"""Standard deviations from the mean beyond which a number makes no more difference."""


@keras.saving.register_keras_serializable("rudel")
class TableColumns(keras.layers.Layer):
    """Columns by their keys, (N,) each, as one vector (N, F).

    A number becomes its distance from the mean in standard deviations, its place between each two neighbouring
    quantiles from 0 to 1 (piecewise linear encoding: Gorishniy et al., On Embeddings for Numerical Features in Tabular
    Deep Learning, 2022), and, where the column has gaps, whether it is missing. A category becomes a learned vector;
    one that was not there in training is zeros.

    Args:
        columns: in the order of the vector; or what `Column.config` gave of them.
        arguments: of any layer: `name`, and `dtype`, which is that of what comes out.
    """

    def __init__(self, columns: Sequence[Column | Mapping[str, Any]], **arguments: Any) -> None:
        super().__init__(autocast=False, **arguments)
        self.columns = [each if isinstance(each, Column) else column_of(each) for each in columns]

    def build(self, input_shape: Tree) -> None:
        """Makes the vectors of categories."""
        self.vectors = {
            column.name: self.add_weight(
                (len(column.categories) + 1, _width(column)), "zeros", name=f"categories_{number}"
            )
            for number, column in enumerate(self.columns)
            if column.categories
        }

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """The vector."""
        from keras import ops

        parts = []
        for column in self.columns:
            values = inputs[column.key]
            if column.categories:
                parts.append(ops.take(self.vectors[column.name], ops.cast(values, "int32"), axis=0))
            else:
                parts += _of_numbers(column, ops.expand_dims(values, -1))
        return ops.cast(ops.concatenate(parts, axis=-1), self.compute_dtype)

    def compute_output_spec(self, inputs: Tree) -> Any:
        """The shape of the vector."""
        width = sum(_width(column) for column in self.columns)
        batch = next(iter(inputs.values())).shape[0]
        return keras.KerasTensor((batch, width), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The configuration to make the layer from again."""
        return {**super().get_config(), "columns": [column.config() for column in self.columns]}


def columns_of(model: keras.Model) -> tuple[Column, ...]:
    """The columns that a model takes; none if it does not take a table."""
    from rudel.internals.keras import layers_of

    found = next((layer for layer in layers_of(model) if isinstance(layer, TableColumns)), None)
    return tuple(found.columns) if found else ()


def _width(column: Column) -> int:
    if column.categories:
        return min(16, 1 + len(column.categories) // 2)
    return 1 + max(0, len(column.edges) - 1) + column.gaps


def _of_numbers(column: Column, values: Tensor) -> list[Any]:
    """The numbers of a column, (N, 1), as parts of the vector."""
    import numpy as np
    from keras import ops

    parts = []
    if column.gaps:
        missing = ops.isnan(values)
        values = ops.where(missing, column.mean, values)
        parts.append(ops.cast(missing, "float32"))
    parts.append(ops.clip((values - column.mean) / column.deviation, -_FARTHEST, _FARTHEST))
    if len(column.edges) > 1:
        edges = np.array(column.edges, np.float32)
        parts.append(ops.clip((values - edges[:-1]) / (edges[1:] - edges[:-1]), 0.0, 1.0))
    return parts
