"""Starting and ending a training whose processes the environment has joined.

Process 0 alone has the run directory. A failure there before the first step is sent to all of them, so that each
ends with the same sentence and none waits for the others.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rudel.errors import ClusterError, OptionError, RudelError, error_named, option
from rudel.mesh.hosts.join import (
    check_devices,
    disconnect,
    disconnect_at_exit,
    exit_without_jax,
    has_begun,
    join,
    joined,
    never_disconnect,
)

T = TypeVar("T")

_STATUS = re.compile(r"[A-Z_]+: ")
_OF_A_CONNECTION = (
    *("Gloo", "gloo", "Connection", "connection", "UNAVAILABLE", "DEADLINE_EXCEEDED", "heartbeat"),
    *("coordination service", "remote process exited"),
)
"""Words in errors of JAX, its runtime and NCCL when another process cannot be reached."""


def join_for(options: Any) -> None:
    """Joins the processes that the environment names, if these options of a strategy are of the mesh.

    Raises:
        OptionError: a variable is malformed, JAX has begun already, the requested devices cannot be shared, or the
            hosts have different numbers of them.
        ClusterError: the others did not come.
    """
    if options is None or options.name != "mesh" or not (found := join()):
        return
    from rudel.mesh.mesh_devices import size_of

    count = options.devices or size_of(options.axes)
    if count and not has_begun():
        if count % found.count:
            raise OptionError(
                f"{count} devices cannot be shared by {found.count} processes: ask for a multiple of {found.count}."
            )
        import jax

        jax.config.update("jax_num_cpu_devices", count // found.count)
    try:
        check_devices()
    except OptionError:
        disconnect()
        raise


def is_first() -> bool:
    """Whether this process keeps the run and shows what happens: it is process 0, or trains alone."""
    found = joined()
    return found is None or found.number == 0


def all_or_none(do: Callable[[], T]) -> T:
    """Runs `do` in every process before the training; where one of them fails, all of them do.

    Raises:
        RudelError: what went wrong here, or else in the first of the others that failed, cut to some 200 characters.
    """
    if not joined():
        return do()
    from rudel.mesh import agreement as agree

    try:
        made = do()
    except RudelError as error:
        agree.everyone(f"{type(error).__name__} {error}")
        disconnect()
        raise
    for failure in agree.everyone(""):
        if failure:
            name, _, sentence = failure.partition(" ")
            disconnect()
            raise error_named(name)(sentence)
    return made


@contextlib.contextmanager
def together(options: Any) -> Iterator[Callable[[Callable[[], T], T], T]]:
    """A training by these options; yields `first(do, other)`, which does something in process 0 alone.

    When the block ends well, the process waits at its own end for the others; when it fails, it does not, so that they
    hear of it. Errors in what process 0 does are raised in all processes.

    Args:
        options: of the strategy, or None.
    """
    if options is None or options.name != "mesh" or not joined():
        yield lambda do, other: do()
        return
    never_disconnect()
    try:
        yield _by_the_first
    except RudelError:
        raise
    except Exception as error:
        if lost := _lost(error):
            exit_without_jax()
            raise lost from error
        raise
    disconnect_at_exit()


def _by_the_first(do: Callable[[], T], other: T) -> T:
    """Runs `do` in process 0 alone; returns `other` in the other processes."""
    from rudel.mesh import agreement as agree

    if not is_first():
        if failure := agree.first(None):
            raise error_named(failure[0])(failure[1])
        return other
    try:
        made = do()
    except RudelError as error:
        agree.first([type(error).__name__, str(error)])
        raise
    agree.first(None)
    return made


def _lost(error: Exception) -> ClusterError | None:
    """The error to raise where JAX lost its connection to another process."""
    if isinstance(error, ConnectionError) or not is_of_a_connection(error):
        return None
    return ClusterError(
        "Another process of this training was lost, and without it the step cannot be taken: start all of them again "
        f"with {option('resume', True)}, to continue from the newest checkpoint."
    )


def is_of_a_connection(error: Exception) -> bool:
    """Whether JAX lost its connection to other processes, and not the user's program its way.

    Some errors of JAX's runtime are plain ValueErrors, which begin with a status, as in `UNKNOWN: Gloo all-reduce`.
    """
    import jax

    words = str(error)
    if isinstance(error, jax.errors.JaxRuntimeError) or (isinstance(error, ValueError) and _STATUS.match(words)):
        return any(word in words for word in _OF_A_CONNECTION)
    return isinstance(error, ConnectionError)
