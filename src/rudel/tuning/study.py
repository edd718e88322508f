"""Optuna's study of a sweep, whose journal lies beside the sweep's own records, which count where the two differ."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rudel.counted_context import CountedContext
from rudel.errors import OptionError, RunError, option
from rudel.files import remove_torn_line
from rudel.runs.run_directory import writing
from rudel.tuning.ledger import Ended

if TYPE_CHECKING:
    import optuna

_NAME = "rudel"


def import_optuna() -> Any:
    """Optuna.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise OptionError("Sweeps need Optuna: pip install 'rudel[tune]'.") from error
    return optuna


@contextlib.contextmanager
def _without_reports() -> Iterator[None]:
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)


OPTUNA_WARNS_ONLY = CountedContext(_without_reports)
"""While a sweep is in it, Optuna does not report by itself how trials end."""


def open_study(
    journal: Path,
    ended: Iterable[Ended],
    direction: Literal["minimize", "maximize"],
    sampler: "optuna.samplers.BaseSampler",
    pruner: "optuna.pruners.BasePruner",
) -> "tuple[optuna.Study, list[tuple[optuna.Trial, optuna.trial.FrozenTrial]]]":
    """Makes a study, or opens it again. All that changes it raises RunError where its journal cannot be written.

    Args:
        journal: the file that it is kept in, which no other process uses.
        ended: trials that have ended; those that the study still lists as running are marked as ended in it.
        direction: "minimize" or "maximize".
        sampler: chooses settings.
        pruner: says which trials to end early.

    Returns:
        The study, and the trials that were running when the sweep was interrupted, with what is known of each.

    Raises:
        RunError: the journal cannot be written, is damaged, or lacks trials that have ended.
    """
    from optuna import Trial, create_study
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    class Journal(JournalFileBackend):
        """Optuna's own, with errors of Rudel's."""

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            with writing(journal.parent):
                super().append_logs(logs)

    known = {trial.number: trial for trial in ended}
    try:
        with writing(journal.parent):
            remove_torn_line(journal)  # Optuna reads none after it
            journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)  # of a sweep that was killed in writing
            storage = JournalStorage(Journal(str(journal)))
        study = create_study(
            storage=storage, study_name=_NAME, direction=direction, load_if_exists=True, sampler=sampler, pruner=pruner
        )
        listed = {trial.number: trial.state for trial in study.get_trials(deepcopy=False)}
        if not {number for number, state in listed.items() if state.is_finished()} <= known.keys() <= listed.keys():
            raise ValueError("it has other trials than trials.jsonl")
    except (ValueError, KeyError, TypeError) as error:  # by what is damaged
        raise RunError(
            f"{journal} cannot be read ({error}): the sweep is damaged; begin another with {option('run')}."
        ) from error
    of_study, running = storage.get_study_id_from_name(_NAME), []
    for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if frozen.number in known:
            tell(study, known[frozen.number])
        else:
            number = storage.get_trial_id_from_study_id_trial_number(of_study, frozen.number)
            running.append((Trial(study, number), frozen))
    return study, running


def tell(study: "optuna.Study", ended: Ended) -> None:
    """Tells a study of a trial that has ended."""
    from optuna.trial import TrialState

    states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    study.tell(ended.number, ended.value if ended.state == "finished" else None, states[ended.state])
