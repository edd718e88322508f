"""What the tests of the doctor share."""

import pytest

from rudel.doctor.asking import Answers, ask


@pytest.fixture(scope="session")
def answers() -> Answers:
    """What JAX, Keras and Dask say here."""
    return ask()
