"""The data of a run, made again by its recipe: for evaluation and export."""

from pathlib import Path

import pytest

from rudel.errors import DataError
from rudel.runs.loading import dataset_of, to_evaluate
from rudel.runs.run_directory import RunDirectory

RECIPE = """
import numpy as np
import rudel

def data(source: str | None = None) -> rudel.Dataset:
    examples = rudel.Examples(np.zeros((2, 3)), np.array([0, 1]))
    return rudel.Dataset(examples, examples, class_names=(source or "").split())

def model(dataset: rudel.Dataset):
    raise AssertionError
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "own.py").write_text(RECIPE)
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.write_config({"recipe": str(tmp_path / "own.py"), "source": "cat dog", "class_names": ["cat", "dog"]})
    return directory


@pytest.mark.parametrize(
    ("classes", "named"),
    [
        ("cat emu", "Label 1 means `emu` in the data of the recipe `own`, and `dog` in the run"),
        ("dog", "Label 0 means `dog`"),
        ("1 0", "Label 0 means `1`"),
        ("0 1 2", "Label 2 means `2` .*, and nothing in the run"),
        ("cat dog emu", "Label 2 means `emu` .*, and nothing in the run"),
    ],
)
def test_labels_of_other_classes_are_refused(run: RunDirectory, classes: str, named: str) -> None:
    for read in (dataset_of, to_evaluate):
        with pytest.raises(DataError, match=named):
            read(run, classes)


@pytest.mark.parametrize("classes", ["cat dog", "cat", "", "0 1"])
def test_labels_of_the_same_classes_are_taken(run: RunDirectory, classes: str) -> None:
    assert len(dataset_of(run, classes or None).train) == len(to_evaluate(run, classes or "cat dog").examples) == 2
