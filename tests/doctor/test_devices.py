"""Why JAX computes on the processor alone: what the system shows beside what JAX says."""

from pathlib import Path

import pytest

from rudel.doctor import devices, variables
from rudel.doctor.asking import Answers

CPU = (("cpu", "cpu", None),)


def judged(
    root: Path, shown: tuple[str, ...] = (), environment: dict[str, str] | None = None, **answers: object
) -> devices.Devices:
    for name in shown:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("0x1ae0\n")
    return devices.describe(Answers(**{"devices": CPU, **answers}), environment or {}, root)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "name", "extra"),
    [
        (("dev/nvidia0",), "GPU", "cuda13"),
        (("dev/nvidiactl",), "GPU", "cuda13"),
        (("dev/dxg",), "GPU", "cuda13"),
        (("dev/accel0",), "TPU", "tpu"),
        (("dev/vfio/0", "sys/bus/pci/devices/0000:00:05.0/vendor"), "TPU", "tpu"),
    ],
    ids=["NVIDIA", "NVIDIA in a container", "Windows", "TPU v4", "TPU v5e"],
)
def test_a_device_without_a_plugin_is_output_with_the_command(
    tmp_path: Path, shown: tuple[str, ...], name: str, extra: str
) -> None:
    seen = judged(tmp_path, shown)
    assert seen.problem == f"There is a {name} in this computer that JAX has no plugin for."
    assert seen.mend == f"pip install -U 'jax[{extra}]'"


@pytest.mark.parametrize("shown", [(), ("dev/vfio/0",), ("dev/kfd",), ("dev/nvidia-modeset",)])
def test_other_devices_are_no_accelerators(tmp_path: Path, shown: tuple[str, ...]) -> None:
    assert judged(tmp_path, shown).problem is None


@pytest.mark.parametrize(
    ("shown", "plugins", "named"),
    [
        ("dev/nvidia0", ("jax-cuda13-plugin",), "jax-cuda13-plugin, and cannot use it"),
        (
            "dev/dxg",
            ("jax-cuda12-pjrt", "jax_cuda12_plugin"),
            "jax-cuda12-pjrt and jax_cuda12_plugin, and cannot use them",
        ),
        ("dev/kfd", ("jax-rocm7-plugin",), "jax-rocm7-plugin, and cannot use it"),
        ("dev/accel0", ("libtpu",), "libtpu, and cannot use it"),
    ],
)
def test_a_plugin_that_fails_is_output_with_what_jax_said(
    tmp_path: Path, shown: str, plugins: tuple[str, ...], named: str
) -> None:
    seen = judged(tmp_path, (shown,), plugins=plugins, complaint="CUDA driver version is insufficient")
    assert seen.problem == f"JAX has {named}: CUDA driver version is insufficient"
    assert seen.mend is None
    assert (judged(tmp_path, (shown,), plugins=plugins).problem or "").endswith("it does not say why.")


def test_a_plugin_without_a_driver_is_told(tmp_path: Path) -> None:
    seen = judged(tmp_path, plugins=("jax-cuda13-plugin",))
    assert seen.problem == (
        "JAX has jax-cuda13-plugin, and there is no GPU to be seen (no /dev/nvidia*): install its driver, or let the "
        "container have the device."
    )
    assert "no TPU to be seen" in (judged(tmp_path, plugins=("libtpu",)).problem or "")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("JAX_PLATFORMS", "cpu", "JAX_PLATFORMS is cpu"),
        ("CUDA_VISIBLE_DEVICES", "", "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"),
        ("CUDA_VISIBLE_DEVICES", "-1", "CUDA_VISIBLE_DEVICES is -1, which hides every GPU"),
    ],
)
def test_a_processor_that_was_asked_for_is_no_problem(tmp_path: Path, name: str, value: str, why: str) -> None:
    seen = judged(tmp_path, ("dev/nvidia0",), {name: value})
    assert (seen.why, seen.problem) == (why, None)
    assert [variable.name for variable in variables.describe({name: value})] == [name]


def test_a_variable_that_hides_nothing_is_no_reason(tmp_path: Path) -> None:
    assert judged(tmp_path, ("dev/nvidia0",), {"CUDA_VISIBLE_DEVICES": "0", "JAX_PLATFORMS": ""}).problem
    assert variables.describe({"JAX_PLATFORMS": ""}) == ()


def test_a_gpu_that_is_used_and_jax_without_a_device(tmp_path: Path) -> None:
    gpu = (("gpu", "NVIDIA H100", 80_000_000_000),)
    assert judged(tmp_path, ("dev/nvidia0",), devices=gpu, complaint="something small").problem is None
    seen = judged(tmp_path, ("dev/nvidia0",), devices=(), failure="JAX finds no device: none")
    assert (seen.devices, seen.problem) == ((), "JAX finds no device: none")
