"""`rudel`, `dask` or `python`, by a process with everything imported, where one with this environment is there.

It is started without site packages (`python -I -S`), as `client.py PROGRAM ARGUMENT...`, in a folder that a
`places.json` describes. What no zygote can do as well, the real program does.
"""

import contextlib
import json
import os
import signal
import socket
import sys

FREE = {
    *("PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES", "PATH", "NO_PROXY", "no_proxy", "PYTHONUNBUFFERED"),
    *("RUDEL_SSH_CONFIG", "TF_CONFIG", "__DASK_PARENT_PID"),
    *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "HDF5_PLUGIN_PATH", "ENABLE_RUNTIME_UPTIME_TELEMETRY"),
    *("ENVIRONMENT", "HOSTNAME", "TMPDIR", "HFI_NO_BACKTRACE", "IPATH_NO_BACKTRACE"),
    *("TF2_BEHAVIOR", "TF_FORCE_GPU_ALLOW_GROWTH", "TPU_SKIP_MDS_QUERY", "TPU_ML_PLATFORM", "TPU_ML_PLATFORM_VERSION"),
    "_RJEM_MALLOC_CONF",
}
"""Variables that nothing reads when it is imported, or that a zygote follows itself; those of jobs; those that packages
set when they are imported.
"""

FREE_BEGINNINGS = ("PYTEST_", "SLURM", "SRUN_", "OMPI_", "PMIX_", "PMI_", "PRTE_")
"""How the variables begin that tell processes that test, programs of a job, or of `mpirun`, who they are; nor are they
read so early.
"""

DEFAULTS = {
    **{"KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "1"},
    **{"PYTHONHASHSEED": "6640", "MALLOC_TRIM_THRESHOLD_": "65536"},
    **{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
}
"""Variables that are the same without being set, or that Dask sets in a process that has started a worker, for good."""

MODULES = (
    *("rudel.export.", "rudel.doctor.answering", "rudel.micro.interpreters", "rudel.tuning.trial_process"),
    "distributed.cli.dask_worker",
)
"""Modules that may be run by `-m`, as their names begin; others are services that go on without their parents, or, as
members of a mesh, are killed by who cleans up behind them at once: a program here ends a moment later than its client.
"""

RELAYED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(here: str, program: str, arguments: list[str]) -> None:
    with open(os.path.join(here, "places.json")) as file:  # noqa: PTH118, PTH123  # pathlib takes as long as the rest
        places = json.load(file)
    words = [places["programs"][program], *arguments]
    if program == "python":
        words = arguments
    found = [place["socket"] for place in places["zygotes"] if place["environment"] == counted(dict(os.environ))]
    if not found or not _possible(words):
        os.execv(places["programs"][program], [places["programs"][program], *arguments])
    sys.exit(_ask(found[0], words, os.path.join(here, "python")))  # noqa: PTH118


def counted(environment: dict[str, str]) -> dict[str, str]:
    """The variables by which an interpreter may begin in another way."""
    free = FREE | {"RUDEL_CACHE"} if "JAX_COMPILATION_CACHE_DIR" in environment else FREE  # its place follows from that
    return {
        name: value
        for name, value in environment.items()
        if name not in free and not name.startswith(FREE_BEGINNINGS) and DEFAULTS.get(name) != value
    }


def _possible(words: list[str]) -> bool:
    first, *rest = words[1:] if words[:1] == ["-P"] else [*words, ""]
    if first == "-m":
        return rest[0].startswith(MODULES)
    if first == "-c":
        return not rest[0].startswith("from multiprocessing")  # its processes are given files by their numbers
    return not first.startswith("-") and first != ""


def _ask(path: str, words: list[str], own: str) -> int:
    ignored = [number for number in RELAYED if signal.getsignal(number) == signal.SIG_IGN]
    held = signal.pthread_sigmask(signal.SIG_BLOCK, RELAYED)
    request = {"arguments": words, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
    text = json.dumps(request | {"ignored": ignored, "own": own}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"%d\n" % len(text)], [0, 1, 2])
        connection.sendall(text)
        answers = connection.makefile("r")
        pid = int(answers.readline())

        def relay(number: int, frame: object) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in set(RELAYED) - set(ignored):
            signal.signal(number, relay)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        code = int(answers.readline() or 70)
    if code >= 0:
        return code
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


if __name__ == "__main__":
    main(os.path.dirname(sys.argv[0]), sys.argv[1], sys.argv[2:])  # noqa: PTH120
