"""The digits of scikit-learn, read without it."""

import subprocess
import sys
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from rudel.data import digits


def test_they_are_those_of_scikit_learn() -> None:
    known: Any = load_digits()
    images, classes = digits.load()
    np.testing.assert_array_equal(images, known.images, strict=True)
    np.testing.assert_array_equal(classes, known.target.astype(np.int32), strict=True)


def test_scikit_learn_is_not_imported_for_them() -> None:
    script = "import sys; from rudel.data import digits; digits.load(); assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_where_its_file_has_moved_scikit_learn_is_asked(monkeypatch: Any) -> None:
    expected = digits.load()
    monkeypatch.setattr(digits, "_FILE", "elsewhere.csv.gz")
    for found, known in zip(digits.load(), expected, strict=True):
        np.testing.assert_array_equal(found, known, strict=True)
