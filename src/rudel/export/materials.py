"""Materials of an export: a run's model, and examples to calibrate with and to compare on."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.backend import keras_on_jax
from rudel.data.dataset import Dataset, Examples
from rudel.data.pictures import is_image
from rudel.data.stream import Stream
from rudel.errors import DataError, ExportError
from rudel.loop.data_checks import as_part, check_examples
from rudel.loop.model_names import names_of
from rudel.loop.vocabulary import lookups_of
from rudel.runs.file_model import FileModel, Unreadable, file_model, joined, read_each
from rudel.runs.loading import dataset_of, load, read_image_of, recipe_of, to_evaluate
from rudel.runs.model_arrays import read_examples
from rudel.runs.predict_many import files_at
from rudel.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    import keras

_MADE_UP = 64
"""Inputs that are made up, where there is no data."""

MOST_COMPARED = 5000
"""Examples that a model is compared on; of more, so many are chosen at random."""


@dataclass(frozen=True)
class Materials:
    """The model and examples of an export.

    Attributes:
        run: the run.
        model: its model, on JAX.
        calibration: examples that int8 ranges are found on; None where they are not needed.
        comparison: examples that the result is compared on.
        compared_on: what these are: "validation", "test", "training", "given" or "made-up".
        notes: what a user should know of the data given, a sentence each.
    """

    run: RunDirectory
    model: "keras.Model"
    calibration: Examples | None
    comparison: Examples
    compared_on: str
    notes: Sequence[str] = ()

    @property
    def class_names(self) -> list[str]:
        """Names of the classes; empty where none were given."""
        return list(self.run.read_config().get("class_names") or ())

    @property
    def channels(self) -> list[str]:
        """Names of the columns of a motion sensor, in the model's order; empty where nobody said."""
        return list(self.run.read_config().get("channels") or ())

    @property
    def half(self) -> str:
        """The floats of 16 bits that its layers compute in; "" for none."""
        from rudel.internals.keras import layers_of

        kinds = {layer.compute_dtype for layer in layers_of(self.model)}
        return next((kind for kind in ("bfloat16", "float16") if kind in kinds), "")

    @property
    def reads_images_itself(self) -> bool:
        """Whether the recipe has a way of its own to make inputs of images."""
        return read_image_of(self.run) is not None

    @property
    def recipe(self) -> str:
        """The recipe of the run as it can be found again, or ""."""
        found = recipe_of(self.run)
        return "" if found is None else str(self.run.read_config()["recipe"])

    @property
    def modules(self) -> list[str]:
        """Modules that define layers and functions of the model, beside Keras and the recipe."""
        keras = keras_on_jax()
        from rudel.internals.keras import layers_of

        things = [*map(type, layers_of(self.model)), *keras.saving.get_custom_objects().values()]
        names = {getattr(thing, "__module__", "") or "" for thing in things}
        known = ("keras", "builtins", "__main__", "rudel_recipe_")
        return sorted(name for name in names if name and not name.startswith(known))

    @property
    def search(self) -> list[str]:
        """Folders in which such modules are found."""
        return [str(Path(folder or ".").absolute()) for folder in sys.path]


def gather(run: RunDirectory, data: Any, calibration: int | None, seed: int) -> Materials:
    """Reads a run's model and finds examples.

    Where nothing is given to a model without a recipe, and nothing is calibrated, inputs are made up.

    Args:
        run: a finished run.
        data: see `rudel.export`.
        calibration: how many examples to calibrate on; None for none.
        seed: of the choice.

    Raises:
        RunError: the model cannot be read, or there is no data.
        DataError: the data does not fit the model.
        ExportError: its weights are floats of 16 bits.
    """
    model = load(run.path)
    _refuse_half_weights(model)
    if data is None and not calibration and "source" not in run.read_config():
        made_up = _made_up(model, seed)
        if made_up is not None:
            return Materials(run, model, None, made_up, "made-up")
    parts, notes = _parts(run, model, data, seed)
    if isinstance(parts, Dataset):
        train = parts.train
        found = {"validation": parts.validation, "test": parts.test, "training": train}
        compared_on, comparison = next((name, part) for name, part in found.items() if part is not None)
        chosen = _some(train, calibration, seed) if calibration else None
    else:
        order = np.random.default_rng(seed).permutation(len(parts))
        kept = min(calibration or 0, len(parts) // 2)
        chosen = parts.take(np.sort(order[:kept])) if kept else _some(parts, 1, seed) if calibration else None
        rest = np.sort(order[kept:])
        comparison, compared_on = parts.take(rest[_choice(len(rest), MOST_COMPARED, seed)]), "given"
    comparison = _some(comparison, MOST_COMPARED, seed)
    if chosen is not None:
        check_examples(chosen, model, "calibration")
    check_examples(comparison, model, compared_on)
    return Materials(run, model, chosen, comparison, compared_on, notes)


def _refuse_half_weights(model: "keras.Model") -> None:
    halves = sorted({variable.dtype for variable in model.variables if variable.dtype.endswith("float16")})
    if halves:
        raise ExportError(
            f"Weights of the model are {halves[0]}, and no converter takes these: train it with the policy "
            f"mixed_{halves[0]}, which computes in {halves[0]} too, and keeps its weights in float32."
        )


def _parts(
    run: RunDirectory, model: "keras.Model", data: Any, seed: int
) -> tuple[Dataset | Examples | Stream, Sequence[str]]:
    """The examples to choose from, and notes on those that the user gave."""
    if isinstance(data, Dataset):
        return data, ()
    if isinstance(data, str | Path):
        if str(data).endswith(".npz"):
            return read_examples(Path(data), model, run.read_config().get("class_names", []))[0], ()
        if "source" not in run.read_config() and Path(data).is_dir():
            return _files(Path(data), run, seed)
        try:
            dataset = dataset_of(run, str(data), model)
        except DataError:  # of fewer classes, perhaps: what is evaluated is labelled by their names
            recipe = recipe_of(run)
            if recipe is None or not recipe.has_evaluation:
                raise
            return _by_names(run, model, str(data))
        return dataset, dataset.notes
    if data is not None:
        return as_part(data, "given"), ()
    return dataset_of(run, model=model), ()


def _by_names(run: RunDirectory, model: "keras.Model", source: str) -> tuple[Examples | Stream, Sequence[str]]:
    """All examples of the model's classes at a source, and notes on them."""
    found = to_evaluate(run, source, model=model)
    left_out = ", ".join(f"{count:,} of {name}" for name, count in found.left_out.items())
    notes = [f"Examples were left out, because the model does not know their classes: {left_out}."] if left_out else []
    return found.examples, [*found.notes, *notes]


def _some(examples: Examples | Stream, count: int, seed: int) -> Examples:
    """So many of the examples, chosen at random and in their order; all where there are no more; of a stream, read."""
    if len(examples) <= count:
        return examples if isinstance(examples, Examples) else examples.in_memory()
    return examples.take(_choice(len(examples), count, seed))


def _choice(size: int, count: int, seed: int) -> np.ndarray:
    """So many numbers below `size`, chosen at random and in their order; all where there are no more."""
    return np.sort(np.random.default_rng(seed).permutation(size)[:count])


def _made_up(model: "keras.Model", seed: int) -> Examples | None:
    """Inputs at random, for a model of which only shapes are known; None where a size is left open."""
    tensors = getattr(model, "inputs", None) or ()
    if not tensors or any(None in tensor.shape[1:] for tensor in tensors):
        return None
    random, lookups = np.random.default_rng(seed), lookups_of(model)
    made = []
    for place, tensor in enumerate(tensors):
        shape, kind = (_MADE_UP, *tensor.shape[1:]), str(tensor.dtype)
        sizes = [lookup.size for lookup in lookups if lookup.place == place]
        whole = random.integers(0, min((256 if kind == "uint8" else 2, *sizes)), shape)
        kind = kind if "int" in kind else "float32"
        made.append(whole.astype(kind) if sizes or "int" in kind else random.normal(size=shape).astype(kind))
    return Examples(made[0] if len(made) == 1 else dict(zip(names_of(model, "inputs"), made, strict=True)))


def _files(folder: Path, run: RunDirectory, seed: int) -> tuple[Examples, list[str]]:
    """The inputs in the files of a folder, of many in some of them; and notes on unreadable files and on pixels.

    Raises:
        DataError: there is none that can be read and fits the model.
    """
    files = files_at([folder])
    some = [(str(files[i]), files[i]) for i in _choice(len(files), MOST_COMPARED, seed)]
    inputs, reasons, images = [], [], False
    model = file_model(run.path)
    for (_, path), one in zip(some, read_each(model.read, some), strict=True):
        if isinstance(one, Unreadable):
            reasons.append(one.reason)
        else:
            inputs.append(one[0])
            images |= not model.read.columns and is_image(path)
    if not inputs:
        raise DataError(f"No file in {folder} can be used, out of {len(files):,}; the first: {reasons[0]}")
    notes = [f"Left out: {reason}" for reason in reasons]
    if images and "file" in run.read_config() and _may_want_other_numbers(model):
        notes.append(
            f"Images in {folder} were taken as pixels of 0 to 255: if the model learned from other numbers, such as 0 "
            "to 1, give an .npz file with inputs as it takes them."
        )
    return Examples(joined(inputs)), notes


def _may_want_other_numbers(model: FileModel) -> bool:
    """Whether a model takes floats of a range that nobody knows, and has no layer that scales pixels."""
    from rudel.internals.keras import layers_of

    scales = any(type(layer).__name__ in ("Rescaling", "Normalization") for layer in layers_of(model.model))
    return model.read.learned_from is None and "float" in str(model.model.inputs[0].dtype) and not scales
