"""What the tests of the doctor share."""

from types import SimpleNamespace

import pytest

from rudel.doctor import asking
from rudel.doctor.asking import Answers, ask


@pytest.fixture
def warm_answers(warm_python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of JAX, Keras and Dask is answered by a process that begins with them imported."""
    monkeypatch.setattr(asking, "sys", SimpleNamespace(executable=warm_python))


@pytest.fixture(scope="session")
def answers() -> Answers:
    """What JAX, Keras and Dask say here."""
    return ask()
