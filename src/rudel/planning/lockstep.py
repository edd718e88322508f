"""One program over all hosts (`mesh`): every step is agreed on by all, so each is as long as the slowest host's.

Gradients are summed in a ring, as Gloo does it: 2 (N - 1) times, every host sends an Nth of them to its neighbour.
P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations* (2009).

The sum of every tensor, however small, is a ring of its own, and each of its turns takes a latency: a net of many small
layers waits more than it sends. So do the means of batch normalisation, which all hosts share. A ring is as fast as its
slowest link.

Limits: gradients are sent in one message, after all of them are known; nobody is lost.
"""

from collections.abc import Sequence

import numpy as np

from rudel.planning.forecast import Forecast, Speed, Work
from rudel.planning.links import Links

_TURN_SECONDS = 1e-3
"""Of a turn of a ring beside the latency of the link: what the hosts take for it. By the lab's figures for 2, 4 and 8
hosts at 5 to 1,000 Mbit/s (docs/evaluation.json).
"""

_MEASURES = 2
"""Numbers of a step that are summed beside the gradients: a loss and a metric."""

_UPDATE_RATE, _UPDATE_PASSES = 20e9, 7
"""Bytes a second that the optimizer's update goes through, and how often: it is done by every host, for all weights."""


def simulate(work: Work, hosts: Sequence[Speed], links: Links) -> Forecast | None:
    """Simulates a training whose every step is taken by all hosts together; None where a batch cannot be shared out, or
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
    sending = sent / min(links.rate, links.up.rate)
    turns = (count - 1) * (2 * (work.tensors + _MEASURES) + work.averaged / 2)
    exchange = max(sending, sent / count / links.slowest) + turns * (float(np.max(links.latency)) + _TURN_SECONDS)
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
