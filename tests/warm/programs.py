"""`rudel` and `python` as programs that begin with everything imported."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from warm.client import counted

HERE = Path(__file__).parent

JAX = (
    "rudel.backend:keras_on_jax", "rudel.cli.main", "rudel.export", "rudel.report", "rudel.train.fit",
    "rudel.train.from_recipe", "rudel.train.load", "rudel.train.diloco.coordinator", "multiprocessing.spawn",
)  # fmt: skip
TENSORFLOW = ("rudel.export.process:import_tensorflow", "rudel.backend:keras_here")


@contextlib.contextmanager
def warm_programs(folder: Path, zygotes: Mapping[tuple[str, ...], Mapping[str, str]]) -> Iterator[None]:
    """Makes `rudel` and `python` in a folder that begin with modules imported.

    Args:
        folder: where to.
        zygotes: by what they import, at the first command that is theirs: the environment of their commands. A command
            with any other environment starts as always.
    """
    places = []
    with contextlib.ExitStack() as stack:
        sockets = stack.enter_context(tempfile.TemporaryDirectory())  # their paths must be short
        for number, (modules, environment) in enumerate(zygotes.items()):
            path = f"{sockets}/{number}"
            places.append({"socket": path, "environment": counted(dict(environment))})
            zygote = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, HERE / "zygote.py", path, *modules],
                    env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )  # fmt: skip
            assert zygote.stdout is not None
            zygote.stdout.readline()
        programs = {"python": sys.executable, "rudel": str(Path(sys.executable).with_name("rudel"))}
        (folder / "places.json").write_text(json.dumps({"programs": programs, "zygotes": places}))
        shutil.copy(HERE / "client.py", folder)
        for name in programs:
            (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {folder}/client.py {name} "$@"\n')
            (folder / name).chmod(0o755)
        yield
