"""The engine of the strategy `mesh` on hosts: processes there train as one, and the driver's session reports it.

Members on the hosts train (`member.py`); here, the session keeps their records and checkpoints, and lets callbacks act
on the model. Member 0 sends every checkpoint, so whatever happens to hosts, the newest one is at the driver: when a
host is lost, the members are started again from it, on the hosts that are left.

Limit: a host that comes back takes part again when the members are started again for another reason.
"""

import concurrent.futures
import contextlib
import logging
import queue
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rudel.cluster.fleet import installed
from rudel.errors import ClusterError, NonFiniteError, OptionError, error_named, option
from rudel.loop import model_state
from rudel.loop.model_state import ModelState
from rudel.mesh.hosts import member_messages as messages
from rudel.mesh.hosts.attempt import Attempt, Broken, Heard, answering
from rudel.mesh.hosts.choose_hosts import chosen_hosts
from rudel.mesh.hosts.job_parcel import pack
from rudel.mesh.hosts.member_service import members_guest
from rudel.mesh.mesh_devices import size_of
from rudel.replicas.members import Piece
from rudel.report.rounds_file import by_number
from rudel.runs.checkpoint import Checkpoint
from rudel.runs.run_directory import RunDirectory
from rudel.session.job import Clock
from rudel.session.on_hosts import purpose_of, unforeseen
from rudel.session.session import Session

if TYPE_CHECKING:
    from rudel.cluster.running_cluster import RunningCluster


PATIENCE_SECONDS = 120.0
"""Time for lost hosts to come back where too few are left."""

_TRIES = 3
"""Attempts in a row that may end before a checkpoint came of them."""

_HOW = (
    *("strategy", "strategy_options", "hosts", "restarts", "steps", "samples", "rounds", "arrivals"),
    *("bytes_sent", "bytes_received", "workers_lost", "workers_joined"),
)
"""Entries of a summary about how the model was trained, by any strategy."""

_LOOK_SECONDS = 0.1
_INTERRUPT_SECONDS = 30.0

_log = logging.getLogger(__name__)


class HostsEngine:
    """An `Engine`; see the module.

    Args:
        cluster: a running `rudel.Cluster`, or a client taken over by `rudel.cluster.ssh_cluster.ClientCluster`.
        options: of the strategy.
    """

    def __init__(self, cluster: "RunningCluster", options: Any) -> None:
        self._cluster, self._options = cluster, options
        self._events: queue.SimpleQueue[Heard | Broken] = queue.SimpleQueue()
        self._devices: dict[str, int] = {}
        self._about: dict[str, Any] = {}
        self._hosts: list[str] = []
        self._restarts: list[dict[str, Any]] = []
        self._devices_each: int | None = None
        self._kept: Checkpoint

    def prepare(self, session: Session) -> None:
        """See `Engine`; nothing is computed here."""
        self._session, self._job, self._position = session, session.job, session.position
        self._state = model_state.read(session.model)
        self._before = _before(session.run)

    def restore(self, saved: Checkpoint) -> None:
        """See `Engine`."""
        self._state = self._session.state_in(saved)

    def write(self) -> None:
        """See `Engine`."""
        model_state.write(self._session.model, self._state)

    def describe(self) -> dict[str, Any]:
        """See `Engine`; where nothing is left to train, what the run said before."""
        return {
            "samples": self._job.schedule.samples(self._position.step),
            **self._about,
            "strategy": "mesh",
            "hosts": self._hosts,
            "restarts": self._restarts,
            **self._before,
        }

    def close(self) -> None:
        """See `Engine`."""

    def run(self) -> None:
        """See `Engine`."""
        session = self._session
        if session.done:
            return
        self._before = {}
        began = time.perf_counter()
        self._kept = session.saved or self._starting_checkpoint()
        with installed(self._cluster, members_guest(purpose_of(session.run))) as self._fleet:
            parcel, pieces = pack(self._job, replace(self._options, devices=None))
            self._position.clock.setup += time.perf_counter() - began
            try:
                self._until_done(parcel, pieces)
            except BaseException:
                if self._session.has_its_form:
                    self._take_over(self._kept)
                raise

    def _until_done(self, parcel: bytes, pieces: list[Piece]) -> None:
        tries, lost = 0, {}
        while True:
            before = self._kept.step
            hosts = self._choose(lost)
            if tries == 0 and not self._restarts:
                self._devices_each = self._share(len(hosts))
            attempt = Attempt(
                self._fleet,
                hosts,
                parcel,
                pieces,
                self._kept,
                bool(self._job.callbacks),
                self._devices_each,
                self._events.put,
            )
            broken = self._follow(attempt)
            if broken is None:
                return
            noticed = time.perf_counter()
            tries = 0 if self._kept.step > before else tries + 1
            if tries == _TRIES:
                raise ClusterError(f"The hosts could not train together, {_TRIES} times in a row: {broken.reason}.")
            self._go_back(broken, noticed)
            lost |= {name: hosts[name] for name in broken.lost}

    def _share(self, hosts: int) -> int | None:
        """The number of devices of each host, where a number in all was requested.

        Raises:
            OptionError: the hosts cannot have as many each.
        """
        count = self._options.devices or size_of(self._options.axes)
        if count % hosts:
            raise OptionError(f"{count} devices cannot be shared by {hosts} hosts: ask for a multiple of {hosts}.")
        return count // hosts or None

    # -- which hosts -----------------------------------------------------------------------------------------------

    def _choose(self, lost: Mapping[str, str]) -> dict[str, str]:
        """Hosts to train on, and addresses of their workers; waits where there are too few.

        Args:
            lost: those that were found to be silent, though the scheduler may not know yet, with their addresses.
        """
        least = getattr(self._cluster, "min_hosts", None) or 1
        deadline = time.monotonic() + PATIENCE_SECONDS
        waiting = False
        while True:
            members = self._cluster.background.start(answering(self._fleet, lost)).result()
            there = sorted(members, key=by_number)
            options, batch_size = self._options, self._job.schedule.batch_size
            chosen = chosen_hosts(there, self._devices, batch_size, options.axes)
            if len(chosen) >= least and chosen:
                break
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Of {self._cluster.count} hosts, {len(there)} are left, with which this cannot be trained "
                    f"({least} at least, and a batch that divides over them): use {option('resume', True)} when the "
                    "others are back."
                )
            if not waiting:
                self._session.display.note(f"{len(there)} hosts are left, waiting for others to come back")
            waiting = True
            self._session.act_on_interrupt()
            time.sleep(_LOOK_SECONDS)
        if self._hosts and len(chosen) < len(there):
            self._session.display.note(
                f"{len(chosen)} of {len(there)} hosts train: the batch of {self._job.schedule.batch_size} does not "
                "divide over more of them"
            )
        self._hosts = chosen
        return {name: members[name] for name in chosen}

    def _go_back(self, broken: Broken, noticed: float) -> None:
        """Puts everything back to where the newest checkpoint was."""
        kept = self._kept
        self._session.display.note(f"{broken.reason}; continuing from step {kept.step:,}")
        _log.info("%s; lost: %s; continuing from step %d", broken.reason, broken.lost, kept.step)
        self._restarts.append(
            {
                "step": self._position.step,
                "from_step": kept.step,
                "lost": list(broken.lost),
                "reason": broken.reason,
                "time": round(time.time(), 3),
                "noticed": noticed,
                "seconds": None,
            }
        )
        self._take_over(kept)
        self._session.go_back(kept)

    # -- what members say ------------------------------------------------------------------------------------------

    def _follow(self, attempt: Attempt) -> Broken | None:
        """Does what members say until they have ended; returns how, if that was too early."""
        background = self._cluster.background
        running: concurrent.futures.Future[None] = background.start(attempt.run())
        asked_at: float | None = None
        try:
            while not (running.done() and self._events.empty()):
                if self._session.interrupts.received:
                    if asked_at is None:
                        asked_at = time.monotonic()
                        background.start(attempt.interrupt())
                    elif time.monotonic() - asked_at > _INTERRUPT_SECONDS:
                        self._session.act_on_interrupt()
                try:
                    event = self._events.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    continue
                if isinstance(event, Broken):
                    self._session.act_on_interrupt()
                    return event
                self._take(attempt, event)
            with unforeseen(self._session.run):
                running.result()
        finally:
            concurrent.futures.wait([background.start(attempt.end())], timeout=_INTERRUPT_SECONDS)
            self._drop_events()
        return None

    def _drop_events(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._events.get_nowait()

    def _take(self, attempt: Attempt, heard: Heard) -> None:
        session, message, position = self._session, heard.message, self._position
        match message:
            case messages.Refused():
                raise self._refused(heard.host, message)
            case messages.Joined(devices):
                self._devices[heard.host] = devices
            case messages.Begun(about, compile_seconds):
                self._begin(about, compile_seconds)
            case messages.Noted(text):
                session.display.note(text)
            case messages.Advanced(step, logs, seconds):
                position.step, position.clock.train = step, seconds
                session.display.advance(step, logs, seconds)
            case messages.Moment():
                self._act(attempt, message)
            case messages.Recorded(record):
                position.step = max(position.step, record["step"])
                session.watch.observe_all([*position.records, record])
                session.add_record(record)
            case messages.Saved(checkpoint):
                self._keep(checkpoint)
            case messages.Best(checkpoint):
                session.keep_best(checkpoint)
            case messages.Done():
                self._finish(message)
            case messages.Interrupted() if heard.number == 0:  # before which it has sent its checkpoint
                session.act_on_interrupt()

    def _refused(self, host: str, refused: messages.Refused) -> Exception:
        if refused.trace:
            _log.info("the training failed on %s: %s", host, refused.trace)
        error = error_named(refused.kind)(refused.reason)
        if not isinstance(error, NonFiniteError):
            return error
        return NonFiniteError(f"{error}{self._session.store.after_failure(self._session.saved_step)}")

    def _begin(self, about: dict[str, Any], compile_seconds: float) -> None:
        self._about, run = about, self._session.run
        if run:
            run.write_config(run.read_config() | {"strategy_options": about["strategy_options"]})
        self._position.clock.compile += compile_seconds
        if self._restarts and self._restarts[-1]["seconds"] is None:
            last = self._restarts[-1]
            last["seconds"] = round(time.perf_counter() - last.pop("noticed"), 3)
            last["hosts"] = list(self._hosts)
        elif not self._restarts:
            self._position.clock.setup = self._session.seconds - compile_seconds

    def _act(self, attempt: Attempt, moment: messages.Moment) -> None:
        """Lets the callbacks act, and tells the members what they changed."""
        before: ModelState | None = None
        model = self._session.model
        if moment.hook not in messages.HOOKS:
            raise ClusterError(
                f"A host asks for the callback `{moment.hook}`, which it cannot: it is broken, or hostile."
            )
        if moment.state is not None:
            model_state.write(model, ModelState(*moment.state))
        if moment.waits:
            before = model_state.values(model)
        hook = getattr(self._session.callbacks, moment.hook)
        hook(dict(moment.logs)) if moment.number is None else hook(moment.number, dict(moment.logs))
        if before is None:
            return
        after = model_state.values(model)
        changes = {
            f"{part}/{place}": new
            for part in ModelState._fields
            for place, (old, new) in enumerate(zip(getattr(before, part), getattr(after, part), strict=True))
            if old.tobytes() != new.tobytes()
        }
        acted = messages.Acted(changes, bool(model.stop_training))
        with unforeseen(self._session.run):
            self._cluster.background.start(attempt.say(acted)).result()

    # -- what is kept ----------------------------------------------------------------------------------------------

    def _starting_checkpoint(self) -> Checkpoint:
        """The checkpoint of a training that has not begun."""
        arrays = model_state.as_arrays(model_state.values(self._session.model))
        return Checkpoint(self._position.step, dict(arrays), self._session.document(dict(arrays)))

    def _keep(self, checkpoint: Checkpoint) -> None:
        session = self._session
        with self._position.clock.counting("checkpoint"):
            arrays = {name: array for name, array in checkpoint.arrays.items() if not name.startswith("callback/")}
            said = {name: value for name, value in checkpoint.document.items() if name not in ("identity", "callbacks")}
            said["clock"] = said["clock"] | {"total": session.total_seconds}
            self._kept = Checkpoint(checkpoint.step, arrays, session.document(arrays, **said))
            session.keep(self._kept)

    def _take_over(self, checkpoint: Checkpoint) -> None:
        self._state = self._session.state_in(checkpoint)
        self.write()

    def _finish(self, done: messages.Done) -> None:
        position, setup, compiled = self._position, self._position.clock.setup, self._position.clock.compile
        self._about = done.about
        self._state = ModelState(*done.state)
        position.step, position.stopped = done.step, done.stopped
        position.clock = Clock(**done.clock)
        position.clock.setup, position.clock.compile = setup, compiled


def _before(run: RunDirectory | None) -> dict[str, Any]:
    """Entries of the summary about how a resumed run was trained before, perhaps by another strategy."""
    if run is None:
        return {}
    document, names = run.read_summary(), _HOW
    if document is None:
        document, names = run.read_config(), _HOW[:2]
    return {name: document[name] for name in names if name in document}
