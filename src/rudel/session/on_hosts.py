"""The description of trainings on hosts, and of their unexpected errors."""

import contextlib
from collections.abc import Iterator

from rudel.errors import ClusterError, RudelError, option
from rudel.runs.run_directory import RunDirectory


def purpose_of(run: RunDirectory | None) -> str:
    """The purpose of a worker's reservation, shown to others who want that worker."""
    return f"the training {run.path.resolve()}" if run else "a training"


@contextlib.contextmanager
def unforeseen(run: RunDirectory | None) -> Iterator[None]:
    """Makes one sentence of an error that is no `RudelError`, in place of a traceback that only its authors understand.

    Args:
        run: whose log keeps the traceback.

    Raises:
        ClusterError: from that error.
    """
    try:
        yield
    except RudelError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        where = (
            f": please report it with its traceback, which is in {run.log}; {option('resume', True)} continues"
            if run
            else ""
        )
        raise ClusterError(f"The training ended by an error that Rudel did not expect ({what}){where}.") from error
