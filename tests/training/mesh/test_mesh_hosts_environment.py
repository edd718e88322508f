"""Who trains together is read from the variables that clusters set; what is malformed is named."""

import json
from typing import Any

import pytest

from rudel.errors import OptionError
from rudel.mesh.hosts.choose_hosts import chosen_hosts
from rudel.mesh.hosts.job_environment import first_host, processes_of
from rudel.mesh.hosts.join import check_alike
from rudel.mesh.hosts.processes import Processes

SLURM = {
    "SLURM_JOB_ID": "4100",
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "node[08-10],gpu7",
    "SLURM_STEP_NUM_NODES": "4",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}
WORKERS = {"worker": ["a:2222", "b:2222"]}


def tf_config(cluster: Any, kind: Any = "worker", index: Any = 0) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"TF_CONFIG": ""}, None),
        ({"TF_CONFIG": "{}"}, None),
        (tf_config({"worker": ["a:2222"]}), None),
        (tf_config(WORKERS, index=1), Processes(1, 2, "a:2222", "TF_CONFIG", "b")),
        (tf_config(WORKERS, index="1"), Processes(1, 2, "a:2222", "TF_CONFIG", "b")),
        # Vertex AI and Kubeflow: a chief before the workers, parameter servers and evaluators beside them
        (
            tf_config({**WORKERS, "chief": ["c:1"], "ps": ["p:1"], "evaluator": ["e:1"]}, index=1),
            Processes(2, 3, "c:1", "TF_CONFIG", "b"),
        ),
        (tf_config({**WORKERS, "chief": ["c:1"]}, "chief"), Processes(0, 3, "c:1", "TF_CONFIG", "c")),
        # SageMaker: a master, alone in its list, and no workers on one host
        (tf_config({"master": ["algo-1:2222"]}, "master"), None),
        (
            tf_config({"master": ["algo-1:2222"], "worker": ["algo-2:2222"]}),
            Processes(1, 2, "algo-1:2222", "TF_CONFIG", "algo-2"),
        ),
        (
            tf_config({"worker": ["[fe80::1]:80", "[fe80::2]:80"]}),
            Processes(0, 2, "[fe80::1]:80", "TF_CONFIG", "fe80::1"),
        ),
        (SLURM, Processes(2, 4, "node08:61444", "SLURM")),
        (SLURM | {"SLURM_STEP_ID": "1"}, Processes(2, 4, "node08:61451", "SLURM")),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "3"}, Processes(2, 3, "node08:61444", "SLURM")),
        (SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, None),
        ({name: SLURM[name] for name in SLURM if name != "SLURM_STEP_NODELIST"}, None),  # a batch script, no step
        (SLURM | {"SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}, Processes(2, 8, "node08:61444", "SLURM", device=1)),
        (
            SLURM | {"SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": "1"},
            Processes(2, 8, "node08:61444", "SLURM"),
        ),
        (SLURM | {"JAX_COORDINATOR_ADDRESS": "h:99"}, Processes(2, 4, "h:99", "SLURM")),
        (OPEN_MPI, Processes(3, 4, "10.96.0.1:62624", "Open MPI", device=1)),
        (
            OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": "1314521088.0;tcp6://[fe80::b9b,2620:10d::2]:43370"},
            Processes(3, 4, "[fe80::b9b]:62880", "Open MPI", device=1),
        ),
        (
            {**OPEN_MPI, "OMPI_MCA_orte_hnp_uri": "", "PMIX_NAMESPACE": "prterun-head-node-4242@1"},
            Processes(3, 4, "head-node:61586", "Open MPI", device=1),
        ),
        (SLURM | OPEN_MPI, Processes(3, 4, "10.96.0.1:62624", "Open MPI", device=1)),  # mpirun inside of a SLURM job
        (tf_config(WORKERS) | SLURM, Processes(0, 2, "a:2222", "TF_CONFIG", "a")),
    ],
)
def test_environment_says_who_trains_together(variables: dict[str, str], expected: Processes | None) -> None:
    assert processes_of(variables) == expected


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"TF_CONFIG": "{'cluster': 1}"}, "not JSON"),
        ({"TF_CONFIG": "[1]"}, "not a JSON object"),
        ({"TF_CONFIG": json.dumps({"task": {"type": "worker", "index": 0}})}, "`cluster` is missing"),
        ({"TF_CONFIG": json.dumps({"cluster": WORKERS})}, "`task` is missing"),
        (tf_config({}), "`cluster.worker` is missing"),
        (tf_config({"worker": "a:1"}), "`cluster.worker` is 'a:1'"),
        (tf_config({"worker": ["a:1", "b"]}), r"`cluster.worker\[1\]` is 'b', and not host:port"),
        (tf_config({"worker": ["a:1", "b:99999"]}), r"`cluster.worker\[1\]`"),
        (tf_config({"worker": ["a:1", 7]}), r"`cluster.worker\[1\]` is 7"),
        (tf_config({"worker": ["a:1", "a:1"]}), "`cluster` is the address a:1 twice"),
        (tf_config({**WORKERS, "chief": ["c:1", "d:1"]}), "`cluster.chief` is more than one"),
        (tf_config(WORKERS, None), "`task.type` is missing"),
        (tf_config(WORKERS, "chief"), "`task.type` is 'chief', and `cluster` has worker"),
        (tf_config(WORKERS, index=2), "`task.index` is 2, and `cluster.worker` has 2"),
        (tf_config(WORKERS, index="x"), "`task.index` is 'x'"),
        (tf_config(WORKERS, index=True), "`task.index` is True"),
        (tf_config(WORKERS | {"ps": ["p:1"]}, "ps"), "a parameter server"),
        (tf_config(WORKERS, "evaluator"), "an evaluator"),
        (SLURM | {"SLURM_PROCID": "4"}, "SLURM_PROCID is 4, and there are 4 processes"),
        (SLURM | {"SLURM_PROCID": "one"}, "SLURM_PROCID is 'one'"),
        (SLURM | {"SLURM_STEP_NODELIST": "node[3-"}, r"SLURM_STEP_NODELIST is 'node\[3-'"),
        (SLURM | {"SLURM_STEP_NODELIST": ""}, "SLURM_STEP_NODELIST is ''"),
        (SLURM | {"SLURM_STEP_NODELIST": "node[x]"}, "SLURM_STEP_NODELIST"),
        (SLURM | {"SLURM_STEP_NUM_NODES": "few"}, "SLURM_STEP_NUM_NODES is 'few'"),
        ({name: SLURM[name] for name in SLURM if name != "SLURM_JOB_ID"}, "SLURM_JOB_ID is not set"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "4"}, "OMPI_COMM_WORLD_RANK is 4"),
        (OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": "nonsense"}, "OMPI_MCA_orte_hnp_uri is 'nonsense'"),
        (OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": ""}, "set JAX_COORDINATOR_ADDRESS=HOST:PORT"),
        (OPEN_MPI | {"JAX_COORDINATOR_ADDRESS": ""}, "JAX_COORDINATOR_ADDRESS is '', and must be HOST:PORT"),
        (SLURM | {"JAX_COORDINATOR_ADDRESS": ""}, "JAX_COORDINATOR_ADDRESS is '', and must be HOST:PORT"),
        (SLURM | {"JAX_COORDINATOR_ADDRESS": "head"}, "JAX_COORDINATOR_ADDRESS is 'head', and must be HOST:PORT"),
        (SLURM | {"JAX_COORDINATOR_ADDRESS": "http://head:99"}, "JAX_COORDINATOR_ADDRESS is 'http://head:99'"),
    ],
)
def test_malformed_variable_is_named(variables: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        processes_of(variables)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b[1-3,07]", "a"), ("b[07,1-3],a", "b07"), ("r[1-2]n[09-10]-ib,z", "r1n09-ib"), ("x-1,y", "x-1")],
)
def test_the_first_host_of_a_list_of_slurm(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


@pytest.mark.parametrize(
    ("there", "batch_size", "axes", "expected"),
    [
        ("abcd", 64, None, "abcd"),
        ("ae", 63, None, "a"),  # a mesh has as many devices on each host
        ("abc", 64, None, "ab"),
        ("abc", 63, None, "abc"),
        ("abc", 64, {"data": 4}, ""),
        ("abcd", 64, {"data": 2, "model": 2}, "abcd"),
        ("e", 64, None, "e"),
        ("ae", 64, None, "a"),
        ("aef", 64, None, "a"),
        ("", 64, None, ""),
    ],
)
def test_as_many_hosts_train_as_a_batch_divides_over(
    there: str, batch_size: int, axes: dict[str, int] | None, expected: str
) -> None:
    devices = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 2, "f": 2}
    assert "".join(chosen_hosts(list(there), devices, batch_size, axes)) == expected


def test_hosts_with_other_numbers_of_devices_are_refused() -> None:
    check_alike([0, 1, 1, 0])
    with pytest.raises(OptionError, match=r"\(process 0 has 1, process 1 has 3\): give each as many"):
        check_alike([1, 1, 0, 1])
