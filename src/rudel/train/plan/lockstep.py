"""One program over all hosts (`mesh`): every step is agreed on by all, so each is as long as the slowest host's.

Gradients are summed in a ring, as Gloo does it: 2 (N - 1) times, every host sends an Nth of them to its neighbour.
P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations* (2009).

On a medium that all share, the ring is slower than its bytes: a host cannot send a piece on before it has come, and
meanwhile nobody may have anything to send.

Limits: gradients are sent in one message, after all of them are known; nobody is lost.
"""

from collections.abc import Sequence

from rudel.train.plan.forecast import Forecast, Speed, Work
from rudel.train.plan.links import Links

_IDLE = 1.75
"""How much longer a ring takes than a shared medium does for its bytes: four hosts in the lab, at 100 Mbit/s
(`benchmarks/evaluate.py`) as at 300 (`benchmarks/mesh_hosts.py`).
"""

_UPDATE_RATE, _UPDATE_PASSES = 20e9, 7
"""Bytes a second that the optimizer's update goes through, and how often: it is done by every host, for all weights."""


def simulate(work: Work, hosts: Sequence[Speed], links: Links) -> Forecast | None:
    """How a training goes whose every step is taken by all hosts together; None where a batch cannot be shared out, or
    a host cannot hold all examples.

    Args:
        work: what is to be done.
        hosts: who does it.
        links: between them.
    """
    count = len(hosts)
    if count < 2 or work.batch_size % count or any(work.member > host.memory for host in hosts):
        return None
    steps = [_of_a_part(host.step, work, count) for host in hosts]
    slowest = max(steps)
    sent = 2.0 * (count - 1) * work.weights
    sending = sent / links.rate
    exchange = max(_IDLE * sending, sent / count / links.connection) + 2 * (count - 1) * links.latency
    whole = slowest + exchange
    computing = sum(steps) / count / whole
    return Forecast(
        "mesh",
        tuple(host.name for host in hosts),
        work.steps * whole,
        computing,
        0.0,
        1 - computing,
        work.steps * sent,
        work.steps,
        work.member,
        sending / whole,
        work.streamed,
    )


def _of_a_part(step: float, work: Work, count: int) -> float:
    """Seconds of a step with an Nth of the batch: the optimizer's update is as long as before."""
    update = min(step / 2, work.weights * _UPDATE_PASSES / _UPDATE_RATE)
    return update + (step - update) / count
