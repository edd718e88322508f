"""What is asked of a process of its own, where JAX, Keras or Dask are missing, broken, slow or told to do otherwise.

Broken packages are files of their name in a folder that Python looks into first.
"""

import os
from pathlib import Path

import pytest

from rudel.doctor.asking import Answers, ask
from rudel.errors import DoctorError

DEVICES = """
class D: platform = device_kind = 'cpu'; memory_stats = lambda s: None
def local_devices(): return [D()]
"""


def asked_with(folder: Path, seconds: float = 60.0, platform: str = "", **files: str) -> Answers:
    """What is answered where packages are these files. With a JAX of this kind, Keras and Dask fail at once."""
    aside = dict.fromkeys(("keras", "distributed"), "raise ImportError") if "jax" in files else {}
    for name, text in (aside | files).items():
        (folder / f"{name}.py").write_text(text)
    return ask({**os.environ, "PYTHONPATH": str(folder), "JAX_PLATFORMS": platform}, seconds)


def lack(answers: Answers, name: str) -> str:
    with pytest.raises(DoctorError) as caught:
        answers.check(name)
    return str(caught.value)


def test_here_nothing_is_missing(answers: Answers) -> None:
    assert answers.devices[0][0] == "cpu"
    assert answers.failure is None
    for name in ("keras", "single", "jax", "cluster"):
        answers.check(name)


def test_files_of_the_folder_that_one_is_in_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jax", "random", "json"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    answers = ask()
    assert answers.devices
    assert answers.failure is None


def test_a_driver_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    slow = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)"
    answers = asked_with(tmp_path, seconds=3, jax=slow)
    assert answers.failure == (
        "JAX did not list its devices within 3 s: a driver hangs, or another process holds the device."
    )
    assert lack(answers, "single") == answers.failure


def test_a_driver_that_crashes_leaves_its_last_words(tmp_path: Path) -> None:
    answers = asked_with(
        tmp_path, jax="import os, sys\nsys.stderr.write('out of order\\n')\nsys.stderr.flush()\nos.abort()"
    )
    assert answers.failure == "JAX finds no device; its last message: out of order"


def test_a_jax_that_is_broken_and_one_that_does_not_begin(tmp_path: Path) -> None:
    answers = asked_with(tmp_path, jax="raise RuntimeError('the driver is too old\\nand so on')")
    assert answers.failure == (
        "jax cannot be imported (the driver is too old): install it again by `pip install --force-reinstall jax`."
    )
    answers = asked_with(tmp_path, jax="def local_devices(): raise RuntimeError('Unable to initialize backend')")
    assert answers.failure == "JAX finds no device: Unable to initialize backend"
    assert lack(answers, "keras") == answers.failure
    answers = asked_with(tmp_path, platform="cuda", jax="def local_devices(): assert False")
    assert answers.failure == "JAX finds no device for JAX_PLATFORMS=cuda: AssertionError"


def test_a_plugin_that_stops_jax_is_named(tmp_path: Path) -> None:
    metadata = tmp_path / "jax_cuda13_plugin-0.10.2.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: jax-cuda13-plugin\nVersion: 0.10.2\n")
    error = "Unable to initialize backend 'cuda': the driver is too old"
    answers = asked_with(tmp_path, jax=f'def local_devices(): raise RuntimeError("{error}")')
    assert answers.plugins == ("jax-cuda13-plugin",)
    assert answers.failure == f"JAX has jax-cuda13-plugin, and cannot use it: {error}"
    jax = "import sys\ndef local_devices():\n    print('cuDNN not found', file=sys.stderr)\n"
    answers = asked_with(tmp_path, jax=f"{jax}    raise RuntimeError('cuda is not in the list of known backends')")
    assert answers.failure == "JAX has jax-cuda13-plugin, and cannot use it: cuDNN not found"


@pytest.mark.parametrize(
    "printed",
    [
        "WARNING:2026-11-22 14:00:00,123:jax._src.xla_bridge:889: no kernel image",
        "E1122 14:00:00.123456   12345 cuda_executor.cc:1228] no kernel image",
        "Traceback (most recent call last):\n  File '/x/__init__.py', line 1\nno kernel image",
        "no kernel image\nI1122 14:00:00.123456   12345 service.cc:152] XLA service 0x1",
    ],
    ids=["Python", "C++", "a traceback", "plain"],
)
def test_the_last_complaint_of_jax_is_kept(tmp_path: Path, printed: str) -> None:
    guess = "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed."
    jax = f"import sys\nprint({printed!r}, {guess!r}, '', sep='\\n', file=sys.stderr)\n{DEVICES}"
    assert asked_with(tmp_path, jax=jax).complaint == "no kernel image"


def test_what_is_broken_of_keras_and_dask_is_told_of_those_who_need_it(tmp_path: Path) -> None:
    answers = asked_with(tmp_path, distributed="raise OSError('libz.so.1: no such file')")
    answers.check("single")
    assert lack(answers, "cluster") == (
        "distributed cannot be imported (libz.so.1: no such file): install it again by "
        "`pip install --force-reinstall distributed`."
    )
    (tmp_path / "distributed.py").unlink()
    answers = asked_with(tmp_path, keras="import a_module_that_is_not_there")
    answers.check("cluster")
    assert "No module named 'a_module_that_is_not_there'" in lack(answers, "keras")


def test_a_backend_on_which_nothing_can_be_trained_is_refused() -> None:
    answers = ask({**os.environ, "KERAS_BACKEND": "nonsense"})
    assert answers.devices
    assert lack(answers, "keras").startswith("KERAS_BACKEND is nonsense, on which Rudel cannot train")
    assert lack(answers, "jax").startswith("KERAS_BACKEND is nonsense, and this needs JAX")
