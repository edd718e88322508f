"""`TF_CONFIG`: the variable in which SageMaker, Vertex AI and Kubeflow name the processes of a training.

It is a JSON document, `{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}`. A chief,
which older services call master, comes before the workers. Parameter servers and evaluators have no part in this
training: they are passed over in `cluster`, and refused as a `task`.
"""

import json
from typing import TYPE_CHECKING

from rudel.errors import OptionError
from rudel.mesh.hosts.processes import Processes

if TYPE_CHECKING:
    pass


_FIRST = ("chief", "master")
_WITHOUT_PART = {"ps": "a parameter server", "evaluator": "an evaluator"}
_EXAMPLE = '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'


def read_tf_config(text: str) -> Processes | None:
    """Reads the processes from TF_CONFIG; None where it names none.

    Raises:
        OptionError: it is malformed; names the field.

    >>> read_tf_config('{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1}}')
    Processes(number=1, count=2, coordinator='a:2222', source='TF_CONFIG', address='b', device=None)
    """
    if not text.strip():
        return None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _malformed("", f"not JSON ({error})") from error
    if not isinstance(config, dict):
        raise _malformed("", f"not a JSON object, but {text.strip()[:60]!r}")
    if not config:
        return None
    tasks = _tasks(config.get("cluster"))
    kind, index = _task(config.get("task"))
    if kind in _WITHOUT_PART:
        raise OptionError(
            f"TF_CONFIG says that this process is {_WITHOUT_PART[kind]} (`task.type` is {kind!r}), which the strategy "
            "mesh does not have: run this for the chief and the workers alone."
        )
    if kind not in tasks:
        raise _malformed("task.type", f"{kind!r}, and `cluster` has {', '.join(tasks) or 'nobody'}")
    if not 0 <= index < len(tasks[kind]):
        raise _malformed("task.index", f"{index}, and `cluster.{kind}` has {len(tasks[kind])}")
    everyone = [(name, place, address) for name, found in tasks.items() for place, address in enumerate(found)]
    number = next(n for n, (name, place, _) in enumerate(everyone) if (name, place) == (kind, index))
    addresses = [address for _, _, address in everyone]
    if twice := next((a for a in addresses if addresses.count(a) > 1), None):
        raise _malformed("cluster", f"the address {twice} twice")
    host = addresses[number].rpartition(":")[0].strip("[]")
    return Processes(number, len(everyone), addresses[0], "TF_CONFIG", host)


def _tasks(cluster: object) -> dict[str, list[str]]:
    """Addresses of those who train by the name of their kind, the chief before the workers."""
    if not isinstance(cluster, dict):
        raise _malformed("cluster", "missing" if cluster is None else f"{cluster!r}")
    found: dict[str, list[str]] = {}
    for kind in (*_FIRST, "worker"):
        addresses = cluster.get(kind, [])
        if not isinstance(addresses, list):
            raise _malformed(f"cluster.{kind}", f"{addresses!r}, and no list of host:port")
        for place, address in enumerate(addresses):
            if not is_host_and_port(address):
                raise _malformed(f"cluster.{kind}[{place}]", f"{address!r}, and not host:port")
        if addresses:
            found[kind] = addresses
    if sum(len(found.get(kind, [])) for kind in _FIRST) > 1:
        raise _malformed("cluster.chief", "more than one process")
    if not found:
        raise _malformed("cluster.worker", "missing, as is `cluster.chief`")
    return found


def _task(task: object) -> tuple[str, int]:
    if not isinstance(task, dict):
        raise _malformed("task", "missing" if task is None else f"{task!r}")
    kind, index = task.get("type"), task.get("index", 0)
    if not isinstance(kind, str):
        raise _malformed("task.type", "missing" if kind is None else f"{kind!r}")
    if isinstance(index, str) and index.isascii() and index.isdigit():
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool):
        raise _malformed("task.index", f"{index!r}, and no number from 0")
    return kind, index


def is_host_and_port(address: object) -> bool:
    """Whether this is a text host:port.

    >>> is_host_and_port("[fe80::1]:80"), is_host_and_port("http://host:80"), is_host_and_port("host:")
    (True, False, False)
    """
    if not isinstance(address, str) or any(letter.isspace() or letter == "/" for letter in address):
        return False
    host, _, port = address.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536


def _malformed(field: str, what: str) -> OptionError:
    where = f"TF_CONFIG is malformed: `{field}` is" if field else "TF_CONFIG is malformed: it is"
    return OptionError(f"{where} {what}; it should look like {_EXAMPLE}, or be unset to train on one computer.")
