"""The choice of hosts that can train together: each of their devices needs an equal share of every batch."""

import math
from collections.abc import Mapping, Sequence


def chosen_hosts(
    there: Sequence[str],
    devices: Mapping[str, int],
    batch_size: int,
    axes: Mapping[str, int] | None,
) -> list[str]:
    """The largest number of hosts, from the first on, that have as many devices each, over which a batch divides.

    Args:
        there: names of the hosts.
        devices: how many each has, where that is known; while it is not known of any, all are taken, and the members
            say what does not fit.
        batch_size: examples a step, of all hosts together.
        axes: the shape of the mesh, where the user gave one.

    >>> chosen_hosts(["a", "b", "c"], {"a": 1, "b": 1, "c": 1, "d": 1}, 64, None)
    ['a', 'b']
    >>> chosen_hosts(["a", "b", "c"], {}, 64, None)
    ['a', 'b', 'c']
    """
    if not devices:
        return list(there)
    for count in range(len(there), 0, -1):
        taken = there[:count]
        each = {devices.get(name, 1) for name in taken}
        if len(each) == 1 and _fit(count * each.pop(), batch_size, axes):
            return list(taken)
    return []


def _fit(devices: int, batch_size: int, axes: Mapping[str, int] | None) -> bool:
    """Whether so many devices can take a step on such a batch together."""
    if axes:
        return devices == math.prod(axes.values()) and batch_size % axes.get("data", 1) == 0
    return batch_size % devices == 0
