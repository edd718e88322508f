"""The processes of a training, read from the variables that clusters set: `TF_CONFIG`, Open MPI's, SLURM's.

All of this is pure: a mapping of variables goes in, a description comes out. Process 0 is at the coordinator's address,
which every process finds out without asking anybody, so all of them have to see the same.
`JAX_COORDINATOR_ADDRESS` is JAX's own variable for those clusters where it cannot be guessed.
"""

import re
from collections.abc import Mapping

from rudel.errors import OptionError
from rudel.mesh.hosts.processes import Processes
from rudel.mesh.hosts.tf_config import is_host_and_port, read_tf_config

_COORDINATOR = "JAX_COORDINATOR_ADDRESS"
_FIRST_PORT, _PORTS = 61_440, 4_096
"""Ports for coordinators, as JAX chooses them: a job's number says which, so that jobs on one host seldom meet."""


def processes_of(variables: Mapping[str, str]) -> Processes | None:
    """The processes that train together, or None where the variables name none, or this process alone.

    Raises:
        OptionError: a variable is malformed, or one that belongs to it is missing; names it.
    """
    found = read_tf_config(variables.get("TF_CONFIG", "")) or _of_open_mpi(variables) or _of_slurm(variables)
    return found if found and found.count > 1 else None


def coordinator_of(variables: Mapping[str, str]) -> str | None:
    """The address of process 0, where the user says it.

    Raises:
        OptionError: it is none.
    """
    address = variables.get(_COORDINATOR)
    if address is not None and not is_host_and_port(address):
        raise _malformed(_COORDINATOR, address, "HOST:PORT, or unset")
    return address


def first_host(nodes: str) -> str:
    """The first host of a list as SLURM writes it.

    >>> first_host("node[01-03,7]-ib,login")
    'node01-ib'
    """
    found = re.match(r"(?:[^,\[\]]|\[\d+[-,\d]*\])+(?=,|$)", nodes)
    if not found:
        raise _malformed("SLURM_STEP_NODELIST", nodes, "a list such as node[01-03,7]")
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", found[0])


def _of_slurm(variables: Mapping[str, str]) -> Processes | None:
    """From the variables of `srun`; a batch script without it, or `salloc`, is one process like any other."""
    if "SLURM_STEP_NODELIST" not in variables or "SLURM_PROCID" not in variables:
        return None
    number, job = _number(variables, "SLURM_PROCID"), _number(variables, "SLURM_JOB_ID")
    count = _number(variables, "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in variables else "SLURM_NTASKS")
    first = first_host(variables["SLURM_STEP_NODELIST"])
    hosts = _number(variables, "SLURM_STEP_NUM_NODES") if "SLURM_STEP_NUM_NODES" in variables else count
    _check_number("SLURM_PROCID", number, count)
    if count == 1:
        return None
    coordinator = f"{first}:{_FIRST_PORT + (job + 7 * _step(variables)) % _PORTS}"
    device = _number(variables, "SLURM_LOCALID") if count > hosts and "SLURM_LOCALID" in variables else None
    coordinator = coordinator_of(variables) or coordinator
    return Processes(number, count, coordinator, "SLURM", device=_own_device(device, variables))


def _step(variables: Mapping[str, str]) -> int:
    step = variables.get("SLURM_STEP_ID", "0")
    return int(step) if step.isdigit() else 0


def _of_open_mpi(variables: Mapping[str, str]) -> Processes | None:
    """From the variables of `mpirun`; process 0 is taken to be on the host where it was called."""
    if "OMPI_COMM_WORLD_RANK" not in variables:
        return None
    number, count = _number(variables, "OMPI_COMM_WORLD_RANK"), _number(variables, "OMPI_COMM_WORLD_SIZE")
    _check_number("OMPI_COMM_WORLD_RANK", number, count)
    if count == 1:
        return None
    shared = _number(variables, "OMPI_COMM_WORLD_LOCAL_SIZE") if "OMPI_COMM_WORLD_LOCAL_SIZE" in variables else 1
    device = _number(variables, "OMPI_COMM_WORLD_LOCAL_RANK") if shared > 1 else None
    coordinator = coordinator_of(variables) or _launcher(variables)
    return Processes(number, count, coordinator, "Open MPI", device=_own_device(device, variables))


def _launcher(variables: Mapping[str, str]) -> str:
    """The host of `mpirun`, and a port by the number of its job.

    Raises:
        OptionError: nothing says where that is.
    """
    if uri := variables.get("OMPI_MCA_orte_hnp_uri"):  # until Open MPI 4: 1531576320.0;tcp://10.0.0.1,10.1.0.1:34911
        found = re.fullmatch(r"(\d+)\.\d+;tcp(?:6://\[([^,\]]+)|://([^,:]+)).*", uri)
        if not found:
            raise _malformed("OMPI_MCA_orte_hnp_uri", uri, "NUMBER.0;tcp://ADDRESS:PORT")
        host = f"[{found[2]}]" if found[2] else found[3]
        return f"{host}:{_FIRST_PORT + int(found[1]) // 2**12 % _PORTS}"
    if found := re.fullmatch(r"prterun-(.+)-(\d+)@\d+", variables.get("PMIX_NAMESPACE", "")):  # since Open MPI 5
        return f"{found[1]}:{_FIRST_PORT + int(found[2]) % _PORTS}"
    raise OptionError(
        "Open MPI started this process, and nothing says where process 0 is: set "
        f"{_COORDINATOR}=HOST:PORT for all processes (mpirun -x {_COORDINATOR}=...), with a free port on its host."
    )


def _own_device(device: int | None, variables: Mapping[str, str]) -> int | None:
    """None where the cluster has given each process a GPU of its own, and hides the others."""
    return None if variables.get("CUDA_VISIBLE_DEVICES", ",").count(",") == 0 else device


def _number(variables: Mapping[str, str], name: str) -> int:
    value = variables.get(name)
    if value is None:
        raise OptionError(f"{name} is not set, and the variables beside it are: start all processes in the same way.")
    if not (value.isascii() and value.isdigit()):
        raise _malformed(name, value, "a number from 0")
    return int(value)


def _check_number(name: str, number: int, count: int) -> None:
    if number >= count:
        raise OptionError(f"{name} is {number}, and there are {count} processes: it must be below that.")


def _malformed(name: str, value: str, wanted: str) -> OptionError:
    return OptionError(f"{name} is {value!r}, and must be {wanted}.")
