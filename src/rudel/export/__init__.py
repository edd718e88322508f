"""Runs in other forms: LiteRT, SavedModel, ONNX, and C for microcontrollers.

What converts and what runs a converted model lives in processes of its own (`converter`, `runner`): TensorFlow is never
imported into the user's. This package is also the function `rudel.export`, whichever of the two is imported first.
"""

import inspect
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rudel.export.exporting import Exported


def export(
    run: str | Path,
    to: str,
    out: str | Path | None = None,
    *,
    data: Any = None,
    calibration: int | None = None,
    seed: int = 0,
) -> "Exported":
    """Brings the trained model of a run into another form, runs the result, and compares it with the model.

    Models are converted for one example at a time, except for `savedmodel` and `onnx`, which take any number. Sizes
    that a model leaves open become those of the examples. Nothing is written to `out` unless all went well, and what is
    written depends on the run, the arguments and the versions of the tools alone.

    Args:
        run: the directory of a finished run.
        to: "litert" (float32), "litert-f16" (weights in half precision), "litert-dynamic" (weights in int8),
            "litert-int8" (all in int8), "litert-int16" (the same with activations in int16), "savedmodel", "onnx",
            "c-array" (the int8 model as an array in C++, for TensorFlow Lite Micro), "c" (the int8 model compiled to
            C), or that as an "arduino" library, a "cmake" project, a "zephyr" module or a "wasm" (WebAssembly) module,
            or a web "page" to draw on.
        out: the file or folder to make, which must not be there yet; by default one in the current folder, named after
            the run. The names in C come from it.
        data: where the run's recipe cannot give data, or other data is meant: a `rudel.Dataset`, a `rudel.Examples`, a
            tuple `(x, y)`, or the path of an `.npz` file with `x` and `y` (or an array for each input by its name), or
            where the recipe shall take its data from; without a recipe, a folder of files as `rudel predict` takes
            them. Of data in one part, a share is kept for calibration, and the rest is compared on. Without recipe and
            data, forms that need no calibration are compared on made-up inputs.
        calibration: how many training examples the ranges of integers are found on, 500 if None; only for forms that
            have such ranges.
        seed: of the choice of examples.

    Returns:
        What was written and what it costs: size, metrics, the largest difference from the model's own outputs.

    Raises:
        OptionError: `calibration` is given for a form without ranges of integers.
        ExportError: the form is unknown, a tool is missing, `out` is there already, or the model cannot be converted.
        RunError: there is no such run, it is unfinished, or it has no data.
        DataError: the data does not fit the model.
        CompileError: the model converted to int8 cannot be compiled to C.

    Examples:
        >>> import rudel
        >>> rudel.export("nowhere", "litert")
        Traceback (most recent call last):
        ...
        rudel.errors.RunError: There is no run at nowhere: give a directory that `rudel train` has made.
    """
    from rudel.export.exporting import export_run
    from rudel.files import expanded

    return export_run(expanded(run), to, None if out is None else Path(out), data, calibration, seed)


class _Room(types.ModuleType):
    __call__ = staticmethod(export)


sys.modules[__name__].__class__ = _Room
__signature__ = inspect.signature(export)
__doc__ = f"{__doc__}\n{inspect.getdoc(export)}"
