"""How many of the hosts that are there can train together: every one of their devices needs as much of each batch.

For batches in parts, one device alone is computed as two halves, so a host that is left alone makes two devices.
"""

import math
from collections.abc import Mapping, Sequence


def chosen_hosts(
    there: Sequence[str],
    devices: Mapping[str, int],
    batch_size: int,
    axes: Mapping[str, int] | None,
    parts: int | None = None,
) -> list[str]:
    """The largest number of hosts, from the first on, that have as many devices each, over which a batch divides.

    Args:
        there: names of the hosts.
        devices: how many each has, where that is known; while it is not known of any, all are taken, and the members
            say what does not fit.
        batch_size: examples a step, of all hosts together.
        axes: the shape of the mesh, where the user gave one.
        parts: that every batch is computed in, if it is: each device has as many of them, two at least.

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
        if len(each) == 1 and _fit(count * each.pop(), batch_size, axes, parts):
            return list(taken)
    return []


def devices_each(hosts: int, asked: int | None, known: Sequence[int], parts: int | None) -> int | None:
    """How many virtual devices each host is to make; None for as many as it has.

    Args:
        hosts: how many train.
        asked: for how many each, or None.
        known: how many they have, as far as that is known.
        parts: that every batch is computed in, or None.

    >>> devices_each(2, None, [1, 1], parts=16), devices_each(1, None, [1], parts=16)
    (None, 2)
    """
    alone = hosts == 1 and all(count == 1 for count in known)
    return 2 if parts and alone and asked in (None, 1) else asked


def _fit(devices: int, batch_size: int, axes: Mapping[str, int] | None, parts: int | None) -> bool:
    """Whether so many devices can take a step on such a batch together."""
    if axes:
        return devices == math.prod(axes.values()) and batch_size % axes.get("data", 1) == 0
    if parts:
        return parts % (2 * max(2, devices)) == 0 and batch_size % parts == 0
    return batch_size % devices == 0
