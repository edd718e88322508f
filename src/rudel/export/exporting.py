"""`rudel.export`: convert, run what came out, compare, and put it in its place."""

import pkgutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.backend import keras_on_jax
from rudel.errors import ExportError, OptionError, option
from rudel.export import process
from rudel.export.comparison import Comparison, compare, notes_on_calibration, notes_on_quantisation
from rudel.export.forms import Form, check_needs, find_form
from rudel.export.front import Front, front_of
from rudel.export.inputs import Inputs, output_names
from rudel.export.int8_model import Int8Model, Maker
from rudel.export.materials import Materials, gather
from rudel.export.photographs import FromFiles, Serving, compare_answers, serving_of, write_files
from rudel.export.place import check_free, put, size_of, workshop
from rudel.export.tables import check_table
from rudel.files import expanded
from rudel.loop.evaluation import predict
from rudel.loop.schedule import check_whole_number
from rudel.micro.names import checked_name, identifier
from rudel.runs import run_directory

if TYPE_CHECKING:
    import keras

_CALIBRATION = 500
"""Examples that ranges of int8 numbers are found on, by default."""


@dataclass(frozen=True)
class Exported:
    """A run in another form, and what that costs.

    Attributes:
        path: the file or folder that was made.
        form: the value of `to`.
        bytes: its size; of a folder, of all files in it; of what is C, what the model's constants take in flash.
        model_bytes: of the run's model.keras, which also holds what the optimizer remembers.
        metrics: of the exported model, by Keras' names; empty without targets.
        model_metrics: of the Keras model, on the same examples.
        largest_difference: between an output of the exported model and of the Keras model.
        agreement: share of the examples for which both name the same class; None for no classifiers.
        examples: how many both were compared on.
        compared_on: which ones: of the "validation", "test" or "training" part, those "given", or "made-up" ones.
        calibrated_on: how many training examples the ranges of integers were found on; 0 for none.
        inputs: of the exported model, in the order of Keras' `model.inputs`: name, shape, dtype, scale and zero point
            where integers stand for reals, and the key of its examples, such as a column, where that is another name.
        outputs: the same, in the order of `model.outputs`; with names of `classes` where there is one for each number.
        versions: of what converted.
        notes: what else a user should know, a sentence each.
        from_files: how near answers to JPEG and PNG files are; None for what takes no files.
    """

    path: Path
    form: str
    bytes: int
    model_bytes: int
    metrics: dict[str, float]
    model_metrics: dict[str, float]
    largest_difference: float
    agreement: float | None
    examples: int
    compared_on: str
    calibrated_on: int
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    versions: dict[str, str]
    notes: list[str] = field(default_factory=list)
    from_files: FromFiles | None = None


def export_run(
    run: Path,
    to: str,
    out: Path | None,
    data: Any,
    calibration: int | None,
    seed: int,
    tell: Callable[[str], None] = lambda doing: None,
) -> Exported:
    """Does what `rudel.export` says.

    Args:
        run, to, out, data, calibration, seed: see there.
        tell: called with what is being done, when that changes.
    """
    form = find_form(to)
    directory = run_directory.open_finished(run)
    check_needs(form)
    if calibration is not None and not form.integers:
        raise OptionError(
            f"{option('calibration')} is for forms with ranges of integers, and `{form.name}` has none: leave it out."
        )
    calibration = _CALIBRATION if calibration is None else calibration
    check_whole_number("calibration", calibration)
    check_whole_number("seed", seed, least=0)
    name = identifier(directory.path.resolve().name if out is None else out.name.split(".")[0])
    if form.maker:
        checked_name(name)
    out = Path(f"{name}{form.ending}") if out is None else expanded(out)
    check_free(out)
    tell("reading the run")
    materials = gather(directory, data, calibration if form.integers else None, seed)
    if form.check:
        pkgutil.resolve_name(form.check)(materials)
    check_table(form, materials.model)
    with workshop(out) as folder:
        front = front_of(materials.model, materials.run.model, materials.comparison.x, form.converter, folder)
        made = folder / "made" / (out.name or name)
        made.parent.mkdir()
        converted = folder / "model.tflite" if form.maker else made
        outputs = predict(materials.model, materials.comparison.x)
        serving = serving_of(materials, front.inputs, outputs) if form.takes_files else None
        tell(f"converting to {form.converter}")
        calibrated = None if materials.calibration is None else front.calibration(materials.calibration.x)
        versions = _convert(form, materials, front, serving, folder, converted, calibrated)
        tell("running the result")
        decoded = write_files(materials, serving, folder) if isinstance(serving, Serving) else None
        answers, about = _run(form, materials, front, 0 if decoded is None else len(decoded), folder, converted)
        if form.integers:
            front.check(about["inputs"])
        comparison = compare(materials.model, materials.comparison, outputs, answers)
        order = output_names(keras_on_jax(), materials.model, outputs)  # a SavedModel sorts its outputs by name
        about["outputs"].sort(key=lambda port: order.index(port["name"]) if port["name"] in order else 0)
        notes = [*materials.notes]
        notes += [serving] if isinstance(serving, str) and not front.texts else []
        notes += front.notes
        notes += _fixed_sizes(materials.model, front.given)
        if front.texts and form.converter.startswith("litert"):
            notes.append(
                "It takes categories by number: the place among those of their column in "
                '`rudel.load(RUN).get_layer("columns").columns`, from 1; 0 is an unknown one.'
            )
        if front.renamed:
            about["inputs"] = [
                port | ({"key": front.renamed[port["name"]]} if port["name"] in front.renamed else {})
                for port in about["inputs"]
            ]
            which = ", ".join(f"`{name}` is `{key}`" for name, key in front.renamed.items())
            notes.append(f"Names of its inputs are identifiers: {which}.")
        if form.integers:
            notes += notes_on_quantisation(comparison, about["inputs"])
        if calibrated is not None:
            notes += notes_on_calibration([leaf.name for leaf in front.inputs.leaves], calibrated)
        if form.converter == "litert-dynamic" and not about["has_int8"]:
            notes.append(
                "No weights are in int8, and the file is that of litert: LiteRT leaves weights of up to about 1,000 "
                "numbers in float32."
            )
        if materials.half:
            notes.append(f"It computes in float32, and the model of the run in {materials.half}.")
        from_files = None
        if isinstance(serving, Serving) and decoded is not None:
            from_files = compare_answers(materials, serving, decoded, folder / "answers.npz")
        if form.maker:
            tell(f"making {form.name}")
            made.mkdir()
            raw, recipe, class_names = folder / "raw.npz", materials.recipe, materials.class_names
            model = Int8Model(name, converted, recipe, raw, front, about, class_names, materials, out)
            make: Maker = pkgutil.resolve_name(form.maker)
            size, more = make(model, made, folder)
            notes += more
        else:
            size = size_of(made)
        put(made, out)
    return _exported(form, out, size, materials, comparison, about, versions, notes, from_files)


def _convert(
    form: Form,
    materials: Materials,
    front: Front,
    serving: Serving | str | None,
    folder: Path,
    made: Path,
    calibrated: list[np.ndarray] | None,
) -> dict[str, str]:
    calibration = None
    if calibrated is not None:
        calibration = folder / "calibration.npz"
        _save(calibration, calibrated)
    config = materials.run.read_config()
    job = {
        "form": form.converter,
        "model": str(front.model),
        "own_classes": config.get("own_classes", {}),
        "unsafe": config.get("unsafe", False),
        "recipe": materials.recipe,
        "modules": materials.modules,
        "search": materials.search,
        "inputs": [{"name": leaf.name, "shape": leaf.shape, "dtype": leaf.dtype} for leaf in front.inputs.leaves],
        "structure": front.inputs.structure,
        "calibration": calibration and str(calibration),
        "texts": {} if form.converter.startswith("litert") else front.texts,
        "photographs": asdict(serving) if isinstance(serving, Serving) else None,
        "made": str(made),
    }
    return process.run("rudel.export.converter", job, folder, f"the conversion to {form.converter}")


def _run(
    form: Form, materials: Materials, front: Front, files: int, folder: Path, made: Path
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Runs an exported model; returns its outputs by name, and what it says of itself."""
    examples, outputs = folder / "examples.npz", folder / "outputs.npz"
    _save(
        examples,
        front.with_texts(materials.comparison.x) if form.converter == "onnx" else front.columns(materials.comparison.x),
    )
    job = {
        "kind": form.converter.partition("-")[0],
        "path": str(made),
        "inputs": [leaf.name for leaf in front.inputs.leaves],
        "examples": str(examples),
        "outputs": str(outputs),
        "files": files,
        "raw": str(folder / "raw.npz") if form.maker else None,
    }
    try:
        about = process.run("rudel.export.runner", job, folder, "running the exported model")
    except ExportError as error:
        if form.maker and isinstance(error.__cause__, process.ToolFailedError) and error.__cause__.crashed:
            Int8Model("model", made, materials.recipe, made, materials=materials).compile()  # names the operator
        raise
    with np.load(outputs) as stored:
        return {name: stored[name] for name in stored.files}, about


def _fixed_sizes(model: "keras.Model", inputs: Inputs) -> list[str]:
    """Notes on inputs of which the model takes any size, and the exported model one."""
    sizes = [tuple(tensor.shape[1:]) for tensor in getattr(model, "inputs", None) or ()]
    return [
        f"The model takes `{leaf.name}` in any size, {size}, and the export in that of the examples alone, "
        f"{leaf.shape}."
        for leaf, size in zip(inputs.leaves, sizes, strict=False)  # a model may not say what it takes
        if None in size
    ]


def _with_classes(outputs: list[dict[str, Any]], class_names: list[str]) -> list[dict[str, Any]]:
    """What is known of outputs, and the names of the classes, if they are those of the numbers of the one output."""
    if class_names and [port["shape"][1:] for port in outputs] == [[len(class_names)]]:
        return [outputs[0] | {"classes": class_names}]
    return outputs


def _save(path: Path, columns: list[np.ndarray]) -> None:
    arrays: dict[str, Any] = {str(i): column for i, column in enumerate(columns)}
    np.savez(path, **arrays)


def _exported(
    form: Form,
    out: Path,
    size: int,
    materials: Materials,
    comparison: Comparison,
    about: dict[str, Any],
    versions: dict[str, str],
    notes: list[str],
    from_files: FromFiles | None,
) -> Exported:
    return Exported(
        path=out,
        form=form.name,
        bytes=size,
        model_bytes=materials.run.model.stat().st_size,
        metrics=comparison.metrics,
        model_metrics=comparison.model_metrics,
        largest_difference=comparison.largest_difference,
        agreement=comparison.agreement,
        examples=len(materials.comparison),
        compared_on=materials.compared_on,
        calibrated_on=0 if materials.calibration is None else len(materials.calibration),
        inputs=about["inputs"],
        outputs=_with_classes(about["outputs"], materials.class_names),
        versions=versions,
        notes=notes,
        from_files=from_files,
    )
