"""Brings this process together with those that the environment names, before JAX begins.

JAX is given the processes of a training only when it starts, so this has to come first: `rudel train` does it by
itself; a script calls `rudel.join()` before it makes a model. What a process says to the others is not encrypted: see
docs/mesh.md for what is open to whom.
"""

import atexit
import contextlib
import importlib.util
import os
import platform
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rudel.errors import ClusterError, OptionError
from rudel.internals.jax import backend_has_started, let_gloo_listen
from rudel.listening import is_loopback
from rudel.mesh.hosts.job_environment import coordinator_of, processes_of
from rudel.mesh.hosts.processes import Processes

CONNECT_SECONDS = 300
"""Time for all processes to come: a cluster starts some of them minutes after the others."""

HEARTBEAT_SECONDS = 30
"""After so much silence a process counts as lost, and the others end."""

_SHUTDOWN_SECONDS = 900
"""Time for process 0 to write its results while the others wait to end."""

_AFTERMATH_SECONDS = 1.0
"""Time for the others to notice by themselves: JAX ends them as soon as process 0 has ended."""

_joined: Processes | None = None
_disconnects = False


def join() -> Processes | None:
    """Joins the processes that the environment names; does nothing where it names none, or when that is done.

    To be called before anything is computed by JAX, which making a model does too. TF_CONFIG, the variables of Open MPI
    and of SLURM are looked at in this order, and on a TPU what JAX finds out by itself.

    Returns:
        Who trains together, or None if this process trains alone.

    Raises:
        OptionError: a variable is malformed, or JAX has begun already.
        ClusterError: the others did not come.
    """
    if _joined:
        return _joined
    found = processes_of(os.environ)
    if found:
        connect(found)
    elif _is_tpu() and not has_begun():
        coordinator_of(os.environ)  # which JAX reads, too
        _connect_tpu()
    if _joined:
        print(f"mesh: {_joined.description}", file=sys.stderr, flush=True)
    return _joined


def joined() -> Processes | None:
    """The processes that this one has joined; None where it has joined none."""
    return _joined


def connect(processes: Processes, seconds: int = CONNECT_SECONDS, heartbeat: int = HEARTBEAT_SECONDS) -> None:
    """Connects this process with the others.

    Args:
        processes: who.
        seconds: time for all to come.
        heartbeat: seconds of silence after which a process counts as lost.

    Raises:
        OptionError: JAX has begun already.
        ClusterError: the others did not come.
    """
    global _joined
    if has_begun():
        raise OptionError(
            f"{processes.source} says that {processes.count} processes train together, and JAX has begun in this one "
            "by itself: call rudel.join() at the top of the script, before a model is made."
        )
    import jax

    assert processes.coordinator
    own, is_certain = _own_address(processes)
    _keep_standard_output()
    let_gloo_listen(own)
    port = processes.coordinator.rpartition(":")[2]
    try:
        jax.distributed.initialize(
            coordinator_address=processes.coordinator,
            num_processes=processes.count,
            process_id=processes.number,
            local_device_ids=None if processes.device is None else [processes.device],
            cluster_detection_method="deactivate",
            initialization_timeout=seconds,
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
            coordinator_bind_address=f"{_bracketed(own)}:{port}" if is_certain else None,
        )
    except RuntimeError as error:
        at = "" if processes.number else ", which this process is to open"
        raise ClusterError(
            f"Only some of the {processes.count} processes connected within {seconds} s at "
            f"{processes.coordinator}{at} ({_first_line(error)}): have all been started, and can they reach that "
            "address?"
        ) from error
    _joined = processes


def has_begun() -> bool:
    """Whether JAX's backend has been started in this process."""
    return backend_has_started()


def check_devices() -> None:
    """Refuses processes that are connected and have different numbers of devices: JAX lets none speak for such a one.

    Raises:
        OptionError: in all processes; says how many each has.
    """
    import jax

    check_alike([device.process_index for device in jax.devices()])


def check_alike(owners: Sequence[int]) -> None:
    """See `check_devices`; takes the number of the process of every device.

    >>> check_alike([0, 0, 1, 1])
    >>> check_alike([0, 1, 1])
    Traceback (most recent call last):
    rudel.errors.OptionError: The hosts have different numbers of devices (process 0 has 1, process 1 has 2): ...
    """
    counts = Counter(owners)
    if len(set(counts.values())) > 1:
        shares = ", ".join(f"process {number} has {count}" for number, count in sorted(counts.items()))
        raise OptionError(
            f"The hosts have different numbers of devices ({shares}): give each as many, by CUDA_VISIBLE_DEVICES or, "
            "for processors, JAX_NUM_CPU_DEVICES, or leave some hosts out."
        )


def _connect_tpu() -> None:
    """Lets JAX find out by itself which hosts of a TPU pod there are."""
    global _joined
    import jax

    try:
        jax.distributed.initialize(initialization_timeout=CONNECT_SECONDS, shutdown_timeout_seconds=_SHUTDOWN_SECONDS)
    except (RuntimeError, ValueError) as error:
        raise ClusterError(f"The hosts of this TPU could not connect to each other: {_first_line(error)}") from error
    if jax.process_count() > 1:
        _joined = Processes(jax.process_index(), jax.process_count(), None, "JAX's own detection (TPU)")


def has_tpu_chips(root: Path = Path("/")) -> bool:
    """Whether the system shows TPU chips: as `accel0`, or from TPU v5e on as `vfio/0`, as other devices may be, too.

    Args:
        root: where `dev` is.
    """
    return (root / "dev/accel0").exists() or (root / "dev/vfio/0").exists()


def _is_tpu() -> bool:
    """Whether this is a host with TPU chips and the library for them."""
    library = importlib.util.find_spec("libtpu") is not None
    return library and has_tpu_chips() and os.environ.get("JAX_PLATFORMS", "tpu") != "cpu"


def disconnect() -> None:
    """Waits for the others to end, too, so that nobody takes the end of this process for a loss."""
    import jax

    with contextlib.suppress(RuntimeError):
        jax.distributed.shutdown()


def disconnect_at_exit() -> None:
    """Has the process do so when it ends: after a training that ended well, and not where one failed."""
    global _disconnects
    if not _disconnects:
        atexit.register(disconnect)
    _disconnects = True


def never_disconnect() -> None:
    """Has the process end without waiting: a training failed, and the others are to hear of that."""
    global _disconnects
    atexit.unregister(disconnect)
    _disconnects = False


def exit_without_jax() -> None:
    """Has the process end without JAX: another one was lost, and JAX would wait for it for half a minute, and abort."""
    atexit.register(_leave)


def _leave() -> None:
    if _joined and _joined.number == 0:
        time.sleep(_AFTERMATH_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(1 if hasattr(sys, "last_value") else 2)  # a traceback was shown, or a sentence


def _own_address(processes: Processes) -> tuple[str, bool]:
    """An address of this host at which the others reach it, and whether the environment names it."""
    if processes.address and (own := _if_own(processes.address)):
        return own, True
    assert processes.coordinator
    host = processes.coordinator.rpartition(":")[0].strip("[]")
    towards = source_towards(host)
    if towards and (not is_loopback(towards) or is_loopback(host)):
        return towards, False
    return source_towards("192.0.2.1") or platform.node(), False  # by way of the default route; nothing is sent


def _if_own(host: str) -> str | None:
    """The address of a name, if it is one of this host and others can mean the same by it."""
    with contextlib.suppress(OSError):
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        if is_loopback(str(address[0])) and not is_loopback(host):
            return None  # as Debian's /etc/hosts has it
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0))
        return str(address[0])
    return None


def source_towards(host: str) -> str | None:
    """The address from which this host would talk to another one."""
    with contextlib.suppress(OSError):
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    return None


def _keep_standard_output() -> None:
    """Sends what C++ prints to standard error: gloo says whom it is connected to, amid what is printed as JSON."""
    try:
        if sys.stdout.fileno() != 1:
            return
    except (OSError, ValueError):  # no file, as in notebooks
        return
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, buffering=1)
    os.dup2(2, 1)
    sys.stdout = own


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).strip()
