"""`python -m rudel.export.converter`: reads a job, writes the model in the form that it asks for.

A job has:

    form         litert, litert-f16, litert-dynamic, litert-int8, litert-int16, savedmodel or onnx
    model        path of the .keras file
    recipe       the recipe that it was made of, or ""
    modules      names of modules that define its layers
    search       folders in which they are found
    inputs       for each input: name, shape (of one example), dtype
    structure    how the model takes them: the number of one, or a list or dict of numbers
    calibration  path of an .npz file with arrays "0", "1", ... of examples for each input; for integers
    texts        for onnx and savedmodel: by name of an input that takes a number for a text, the texts numbered from 1
    photographs  for savedmodel: what `rudel.export.photographs.Serving` says, or null
    made         where to write the result
"""

import contextlib
from pathlib import Path
from typing import Any

from rudel.export.process import import_tensorflow, serve


def convert(job: dict[str, Any]) -> dict[str, Any]:
    """Does a job; returns the versions of the tools that did it."""
    tf = import_tensorflow()

    import keras

    from rudel.export.converter import litert, savedmodel
    from rudel.export.converter.forward import Forward
    from rudel.export.converter.model import load
    from rudel.export.converter.recurrent import fuse_lstms, refuse_memory, unroll

    model = load(job)
    refuse_memory(model)
    made, form = Path(job["made"]), job["form"]
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    if form == "savedmodel":
        forward = Forward(model, job["inputs"], job["structure"], batch=None, constants=False)
        savedmodel.write(forward, job["photographs"], job["texts"], made)
        return versions
    if form == "onnx":
        from rudel.export.converter import onnx

        forward = Forward(model, job["inputs"], job["structure"], batch=None)
        return versions | onnx.write(forward, job["texts"], made)
    if form in ("litert-int8", "litert-int16"):
        unroll(model)
    forward = Forward(model, job["inputs"], job["structure"], batch=1)
    # The converter cannot quantise the operator of an LSTM to int16.
    with contextlib.nullcontext() if form == "litert-int16" else fuse_lstms():
        litert.write(forward, form, job.get("calibration"), Path(job["folder"]), made)
    return versions


if __name__ == "__main__":
    serve(convert)
