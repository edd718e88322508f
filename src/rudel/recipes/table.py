"""Tables of numbers and categories: predicts a column from the others, with a small network.

For a CSV or Parquet file, or in Python a frame. The model takes the values as they are in the table: it holds the scale
of each number and the list of each column's categories.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import rudel
from rudel.data.dataset import ToEvaluate
from rudel.data.table import read_table
from rudel.errors import DataError, OptionError, option, recipe_option
from rudel.features.table_columns import Column, encoded, notes_on_unknown, unknown_in
from rudel.recipes.table_roles import Target, find_columns, find_target

training = {"epochs": 20, "least_steps": 60, "batch_size": 128}


@dataclass(frozen=True, eq=False)
class TableDataset(rudel.Dataset):
    """The data of a table, with the columns for which `model` makes a model.

    Args:
        columns: that the model takes.
    """

    columns: Sequence[Column] = ()


def data(
    source: Any = None,
    trained: tuple[Any, Sequence[str]] | None = None,
    target: str = "",
    task: Literal["auto", "classification", "regression"] = "auto",
    categories: tuple = (),
    ignore: tuple = (),
    validation: float = 0.2,
    seed: int = 0,
) -> TableDataset:
    """A table, of which some rows are held out.

    Args:
        source: a CSV or Parquet file, or a frame of pandas, Polars or PyArrow.
        trained: a model, and its class names: the table is read as it takes it.
        target: the column to predict. Rows without it are left out.
        task: what it is; auto takes texts, and whole numbers of at most ten kinds, for classes.
        categories: columns whose numbers are names of categories, such as postcodes, separated by commas.
        ignore: columns to leave out, separated by commas.
        validation: share of rows to hold out.
        seed: seed of the split.
    """
    if source is None and trained:
        raise DataError(
            f"The run learned from a frame, which it does not keep: give a CSV or Parquet file with {option('data')}."
        )
    if source is None:
        raise DataError(
            f"The recipe `table` learns from a table: give a CSV or Parquet file with {option('data')}, and with "
            f"{recipe_option('target', 'COLUMN')} the column to predict."
        )
    table = read_table(source)
    if not target:
        names = ", ".join(f"`{name}`" for name in table.columns)
        raise OptionError(
            f"Which column is to be predicted? Name it by {recipe_option('target', 'COLUMN')}: {table.name} has "
            f"{names}."
        )
    if not 0 < validation < 1:
        raise OptionError(f"`validation` is a share, between 0 and 1, not {validation:g}.")
    found = find_target(table, target, task, trained and trained[1])
    usable = found.usable
    table, y = table.take(usable), found.values[usable]
    rows, held_out = rudel.split(rudel.Examples(np.arange(len(table))), validation, seed)
    if trained:
        from rudel.features.table_layer import columns_of

        columns, notes = columns_of(trained[0]), []
    else:
        columns, notes = find_columns(table.take(rows.x), target, categories, ignore)
    x = encoded(columns, table.columns, table.name, np.flatnonzero(usable))
    every = rudel.Examples(x, y)
    return TableDataset(
        every.take(rows.x),
        every.take(held_out.x),
        class_names=found.class_names,
        notes=(_what(target, found), *_left_out(target, found), *notes),
        columns=columns,
    )


def evaluation(source: Any, split: str | None, class_names: Sequence[str], model: Any, target: str = "") -> ToEvaluate:
    """All rows of a table, for `rudel evaluate --data`; see `data`.

    Args:
        source: a CSV or Parquet file, or a frame.
        split: a table has none.
        class_names: of the model.
        model: says which columns it takes.
        target: the column to predict.
    """
    from rudel.features.table_layer import columns_of

    if split is not None:
        raise OptionError(f"A table has no splits to choose from: leave out {option('split')}.")
    table = read_table(source)
    found = find_target(table, target, "auto", class_names)
    fits = found.usable
    table, left_out = table.take(fits), table.take(found.known & ~fits)
    columns = columns_of(model)
    x = encoded(columns, table.columns, table.name, np.flatnonzero(fits))
    unknown = Counter(map(str, left_out.columns[target]))
    examples = rudel.Examples(x, found.values[fits])
    counts = {name: int(where.sum()) for name, where in unknown_in(columns, x).items()}
    notes = [*_left_out(target, found), *notes_on_unknown(counts, len(table))]
    return ToEvaluate(examples, dict(sorted(unknown.items())), notes)


def model(
    dataset: TableDataset,
    steps: int = 1,
    hidden: int = 128,
    layers: int = 2,
    dropout: float = 0.1,
    learning_rate: float = 2e-3,
) -> Any:
    """A net for a table: an input for each column to probabilities, or to a number in the target's unit.

    Args:
        dataset: gives the columns, the classes, and the mean and the spread of numbers to predict.
        steps: of the whole training, over which the learning rate falls to 0 along a cosine.
        hidden: units of each hidden layer.
        layers: number of hidden layers.
        dropout: share of the units to drop in training.
        learning_rate: initial learning rate of AdamW.
    """
    import keras

    from rudel.features.table_layer import TableColumns
    from rudel.features.table_r2 import TableR2

    inputs = {column.key: keras.Input((), dtype=column.dtype, name=column.key) for column in dataset.columns}

    def name(wanted: str) -> str:
        """A layer's name that no column has."""
        return wanted if wanted not in inputs else name(f"{wanted}_")

    x = TableColumns(dataset.columns, name=name("columns"))(inputs)
    for number in range(layers):
        x = keras.layers.Dense(hidden, activation="relu", name=name(f"dense_{number}"))(x)
        x = keras.layers.Dropout(dropout, name=name(f"dropout_{number}"))(x)
    if dataset.class_names:
        outputs = keras.layers.Dense(len(dataset.class_names), "softmax", dtype="float32", name=name("classes"))(x)
        loss, metrics, weight = "sparse_categorical_crossentropy", ["accuracy"], None
    else:
        y = dataset.train.y.astype(np.float64)
        spread = float(y.std()) if y.min() < y.max() else 1.0
        outputs = keras.layers.Dense(1, dtype="float32", name=name("scaled"))(x)
        outputs = keras.layers.Rescaling(spread, y.mean(), dtype="float32", name=name("number"))(outputs)
        loss, metrics = "mse", ["mae", TableR2(float(y.mean()), name="r2")]
        weight = 1 / spread**2  # the same gradients in every unit
    made = keras.Model(inputs, outputs, name="table")
    schedule: Any = keras.optimizers.schedules.CosineDecay(learning_rate, max(1, steps))
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=1e-2)
    made.compile(optimizer, loss, loss_weights=weight, metrics=metrics)
    return made


def _left_out(target: str, found: Target) -> list[str]:
    if not found.missing:
        return []
    words = ", ".join(f"`{word}`" if word else "nothing" for word in found.missing)
    count, rows = int((~found.known).sum()), len(found.known)
    return [f"Left out: {count:,} of {rows:,} rows, whose `{target}` is missing ({words})."]


def _what(target: str, found: Target) -> str:
    if found.class_names:
        return f"`{target}` has {len(found.class_names)} classes: this is a classification."
    return f"`{target}` is a number: this is a regression."
