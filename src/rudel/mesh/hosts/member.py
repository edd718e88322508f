"""`python -m rudel.mesh.hosts.member FOLDER`: one of the processes that train together, started by a worker.

It reads an order from standard input, joins the others, trains, and tells on standard output what happens. It ends when
standard input does, which is when its worker is gone.
"""

import contextlib
import os
import queue
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from rudel.errors import ClusterError, RudelError
from rudel.garbage_collection import collect_seldom
from rudel.mesh.hosts.channel import Channel
from rudel.mesh.hosts.member_messages import Acted, Begun, Done, Failed, Interrupted, Joined, Order, Refused

_CONNECT_SECONDS, _HEARTBEAT_SECONDS = 120, 10
_FAILED, _REFUSED = 3, 2
_LONGEST = 300
"""Characters of an error's message that are sent to the driver."""


def main() -> None:
    """Reads its order, trains, ends."""
    collect_seldom()
    channel, folder = Channel.of_standard_streams(), Path(sys.argv[1])
    order: Order = channel.receive()
    answers: queue.SimpleQueue[Acted] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, answers, folder), daemon=True).start()
    code = _trained(order, channel, answers)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # threads that wait, or compute, are not waited for


def _listen(channel: Channel, answers: "queue.SimpleQueue[Acted]", folder: Path) -> None:
    """Takes in what the driver says, and ends the process when nobody can say anything any more."""
    try:
        while True:
            answers.put(channel.receive())
    except EOFError:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def _trained(order: Order, channel: Channel, answers: "queue.SimpleQueue[Acted]") -> int:
    """Trains, and tells how that ended; returns the code with which to exit."""
    from rudel.loop.model_state import first_line
    from rudel.mesh.hosts.join import disconnect
    from rudel.mesh.hosts.lifecycle import is_of_a_connection

    try:
        done = _train(order, channel, answers)
    except (KeyboardInterrupt, SystemExit):
        channel.send(Interrupted())
    except ClusterError as error:  # others may do better
        channel.send(Failed(str(error)))
        return _FAILED
    except RudelError as error:
        channel.send(Refused(type(error).__name__, str(error)))
        return _REFUSED
    except Exception as error:
        if is_of_a_connection(error):
            channel.send(Failed(f"the connection to another host broke off ({first_line(error)[:_LONGEST]})"))
            return _FAILED
        reason = f"The training failed with {type(error).__name__}: {first_line(error)[:_LONGEST]}"
        channel.send(Refused(ClusterError.__name__, reason, traceback.format_exc()))
        return _REFUSED
    else:
        if done:
            channel.send(done)
    disconnect()
    return 0


def _train(order: Order, channel: Channel, answers: "queue.SimpleQueue[Acted]") -> Done | None:
    """Trains; member 0 returns how it ended."""
    began, first = time.perf_counter(), order.processes.number == 0
    from rudel.mesh.hosts.join import check_devices, connect
    from rudel.mesh.mesh_devices import reserve

    if order.devices:
        reserve(order.devices)
    connect(order.processes, _CONNECT_SECONDS, _HEARTBEAT_SECONDS)
    check_devices()
    import jax

    channel.send(Joined(jax.local_device_count(), jax.local_devices()[0].platform))
    from dataclasses import replace

    from rudel.backend import keras_on_jax
    from rudel.mesh.hosts.job_parcel import unpack
    from rudel.mesh.hosts.relay import Relay, SentDisplay, SentStore, state_of
    from rudel.mesh.mesh_engine import mesh_engine
    from rudel.session.session import Session
    from rudel.session.training_display import Display

    job, options = unpack(order.parcel)
    job = replace(job, callbacks=[Relay(channel if first else None, answers, order.asks)])

    def begun(about: dict[str, Any], compile_seconds: float) -> None:
        if first:
            channel.send(Begun(about, compile_seconds))

    engine = mesh_engine(job, options.devices, options.axes, options.layouts, begun)
    store = SentStore(channel) if first else None
    display: Display = SentDisplay(channel) if first else Display()
    session = Session(keras_on_jax(light=True), job, None, order.saved, display, began, engine, store)
    session.train()
    if not first:
        return None
    position = session.position
    clock: dict[str, Any] = dict(vars(position.clock))
    return Done(session.about, state_of(job.model), position.step, position.stopped, clock)


if __name__ == "__main__":
    main()
