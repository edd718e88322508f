"""Optuna's study of a sweep, whose journal lies beside the sweep's own records, which count where the two differ."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rudel.errors import OptionError
from rudel.files import remove_torn_line
from rudel.runs.run_directory import writing
from rudel.tuning.ledger import Ended

if TYPE_CHECKING:
    import optuna

_NAME = "rudel"


def import_optuna() -> Any:
    """Optuna, which reports nothing by itself.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise OptionError("Sweeps need Optuna: pip install 'rudel[tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(
    journal: Path,
    ended: Iterable[Ended],
    direction: Literal["minimize", "maximize"],
    sampler: "optuna.samplers.BaseSampler",
    pruner: "optuna.pruners.BasePruner",
) -> "tuple[optuna.Study, list[tuple[optuna.Trial, optuna.trial.FrozenTrial]]]":
    """Makes a study, or opens it again. All that changes it raises RunError where its journal cannot be written.

    Args:
        journal: the file that it is kept in.
        ended: trials that have ended; those that the study still lists as running are marked as ended in it.
        direction: "minimize" or "maximize".
        sampler: chooses settings.
        pruner: says which trials to end early.

    Returns:
        The study, and the trials that were running when the sweep was interrupted, with what is known of each.
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

    with writing(journal.parent):
        remove_torn_line(journal)  # Optuna reads none after it
        storage = JournalStorage(Journal(str(journal)))
    study = create_study(
        storage=storage, study_name=_NAME, direction=direction, load_if_exists=True, sampler=sampler, pruner=pruner
    )
    of_study, known = storage.get_study_id_from_name(_NAME), {trial.number: trial for trial in ended}
    running = []
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
