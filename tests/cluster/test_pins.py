from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from rudel.cluster.pins import WORKER_PACKAGES, Target, find_pins

RASPBERRY_PI = Target("aarch64", "3.11", (2, 36))


def unknown(requirement: Requirement) -> tuple[str, list[str]]:
    return "1.2.3", ["click; python_version < '3.12'", "nothing-more; python_version >= '3.12'"]


def test_all_versions_are_those_of_this_computer() -> None:
    pins = find_pins(RASPBERRY_PI, minimal=False, look_up=unknown)
    assert set(WORKER_PACKAGES) < set(pins)
    assert {"keras", "matplotlib", "scikit-learn", "tornado", "ml-dtypes"} < set(pins)
    assert "rudel" not in pins
    assert "pytest" not in pins
    installed = {name: version for name, version in pins.items() if version != "1.2.3"}
    assert all(metadata.version(name) == version for name, version in installed.items())


def test_a_worker_needs_less() -> None:
    minimal = find_pins(RASPBERRY_PI, minimal=True, look_up=unknown)
    assert set(WORKER_PACKAGES) < set(minimal)
    assert not {"keras", "matplotlib", "scikit-learn", "h5py"} & set(minimal)


def test_what_is_only_needed_there_is_looked_up_with_what_it_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def look_up(requirement: Requirement) -> tuple[str, list[str]]:
        asked.append(str(requirement))
        return unknown(requirement)

    packages = ("not-here>=1; platform_machine == 'aarch64'", "nor-this; platform_machine == 'x86_64'")
    monkeypatch.setattr("rudel.cluster.pins.metadata.requires", lambda name: packages)
    assert find_pins(RASPBERRY_PI, minimal=False, look_up=look_up)["not-here"] == "1.2.3"
    asked = [each for each in asked if "python_version" not in each]  # what Python 3.12 brings, and 3.11 needs
    assert asked == ['not-here>=1; platform_machine == "aarch64"']


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        ("jaxlib-0.10.2-cp311-cp311-manylinux_2_27_aarch64.whl", True),
        ("numpy-2.4.6-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl", True),
        ("cryptography-50.0.2-cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.whl", True),
        ("cryptography-50.0.2-cp39-abi3-manylinux_2_34_aarch64.whl", True),
        ("dask-2026.8.0-py3-none-any.whl", True),
        ("jaxlib-0.10.2-cp311-cp311-manylinux_2_39_aarch64.whl", False),
        ("jaxlib-0.10.2-cp312-cp312-manylinux_2_27_aarch64.whl", False),
        ("jaxlib-0.10.2-cp311-cp311-manylinux_2_27_x86_64.whl", False),
        ("cryptography-50.0.2-cp312-abi3-manylinux_2_34_aarch64.whl", False),
        ("cryptography-50.0.2-cp311-abi3-musllinux_1_2_aarch64.whl", False),
        ("jaxlib-0.10.2-cp313-cp313t-manylinux_2_27_aarch64.whl", False),
    ],
)
def test_wheels_are_told_from_those_that_cannot_be_installed(file: str, fits: bool) -> None:
    assert bool(parse_wheel_filename(file)[3] & RASPBERRY_PI.tags()) == fits
