"""Rows of a table as inputs of a model: categories are texts, and values may be missing."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rudel.features.table_columns import Column
from rudel.serve.model_signature import Signature

Compute = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


def of_table(
    columns: Sequence[Column], keys: Sequence[str | int | None], signature: Signature, compute: Compute
) -> tuple[Signature, Compute, Callable[[Sequence[np.ndarray]], None]]:
    """Signature and computation for clients of a model that takes a table.

    Args:
        columns: that it takes.
        keys: of the columns, in the order of the inputs.
        signature: of the model itself, which takes categories by number.
        compute: columns of inputs as the model takes them to its outputs.

    Returns:
        The signature, with the columns' names, and texts for categories; `compute` for that; and a check that refuses
        nothing, as a text that is not among the categories is an unknown one.
    """
    known = {column.key: column for column in columns}
    ordered = [known[str(key)] for key in keys]
    inputs = tuple(
        replace(tensor, name=column.name, gaps=True, dtype="bytes" if column.categories else tensor.dtype)
        for tensor, column in zip(signature.inputs, ordered, strict=True)
    )

    def encoded(given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return compute(
            [
                column.encoded([_text(value) for value in values] if column.categories else values, "the request")
                for column, values in zip(ordered, given, strict=True)
            ]
        )

    return replace(signature, inputs=inputs), encoded, lambda given: None


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
