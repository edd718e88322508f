"""Mistakes of those who train on a mesh are one sentence, and exit code 2."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

TRAIN = ("train", "digits", "--steps", "1", "--run", "r")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--mesh", "data"), "A mesh is axes with sizes, as in `data=4,model=2`"),
        (("--mesh", "data=1,data=1"), "The mesh data=1,data=1 has the axis `data` twice"),
        (("--mesh", "data=1,expert=1"), "Nothing is sharded along the axis `expert` of the mesh data=1,expert=1"),
        (("--mesh", "data=999", "--devices", "1"), "which does not fit the 1 asked for"),
        (("--mesh", "data=1", "--layout", "dense"), "A layout is an axis or none for each dimension"),
        (("--mesh", "data=1", "--layout", "kernel=-,model"), "names the axis `model`, which the mesh data=1 does not"),
    ],
)
def test_options_that_make_no_sense(rudel: Callable[..., Any], options: tuple[str, ...], words: str) -> None:
    jax.devices()  # or else options would make devices of this process
    assert words in rudel(*TRAIN, *options).error
    assert not Path("r/summary.json").exists()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG is malformed: it is not JSON"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:2"]}}'}, "TF_CONFIG is malformed: `task` is missing"),
        (
            {
                "SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "node[1-2]",
                "JAX_COORDINATOR_ADDRESS": "",
            },
            "JAX_COORDINATOR_ADDRESS is '', and must be HOST:PORT, or unset",
        ),
    ],
)  # fmt: skip
def test_variables_that_are_malformed(
    rudel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert words in rudel(*TRAIN, "--strategy", "mesh").error


def test_a_batch_that_cannot_be_cut(tmp_path: Path, warm_python: str) -> None:
    code = "import jax; jax.config.update('jax_platforms', 'cpu'); from rudel.cli.main import run; run()"
    words = [warm_python, "-c", code, *TRAIN, "--devices", "3", "--batch-size", "32"]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("Error: A batch of 32 cannot be divided into 3 equal shards")
    assert "Traceback" not in done.stderr
