"""The forms that a run can be exported to."""

import difflib
import importlib.util
from dataclasses import dataclass
from typing import Literal

from rudel.errors import ExportError


@dataclass(frozen=True)
class Form:
    """One of the values of `--to`.

    Attributes:
        name: as the user writes it.
        ending: of the default name of what is made.
        converter: the form that the converter makes; others are made from its result.
        needs: packages, by the names under which they are imported.
        summary: what it is, for the help.
        maker: the function that makes it of the int8 model, a `Maker`; empty where it is what the converter made.
        check: a function of the export's `Materials` that refuses a run before anything is converted.
        takes_files: whether it has a signature for image files.
    """

    name: str
    ending: str
    converter: Literal["litert", "litert-f16", "litert-dynamic", "litert-int8", "litert-int16", "savedmodel", "onnx"]
    needs: tuple[str, ...]
    summary: str
    maker: str = ""
    check: str = ""
    takes_files: bool = False

    @property
    def integers(self) -> bool:
        """Whether the numbers are integers, whose ranges have to be found on examples."""
        return self.converter in ("litert-int8", "litert-int16")


_LITERT = ("tensorflow",)


def _made_of_int8(name: str, summary: str, maker: str, needs: tuple[str, ...] = (), check: str = "") -> Form:
    return Form(name, f"-{name}", "litert-int8", (*_LITERT, *needs), summary, maker, check)


FORMS = {
    form.name: form
    for form in (
        Form("litert", ".tflite", "litert", _LITERT, "LiteRT (TensorFlow Lite) in float32"),
        Form("litert-f16", "-f16.tflite", "litert-f16", _LITERT, "LiteRT with weights in float16"),
        Form("litert-dynamic", "-dynamic.tflite", "litert-dynamic", _LITERT, "LiteRT with weights in int8"),
        Form("litert-int8", "-int8.tflite", "litert-int8", _LITERT, "LiteRT with everything in int8"),
        Form("litert-int16", "-int16.tflite", "litert-int16", _LITERT, "LiteRT with int16 activations, int8 weights"),
        Form("savedmodel", "-savedmodel", "savedmodel", _LITERT, "TensorFlow's SavedModel", takes_files=True),
        Form("onnx", ".onnx", "onnx", ("tensorflow", "tf2onnx", "onnx", "onnxruntime"), "ONNX"),
        _made_of_int8("c-array", "the int8 model as an array, for TFLM", "rudel.export.c_array.c_array"),
        _made_of_int8("c", "the int8 model compiled to C", "rudel.export.compiled.c"),
        _made_of_int8("arduino", "that as an Arduino library", "rudel.export.compiled.arduino"),
        _made_of_int8("cmake", "that as a CMake project", "rudel.export.compiled.cmake"),
        _made_of_int8("zephyr", "that as a Zephyr module", "rudel.export.compiled.zephyr"),
        _made_of_int8("wasm", "that as a WebAssembly module", "rudel.export.compiled.wasm", ("ziglang",)),
        _made_of_int8(
            "page",
            "a page to draw on, or for a sensor, with that in it",
            "rudel.export.page.page",
            ("ziglang",),
            check="rudel.export.page.check",
        ),
    )
}

_PACKAGES = {"ziglang": "micro"}


def find_form(name: str) -> Form:
    """The form of a name.

    Raises:
        ExportError: there is none.

    >>> find_form("litert-int8").ending
    '-int8.tflite'
    """
    if name in FORMS:
        return FORMS[name]
    near = difflib.get_close_matches(name, FORMS, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`? There are" if near else "there are"
    raise ExportError(f"A run cannot be exported to `{name}`: {hint} {', '.join(FORMS)}.")


def check_needs(form: Form) -> None:
    """Refuses a form for which a package is missing; looks for packages without importing them.

    Raises:
        ExportError: says how to install it.
    """
    missing = [name for name in form.needs if importlib.util.find_spec(name) is None]
    if missing:
        extras = sorted({_PACKAGES.get(name, "export") for name in missing})
        raise ExportError(
            f"Exporting to {form.name} needs {' and '.join(missing)}: "
            f"install {'it' if len(missing) == 1 else 'them'} by `pip install 'rudel[{','.join(extras)}]'`."
        )
