"""Frames in Python as inputs of a model of a table."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.data.table import read_table
from rudel.features.table_columns import encoded

if TYPE_CHECKING:
    import keras


def as_taken(model: "keras.Model", x: Any) -> Any:
    """Inputs of a model: the columns of a frame, or of a dict like one, as the model takes them.

    A dict with just the inputs of the model, numbers as float32 and categories as int32, is taken as it is.

    Args:
        model: any model; to one that takes no table, all is given as it is.
        x: of any kind; all others are returned as they are.

    Raises:
        DataError: a column is missing, or holds texts in the place of numbers.
    """
    from rudel.features.table_layer import columns_of

    is_frame = any(hasattr(type(x), name) for name in ("columns", "column_names"))
    if not (is_frame or isinstance(x, Mapping)) or not (columns := columns_of(model)):
        return x
    if not is_frame:
        dtypes = {name: str(np.asarray(values).dtype) for name, values in x.items()}
        if dtypes == {column.key: column.dtype for column in columns}:
            return x
    table = read_table(x)
    return encoded(columns, table.columns, table.name)
