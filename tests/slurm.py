"""A SLURM of one's own: a controller and one node, this computer, for as long as a test lasts."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from missing import skip_or_fail
from processes import LONG

_PROGRAMS = ("slurmctld", "slurmd", "sinfo", "srun", "sbatch", "scontrol")
_SETTINGS = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
KillWait=3
MinJobAge=4
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
NodeName=localhost Port={node} CPUs=4 RealMemory=16000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """Starts it, and ends it with all its jobs; yields what the environment of its users has to say.

    `sbatch --wait` looks every two seconds, as half of `MinJobAge` is no more; else it would look after 2, 10 and 42.
    Its files are in a folder with a short name: among them are sockets, and jobs would wait for ever if the name of one
    had more than 108 characters.
    """
    if os.geteuid() != 0 or not all(shutil.which(program) for program in _PROGRAMS):
        skip_or_fail("SLURM is needed, and root to start it: apt-get install slurm-wlm")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        for name in ("state", "node"):
            (folder / name).mkdir()
        controller, node = _free_ports()
        settings = folder / "slurm.conf"
        settings.write_text(_SETTINGS.format(folder=folder, controller=controller, node=node))
        environment = os.environ | {"SLURM_CONF": str(settings)}
        stack.callback(_kill_what_is_left, settings)
        for command in (["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", "localhost"]):
            stack.enter_context(_daemon(command, environment))
        _wait_until(["sinfo", "-h", "-o", "%T"], "idle", environment)
        try:
            yield {"SLURM_CONF": str(settings)}
        finally:
            subprocess.run(["scancel", "--full", "--user", "root"], env=environment, capture_output=True, check=False)
            _wait_until(["squeue", "-h"], "", environment)


@contextlib.contextmanager
def _daemon(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as daemon:
        try:
            yield
        finally:
            daemon.terminate()


def _wait_until(command: list[str], answer: str, environment: dict[str, str]) -> None:
    deadline = time.monotonic() + LONG
    while True:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == answer:
            return
        assert time.monotonic() < deadline, done
        time.sleep(0.05)


def _kill_what_is_left(settings: Path) -> None:
    """Kills processes of jobs that outlived them: a worker that is told to end may take longer than its job."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (process / "environ").read_bytes().split(b"\0")
            of_a_job = any(variable.startswith(b"SLURM_JOB_ID=") for variable in variables)
            if of_a_job and b"SLURM_CONF=" + os.fsencode(settings) in variables:
                os.kill(int(process.name), signal.SIGKILL)


def _free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(2)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
