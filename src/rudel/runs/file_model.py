"""A run's model with what reads files for it, here or on a host."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.data.pictures import read_input
from rudel.data.table import read_table
from rudel.errors import DataError
from rudel.features.layer import rate_of
from rudel.features.table_columns import encoded, unknown_in
from rudel.features.table_layer import columns_of
from rudel.loop.classification import as_probabilities, of_both
from rudel.loop.evaluation import predict
from rudel.loop.model_names import names_of
from rudel.runs import run_directory
from rudel.runs.loading import load, read_image_of
from rudel.runs.model_arrays import read_inputs
from rudel.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    import keras

BATCH_SIZE = 64


@dataclass(frozen=True)
class Prediction:
    """The prediction for one input.

    Args:
        source: the file, with the row where it holds several.
        outputs: of the model, flat.
        ranking: (class, probability), best first; empty where the model is no classifier, or answers NaN or infinity.
        unknown: columns of a table that hold a category here that was not there in training.
    """

    source: str
    outputs: list[float]
    ranking: list[tuple[str, float]]
    unknown: Sequence[str] = ()


@dataclass(frozen=True)
class Unreadable:
    """A file that a model cannot take.

    Args:
        source: its path.
        reason: a sentence.
    """

    source: str
    reason: str


@dataclass(frozen=True)
class Reader:
    """Reads a file as inputs of a model, and says how many.

    Args:
        shape: of one input; of no meaning for tables.
        columns: of the table that the model takes; empty where it takes none.
        rate: of the sound that it hears, samples a second; None where it hears none.
        read_image: of the recipe; see `read_input`.
        inputs: shapes of several inputs by name, None for a length that varies; empty where there is one.
        channels: names of the columns of a motion sensor, in the order in which the model takes them; empty where
            nobody said.
        learned_from: the range of the inputs in training; see `read_input`.
    """

    shape: tuple[int, ...] = ()
    columns: Sequence[Any] = ()
    rate: int | None = None
    read_image: Callable[[Any], Any] | None = None
    inputs: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    channels: Sequence[str] = ()
    learned_from: Sequence[float] | None = None

    def __call__(self, path: Path) -> tuple[Any, int]:
        """Inputs (N, ...), or a dict of them, and N.

        Raises:
            DataError: the file is missing, cannot be read, or does not fit.
        """
        if self.columns:
            table = read_table(path)
            return encoded(self.columns, table.columns, table.name), len(table)
        if path.suffix == ".npz":
            arrays, count = read_inputs(path, self.inputs or {"x": self.shape})
            return arrays if self.inputs else arrays["x"], count
        if self.inputs:
            raise DataError(f"{path} is one input, and the model takes {', '.join(self.inputs)}: give an .npz file.")
        rows = read_input(path, self.shape, self.read_image, self.rate, self.channels, self.learned_from)
        return rows, len(rows)


def read_each(read: Reader, files: Iterable[tuple[str, Path]]) -> Iterator[tuple[Any, int] | Unreadable]:
    """Reads files, and goes on after those that cannot be read.

    Args:
        read: reads one.
        files: what messages call each, and its path.

    Yields:
        For each file, what `read` returns, or why it cannot be read.
    """
    for source, path in files:
        try:
            yield read(path)
        except DataError as error:
            yield Unreadable(source, str(error).replace(str(path), source))


@dataclass(frozen=True)
class FileModel:
    """A model that predicts from files.

    Args:
        model: built.
        read: reads a file.
        names: of the classes; empty where there are none.
    """

    model: "keras.Model"
    read: Reader
    names: Sequence[str]

    def answers(self, files: Sequence[tuple[str, Path]]) -> list[Prediction | Unreadable]:
        """Predictions for files, in their order.

        Args:
            files: what messages call each, and its path.

        Raises:
            DataError: the model has several outputs, or the files have inputs of different shapes.
        """
        inputs: list[Any] = []
        found: list[Unreadable | list[str]] = []
        for (source, _), one in zip(files, read_each(self.read, files), strict=True):
            if isinstance(one, Unreadable):
                found.append(one)
                continue
            rows, count = one
            inputs.append(rows)
            found.append([source] if count == 1 else [f"{source}[{i}]" for i in range(count)])
        said = iter(self._said([name for one in found if isinstance(one, list) for name in one], inputs))
        return [each for one in found for each in ([next(said) for _ in one] if isinstance(one, list) else [one])]

    def _said(self, sources: list[str], inputs: list[Any]) -> list[Prediction]:
        if not inputs:
            return []
        x = joined(inputs)
        outputs = predict(self.model, x, batch_size=BATCH_SIZE)
        if not isinstance(outputs, np.ndarray):
            raise DataError(f"The model `{self.model.name}` has several outputs; call rudel.predict in Python.")
        unknown = unknown_in(self.read.columns, x)
        return [
            Prediction(
                source,
                output.reshape(-1).astype(float).tolist(),
                _ranking(as_probabilities(self.model, output[np.newaxis]), self.names),
                [name for name, where in unknown.items() if where[row]],
            )
            for row, (source, output) in enumerate(zip(sources, outputs, strict=True))
        ]


def file_model(run: str | Path) -> FileModel:
    """The model of a finished run, with what reads files for it.

    Raises:
        RunError: there is no such run, or it is unfinished.
        DataError: the model takes what files do not give.
    """
    directory = run_directory.open_finished(Path(run))
    model = load(run)
    config = directory.read_config()
    names, channels = config.get("class_names") or [], config.get("channels") or []
    if columns := columns_of(model):
        return FileModel(model, Reader(columns=columns), names)
    if len(inputs := names_of(model, "inputs")) > 1:
        shapes = {name: tuple(tensor.shape[1:]) for name, tensor in zip(inputs, model.inputs, strict=True)}
        return FileModel(model, Reader(inputs=shapes), names)
    shape = input_shape(model, directory)
    read_image, learned_from = read_image_of(directory), config.get("input_range")
    reader = Reader(shape, (), rate_of(model), read_image, channels=channels, learned_from=learned_from)
    return FileModel(model, reader, names)


def packed(model: FileModel) -> bytes:
    """A model as a host can read it, in the same version of Rudel.

    Raises:
        ModelError: it cannot be sent.
    """
    from rudel.shipping.model_parcel import pack

    if not model.model.compiled:
        model.model.compile()
    return pack(model.model, (model.read, list(model.names)))


_LOADED: dict[str, FileModel] = {}


def answers_to_contents(
    key: str, parcel: bytes | None, contents: Sequence[tuple[str, bytes]]
) -> list[Prediction | Unreadable] | None:
    """On a host: what a model says of the contents of files.

    Args:
        key: of the model.
        parcel: the model, `packed`; None to use the one that this process has.
        contents: path and content of each file.

    Returns:
        What `FileModel.answers` returns; None where the model is needed and not there.
    """
    from rudel.shipping.model_parcel import unpack

    if key not in _LOADED:
        if parcel is None:
            return None
        model, (read, names) = unpack(parcel)
        _LOADED.clear()
        _LOADED[key] = FileModel(model, read, names)
    with tempfile.TemporaryDirectory(prefix="rudel-predict-") as folder:
        files = []
        for number, (source, content) in enumerate(contents):
            path = Path(folder) / f"{number}{Path(source).suffix}"
            path.write_bytes(content)
            files.append((source, path))
        return _LOADED[key].answers(files)


def input_shape(model: "keras.Model", run: RunDirectory) -> tuple[int, ...]:
    """Shape of the input of a model.

    Raises:
        DataError: it has no fixed shape.
    """
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or any(not isinstance(n, int) for n in shape[1:]):
        raise DataError(
            f"Files give one input of a fixed shape, and the model of the {run.title} takes others: "
            "call rudel.predict or rudel.evaluate in Python."
        )
    return shape[1:]


def joined(inputs: Sequence[Any]) -> Any:
    """The inputs of several files, (N, ...) each or dicts of such arrays, as those of one.

    Raises:
        DataError: they have different shapes, as a model may allow that takes any length.
    """
    try:
        if isinstance(inputs[0], dict):
            return {name: np.concatenate([rows[name] for rows in inputs]) for name in inputs[0]}
        return np.concatenate(inputs)
    except ValueError as error:
        raise DataError("The files give inputs of different shapes: give files of one shape at a time.") from error


def _ranking(probabilities: np.ndarray | None, names: Sequence[str]) -> list[tuple[str, float]]:
    if probabilities is None:
        return []
    (values,) = of_both(probabilities)
    called = list(names) if len(names) == len(values) else [str(i) for i in range(len(values))]
    return [(called[i], float(values[i])) for i in np.argsort(-values, kind="stable")]
