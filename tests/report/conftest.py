import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from rudel.report.predictions import save, summarise
from rudel.report.report_page import write_report

CONFIG = {
    "recipe": "quickdraw",
    "options": {"net": "mlp", "hidden": 200},
    "epochs": 3,
    "steps": None,
    "batch_size": 32,
    "seed": 0,
    "precision": "float32",
    "class_names": ["bird", "cat", "fish"],
    "attribution": "Drawings by many people, https://example.org/drawings",
    "model": {"parameters": 204301, "text": 'Model: "mlp"\n┏━━━┓\n┃ a ┃\n┗━━━┛'},
    "data": {"train": 46800, "validation": 5200},
    "versions": {"rudel": "0.1.0", "jax": "0.10.0"},
    "started": "2026-11-20T13:01:02+00:00",
}
EPOCHS = [
    {
        "epoch": epoch,
        "step": 1462 * epoch,
        "seconds": 1.9,
        "loss": 1.2 / epoch,
        "accuracy": 0.5 + 0.1 * epoch,
        "val_loss": 1.1 / epoch,
        "val_accuracy": 0.45 + 0.1 * epoch,
        "learning_rate": 0.001,
    }
    for epoch in (1, 2, 3)
]
SUMMARY = {
    "recipe": "quickdraw",
    "strategy": "single",
    "seed": 0,
    "hosts": ["localhost"],
    "versions": {},
    "steps": 4386,
    "samples": 140352,
    "setup_seconds": 1.0,
    "compile_seconds": 2.0,
    "train_seconds": 5.7,
    "evaluate_seconds": 0.5,
    "checkpoint_seconds": 0.3,
    "total_seconds": 10.0,
    "metrics": {"loss": 0.4, "accuracy": 0.8, "val_loss": 0.37, "val_accuracy": 0.75},
    "bytes_sent": 0,
    "bytes_received": 0,
}


def answers(classes: int, examples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities float32 (examples, classes) and right classes, right more often than not."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, classes, examples)
    logits = random.normal(size=(examples, classes))
    logits[np.arange(examples), truth] += 2
    odds = np.exp(logits)
    return (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32), truth


class RunDirectory:
    """A run directory in the making: its files are written as they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self, **changes: Any) -> "RunDirectory":
        (self.path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        return self

    def epochs(self, lines: list[dict[str, Any]] = EPOCHS) -> "RunDirectory":
        (self.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self

    def summary(self, **changes: Any) -> "RunDirectory":
        (self.path / "summary.json").write_text(json.dumps({**SUMMARY, **changes}))
        return self

    def predictions(self, classes: int = 3, examples: int = 300, pictures: bool = True) -> "RunDirectory":
        x = np.random.default_rng(1).integers(0, 256, (examples, 28, 28), np.uint8) if pictures else None
        save(self.path / "predictions.npz", summarise(*answers(classes, examples)), x)
        return self

    def rounds(self, lines: list[dict[str, Any]]) -> "RunDirectory":
        (self.path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self

    def report(self) -> "Page":
        return Page(write_report(self.path).read_text(encoding="utf-8"))


class Page:
    """A page, read as XML: it must be well formed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))

    def all(self, tag: str) -> list[ElementTree.Element]:
        return list(self.root.iter(tag))

    def words(self, tag: str = "body") -> str:
        return " ".join(" ".join("".join(found.itertext()) for found in self.all(tag)).split())

    @property
    def sections(self) -> list[str | None]:
        return [section.get("id") for section in self.all("section")]

    def table(self, caption: str) -> list[list[str]]:
        """The cells of the body of the table with this caption."""
        for table in self.all("table"):
            if table.findtext("caption") == caption:
                return [["".join(cell.itertext()) for cell in row] for row in table.findall("tbody/tr")]
        raise AssertionError(f"no table {caption}")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


@pytest.fixture
def whole(run: RunDirectory) -> RunDirectory:
    return run.config().epochs().summary().predictions()


@pytest.fixture
def make_answers() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    return answers
