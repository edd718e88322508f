"""A Keras model file from elsewhere, as a finished run: what is done with runs can be done with it.

Files may come from strangers. Nothing in them is executed: Keras' safe mode stays on unless the caller switches it off,
and an archive with other members than Keras writes, or that unpacks to much more than it is, is refused before it is
opened.
"""

import contextlib
import importlib.util
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rudel.backend import keras_here
from rudel.errors import OptionError, RunError
from rudel.report.formatting import plural
from rudel.runs.own_classes import check_can_be_loaded, lambdas_in
from rudel.runs.run_directory import RunDirectory

SUFFIXES = (".keras", ".h5")
_MEMBERS = ("config.json", "metadata.json", "model.weights.h5", "model.weights.json")
_FOLDERS = ("assets/", "model.weights/")
_MOST_UNPACKED, _ALWAYS_ALLOWED = 20, 1 << 24
"""How many times its size an archive may unpack to, and bytes that any may: Keras compresses nothing."""


def is_model_file(path: Path) -> bool:
    """Whether a path names a Keras model file, there or not."""
    return path.suffix in SUFFIXES and not path.is_dir()


@contextlib.contextmanager
def as_run(
    path: Path,
    classes: str | None = None,
    code: Path | None = None,
    unsafe: bool = False,
    within: Path | None = None,
) -> Iterator[Path]:
    """Yields a run directory: that at a path, or one made of a model file for as long as the block lasts.

    Args:
        path: of a run, or of a `.keras` or `.h5` file.
        classes: names of the classes with commas between them, or the path of a JSON file with a list; None for none.
        code: a Python file with the model's own layers and functions.
        unsafe: whether code in the file, such as a lambda, may be executed, as long as the block lasts.
        within: the folder in which the run is made; None for the system's folder of temporary files.

    Raises:
        OptionError: an option for model files beside a run, or one that makes no sense.
        RunError: the file is not a model, is damaged, or needs what it may not have.
    """
    from rudel.runs.model_file import load_model, save_model  # with JAX, which servers of other models need not have

    if not is_model_file(path):
        refuse_options(path, classes=classes, code=code, unsafe=unsafe)
        yield path
        return
    if not path.is_file():
        raise RunError(f"There is no model file at {path}.")
    if path.suffix == ".keras":
        check_archive(path)
    names = class_names(classes)
    if not unsafe and (place := next(lambdas_in(_config(path)), None)) is not None:
        raise RunError(
            f"The model {path} has a lambda in its {place}, which can do anything when it is executed: add "
            "--unsafe if you trust where the file comes from."
        )
    with _imported(code) as own_code, _lambdas_loaded() if unsafe else contextlib.nullcontext():
        model = load_model(path, own_code, "give it by --code FILE.py")
        outputs = getattr(model, "output_shape", None)
        if isinstance(outputs, tuple):
            _check_count(names, outputs[-1], path)
        own = check_can_be_loaded(model, lambdas=unsafe)
        about = {"recipe": "", "file": str(path), "class_names": names, "unsafe": unsafe, **_of_its_run(path)}
        with tempfile.TemporaryDirectory(prefix="rudel-model-", dir=within) as folder:
            run = RunDirectory(Path(folder) / path.stem)
            run.path.mkdir()
            save_model(model, run.model)
            run.write_config(about | ({"own_classes": own} if own else {}))
            run.write_summary({"metrics": {}})
            yield run.path


def check_archive(path: Path) -> None:
    """Refuses an archive that Keras has not written.

    Raises:
        RunError: it is not an archive, has members that do not belong there, or unpacks to much more than it is.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise RunError(f"{path} is not a Keras model file: {error}.") from error
    for member in members:
        name = member.filename
        within = name in _MEMBERS or (name.startswith(_FOLDERS) and ".." not in name.split("/"))
        if not within or "\\" in name:
            raise RunError(f"{path} is not a Keras model file: Keras writes no member `{name[:100]}`.")
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(_ALWAYS_ALLOWED, _MOST_UNPACKED * path.stat().st_size):
        size = path.stat().st_size
        raise RunError(f"{path} unpacks from {size:,} to {unpacked:,} bytes: Keras writes no such file.")


def _config(path: Path) -> object:
    """The configuration of the layers in a model file; None where it cannot be read."""
    try:
        if path.suffix == ".keras":
            with zipfile.ZipFile(path) as archive:
                return json.loads(archive.read("config.json"))
        import h5py

        with h5py.File(path) as file:
            return json.loads(str(file.attrs["model_config"]))
    except Exception:  # of zipfile, zlib or h5py, by where the damage is
        return None


def _of_its_run(path: Path) -> dict[str, Any]:
    """What the run that a model file lies in, if there is one, says of its inputs."""
    run, config = RunDirectory(path.parent), {}
    if path in (run.model, run.best):
        with contextlib.suppress(RunError):  # another program's
            config = run.read_config()
    return {key: config[key] for key in ("input_range", "reads_images") if key in config}


def refuse_options(path: Path, **options: object) -> None:
    """Refuses options for model files, of those that are given, beside what is none.

    Raises:
        OptionError: names the first.
    """
    for name, value in options.items():
        if value:
            raise OptionError(f"`--{name}` is for model files (.keras, .h5), and {path} is not one: leave it out.")


def class_names(classes: str | None) -> list[str]:
    """Names from a text with commas, or from a JSON file; none of None.

    Raises:
        OptionError: the file is not a list of names, or two names are equal.
    """
    if classes is None:
        return []
    names: Sequence[object] = classes.split(",")
    if classes.endswith(".json"):
        try:
            names = json.loads(Path(classes).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise OptionError(f"--classes {classes} cannot be read ({error}): give a JSON file with a list.") from error
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise OptionError(f"--classes {classes} is not a list of names: give a,b,c or a JSON file with a list.")
    found = [str(name).strip() for name in names]
    if len(set(found)) < len(found):
        raise OptionError(f"--classes {classes} has a name twice.")
    return found


def _check_count(names: Sequence[str], outputs: int, path: Path) -> None:
    """Refuses names of classes for a model that gives another number of outputs; one output stands for two classes.

    Raises:
        OptionError: says both numbers.
    """
    if names and not fits(names, outputs):
        found = "1 output, which stands for 2 classes" if outputs == 1 else f"{outputs} outputs"
        raise OptionError(f"--classes has {plural(len(names), 'name')}, and the model in {path} has {found}.")


def fits(names: Sequence[str], outputs: int) -> bool:
    """Whether there is a name for each class of a model.

    >>> fits(["a", "b", "c"], 3), fits(["a", "b"], 1), fits(["a", "b", "c"], 1)
    (True, True, False)
    """
    return len(names) == (2 if outputs == 1 else outputs)


@contextlib.contextmanager
def _lambdas_loaded() -> Iterator[None]:
    keras_here()
    from rudel.internals.keras import lambdas_loaded

    with lambdas_loaded():
        yield


@contextlib.contextmanager
def _imported(code: Path | None) -> Iterator[dict[str, Any]]:
    """The classes and functions of a file of the user's, which is an imported module for as long as the block lasts.

    Raises:
        OptionError: there is no such file, or it cannot be imported.
    """
    if code is None:
        yield {}
        return
    name = code.stem
    spec = importlib.util.spec_from_file_location(name, code)
    if spec is None or spec.loader is None or not code.is_file():
        raise OptionError(f"--code {code} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    hidden = sys.modules.get(name)
    sys.modules[name] = module
    try:
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise OptionError(f"--code {code} cannot be imported: {type(error).__name__}: {error}.") from error
        yield {key: value for key, value in vars(module).items() if getattr(value, "__module__", None) == name}
    finally:
        del sys.modules[name]
        if hidden is not None:
            sys.modules[name] = hidden
