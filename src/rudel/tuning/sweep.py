"""The trials of a sweep on several computers: each works on one at a time, and takes the next when it is done.

A computer that is lost gives its trial back: another one continues it from the checkpoint that was sent last, before
new ones are begun. Optuna chooses settings and says which trials to end early; only this computer asks it.
"""

import asyncio
import functools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rudel.cluster.fleet import TRANSPORT_ERRORS
from rudel.errors import ClusterError, RudelError, option
from rudel.tuning.ledger import Ended, Ledger
from rudel.tuning.study import tell
from rudel.tuning.trial_host import TrialHost

if TYPE_CHECKING:
    import optuna


_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 120.0
_MOST_MOVES = 3
"""A trial whose process has died so often is not tried again: it may be what kills it."""

_MOST_FAILURES = 5
"""So many trials that fail before one succeeds mean that none will."""

SECONDS = "seconds"
"""The attribute of Optuna's trial that says how long it had taken at its newest checkpoint."""

_log = logging.getLogger(__name__)


class Computers(Protocol):
    """The computers that trials run on."""

    async def members(self) -> Mapping[str, str]:
        """Addresses of those that are there, by name."""
        ...

    async def call(self, address: str, operation: str, *, timeout: float | None = None, **message: object) -> Any:
        """Calls an operation of the `TrialService` on one of them.

        Raises:
            OSError: it is lost.
        """
        ...

    def forget(self, address: str) -> None:
        """Drops the connections to one that was lost."""
        ...


@dataclass
class Job:
    """A trial that runs, or waits for a computer.

    Args:
        trial: Optuna's.
        settings: all of them.
        before: seconds that it had taken at its last checkpoint before the sweep was interrupted.
        began: when, by `time.monotonic()`; `before` is taken off.
        moved: how often it continued elsewhere.
        value: the best that it has reported; NaN and infinities do not count.
        step: the last that it has reported.
    """

    trial: "optuna.Trial"
    settings: dict[str, Any]
    before: float = 0.0
    began: float = 0.0
    moved: int = 0
    value: float | None = None
    step: int = -1

    @property
    def seconds(self) -> float:
        """Seconds that it has taken so far."""
        return round(time.monotonic() - self.began, 3)


class Sweep:
    """See the module.

    Args:
        study: Optuna's.
        ask: makes the next trial and all its settings.
        count: of trials, those of before included.
        objective: pickled.
        ledger: where results are kept.
        waiting: trials that were running when the sweep was interrupted.
        shown: called with each trial that has ended.
    """

    def __init__(
        self,
        study: "optuna.Study",
        ask: Callable[[], tuple[Any, dict[str, Any]]],
        count: int,
        objective: bytes,
        ledger: Ledger,
        waiting: list[Job],
        shown: Callable[[Ended], None],
    ) -> None:
        self._study, self._ask, self._objective, self._ledger = study, ask, objective, ledger
        self._shown = shown
        self._waiting = deque(waiting)
        self._to_begin = max(0, count - len(study.get_trials(deepcopy=False)))
        self._running: dict[str, Job] = {}
        self._sign = -1 if study.direction.name == "MINIMIZE" else 1
        done = [trial.value for trial in ledger.ended() if trial.state == "finished" and trial.value is not None]
        self._best = max(done, key=lambda value: self._sign * value, default=None)
        self._failures, self._succeeded = 0, self._best is not None

    async def run(self, computers: Computers) -> None:
        """Works until all trials have ended.

        Raises:
            ClusterError: all computers are lost, and none came back.
            RudelError: the trials fail, one after the other.
        """
        tasks: dict[str, asyncio.Task[None]] = {}
        seen = time.monotonic()
        try:
            while self._waiting or self._to_begin or self._running:
                members = await computers.members()
                for name in [name for name, task in tasks.items() if task.done()]:
                    tasks.pop(name).result()
                for name, address in members.items():
                    if name not in tasks and (self._waiting or self._to_begin):
                        tasks[name] = asyncio.create_task(self._work(name, address, computers))
                if tasks:
                    await asyncio.wait(tasks.values(), timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if self._running:
                    seen = time.monotonic()
                elif time.monotonic() - seen > _PATIENCE_SECONDS:
                    raise ClusterError(
                        f"No host has taken a trial for {_PATIENCE_SECONDS:.0f} s: check the hosts, then continue "
                        f"with {option('resume', True)}."
                    )
                await asyncio.sleep(_LOOK_SECONDS / 10)  # where others still work on the last trials, nothing waits
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _work(self, name: str, address: str, computers: Computers) -> None:
        """Works on one trial after the other on a computer, until there is none left or it is lost."""
        job = None
        host = TrialHost(functools.partial(computers.call, address))
        try:
            await host.load(self._objective)
            while job := self._next():
                self._running[name] = job
                try:
                    await self._try(job, name, host)
                except BaseException:
                    self._waiting.appendleft(job)
                    raise
                finally:
                    del self._running[name]
        except TRANSPORT_ERRORS as error:
            why = str(error) or "it does not answer"
            if job:
                _log.warning("%s is lost (%s): trial %d continues elsewhere", name, why, job.trial.number)
            else:
                _log.info("%s takes no trial: %s", name, why)
            computers.forget(address)

    def _next(self) -> Job | None:
        if self._waiting:
            job = self._waiting.popleft()
            if job.began:
                job.moved += 1
        elif self._to_begin:
            job = Job(*self._ask())
            self._to_begin -= 1
        else:
            return None
        job.began = job.began or time.monotonic() - job.before
        return job

    async def _try(self, job: Job, name: str, host: TrialHost) -> None:
        """Lets a computer work on a trial to its end."""
        number = job.trial.number
        await host.begin(number, job.settings, self._ledger.checkpoints(number))
        while True:
            event = await host.next()
            match event["kind"]:
                case "report":
                    await host.answer(go_on=self._goes_on(job, event["step"], event["value"]))
                case "checkpoint":
                    self._ledger.keep_checkpoints(number, event["files"])
                    job.trial.set_user_attr(SECONDS, job.seconds)
                    await host.answer()
                case "finished":
                    await self._finish(job, name, event["value"], host)
                    return
                case "pruned":
                    self._end(job, name, "pruned", job.value)
                    return
                case "failed":
                    _log.info("trial %d failed on %s:\n%s", number, name, event["traceback"])
                    self._end(job, name, "failed", None, event["text"])
                    return
                case "died":
                    if job.moved >= _MOST_MOVES:
                        self._end(job, name, "failed", None, event["text"])
                        return
                    _log.warning("trial %d is begun again, as %s", number, event["text"])
                    job.moved += 1
                    await host.begin(number, job.settings, self._ledger.checkpoints(number))

    def _goes_on(self, job: Job, step: int, value: float) -> bool:
        if math.isfinite(value) and (job.value is None or self._sign * value > self._sign * job.value):
            job.value = value
        if step <= job.step:  # it was taken before the computer was lost that took it
            return True
        job.step = step
        job.trial.report(value, step)
        return not job.trial.should_prune()

    async def _finish(self, job: Job, name: str, value: float, host: TrialHost) -> None:
        """Keeps the value of a trial, and its folder if it is the best so far."""
        if not math.isfinite(value):
            await host.answer(keep=False)
            self._end(job, name, "failed", None, f"Its value is {'NaN' if math.isnan(value) else 'infinite'}.")
            return
        keep = self._is_best(value)
        await host.answer(keep=keep)
        if keep:
            event = await host.next()
            if event["kind"] != "run":
                raise ConnectionError(f"the result of the trial was lost ({event.get('text')})")
            if self._is_best(value):  # another may have finished while it travelled
                self._ledger.keep_best(event["content"])
                self._best = value
        self._end(job, name, "finished", value)

    def _is_best(self, value: float) -> bool:
        return self._best is None or self._sign * value > self._sign * self._best

    def _end(
        self, job: Job, name: str, state: Literal["finished", "pruned", "failed"], value: float | None, error: str = ""
    ) -> None:
        varied = {setting: job.settings[setting] for setting in job.trial.params}
        ended = Ended(job.trial.number, state, value, varied, name, job.seconds, job.moved, error)
        self._ledger.add(ended)
        tell(self._study, ended)
        self._shown(ended)
        self._succeeded = self._succeeded or state != "failed"
        self._failures += state == "failed"
        if self._failures >= _MOST_FAILURES and not self._succeeded:
            raise RudelError(f"The first {self._failures} trials failed, the last one by this: {error}")
