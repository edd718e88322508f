"""A strategy is added as CONTRIBUTING says: options with a method `engine`, in one file, and a line that names them."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import rudel
from rudel.backend import set_seed
from rudel.session.local_engine import local_engine
from rudel.session.training_options import TrainingOptions
from rudel.training import strategies


@dataclass(frozen=True)
class Noted:
    """The local engine, with an option of its own."""

    name: ClassVar[str] = "noted"
    needs_hosts: ClassVar[bool] = False
    any_backend: ClassVar[bool] = False

    notes: int = 1

    def engine(self, job: Any, cluster: Any) -> Any:
        """See `Strategy`."""
        return local_engine()


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("noted_options")
    module.Noted = Noted
    monkeypatch.setitem(sys.modules, "noted_options", module)
    monkeypatch.setitem(strategies._HOMES, "noted", "noted_options.Noted")
    monkeypatch.setattr(strategies, "STRATEGIES", (*strategies.STRATEGIES, "noted"))


@pytest.mark.usefixtures("added")
def test_a_strategy_is_found_by_its_name_and_its_options() -> None:
    assert strategies.named("noted", hosts=False) == Noted()
    assert strategies.with_options("noted", {"notes": 3}) == Noted(3)
    assert strategies.with_options(None, {"notes": 3}) == Noted(3)


@pytest.mark.parametrize(
    "options",
    [
        TrainingOptions(steps=np.int64(8), eval_every=np.int64(4), keep=np.uint8(2), shuffle=np.False_),  # type: ignore[arg-type]
        rudel.Diloco(round_steps=np.int64(8), rate_factor=np.float32(1.5), patience=np.float32(60)),  # type: ignore[arg-type]
        rudel.Async(steps_between=np.int32(8)),  # type: ignore[arg-type]
        rudel.Mesh(devices=np.int64(1), axes={"data": np.int64(1)}),  # type: ignore[arg-type,dict-item]
    ],
    ids=lambda options: type(options).__name__,
)
def test_numbers_of_numpy_in_options_become_those_of_python(options: Any) -> None:
    assert json.loads(json.dumps(vars(options))) == vars(options)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("strategy", ["noted", Noted(2)], ids=str)
def test_it_trains_as_its_engine_does(
    strategy: Any, blobs: tuple[np.ndarray, np.ndarray], classifier: Callable[..., Any], tmp_path: Path
) -> None:
    weights = []
    for settings in ({"strategy": strategy, "run": tmp_path / "run"}, {}):
        set_seed(7)
        model = classifier()
        rudel.fit(model, *blobs, epochs=1, **settings)
        weights.append(model.get_weights())
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (tmp_path / "run/summary.json").exists()
