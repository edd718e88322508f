"""The network device of a station: an Ethernet interface whose frames this program carries.

The device offers TCP segmentation offload, as real ones do: the kernel hands over a burst of segments as one long frame
with a `virtio_net_hdr` before it that says how to cut it, and takes such frames back. Carrying a burst costs the
computer what carrying one frame costs. How long a burst may get is a setting of the device, see `configure`.
"""

import errno
import fcntl
import ipaddress
import json
import os
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from rudel.errors import LabError

DEVICE = "wlan0"
"""The name of a node's device."""

_TUN = "/dev/net/tun"
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR, _IFF_TUN_EXCL = 0x0002, 0x1000, 0x4000, 0x8000
_CHECKSUMS, _TCP_4, _TCP_6 = 0x01, 0x02, 0x04


def check_free(subnet: str) -> None:
    """Refuses a subnet that this machine has a way to already.

    Args:
        subnet: the first three numbers of its addresses.

    Raises:
        LabError: it has.
    """
    done = subprocess.run(["ip", "-json", "-4", "route"], capture_output=True, check=True)
    wanted = ipaddress.IPv4Network(f"{subnet}.0/24")
    for route in json.loads(done.stdout or "[]"):
        known = ipaddress.IPv4Network("0.0.0.0/0" if route["dst"] == "default" else route["dst"])
        if known.subnet_of(wanted):
            raise LabError(
                f"This machine already has a route to {known}, by its device `{route.get('dev')}`: "
                "give the lab another subnet."
            )


def open_tap(name: str) -> int:
    """Makes a network device in the current network namespace; it is gone when its descriptor is closed.

    Args:
        name: of the device, at most 15 characters.

    Returns:
        A non-blocking descriptor. What is read from and written to it are Ethernet frames without checksums of their
        own, after a `virtio_net_hdr` of 10 bytes.

    Raises:
        LabError: there is a device of that name.
        OSError: the kernel refuses.
    """
    tap = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    try:
        kind = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR | _IFF_TUN_EXCL
        wanted = struct.pack("16sH22x", name.encode(), kind)
        fcntl.ioctl(tap, _TUNSETIFF, wanted)
        fcntl.ioctl(tap, _TUNSETOFFLOAD, _CHECKSUMS | _TCP_4 | _TCP_6)
    except OSError as error:
        os.close(tap)
        if error.errno == errno.EBUSY:
            raise LabError(f"There is a network device `{name}` already: give the lab another prefix.") from error
        raise
    return tap


def configure(name: str, mac: str, address: str, ipv6: str, burst: int) -> None:
    """Names, addresses and starts a device of the current network namespace, and its loopback device.

    Where the kernel has IPv6, the device looks for no routers and for no doubles of its addresses, so that a silent
    network stays silent.

    Args:
        name: of the device.
        mac: its Ethernet address.
        address: its IPv4 address with the length of the prefix, "10.77.0.1/24".
        ipv6: its IPv6 address with the length of the prefix; left out where the kernel has no IPv6.
        burst: how many segments a burst may have.

    Raises:
        LabError: the program `ip` refuses.
    """
    of_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{name}")
    if has_ipv6 := of_ipv6.exists():
        for setting in ("accept_ra", "router_solicitations", "accept_dad", "disable_ipv6"):
            (of_ipv6 / setting).write_text("0")
    run_ip(
        [
            "link set lo up",
            f"link set {name} address {mac}",
            f"address add {address} dev {name}",
            *([f"address add {ipv6} dev {name} nodad"] if has_ipv6 else []),
            *tuning(name, burst),
            f"link set {name} up",
        ]
    )


def tuning(name: str, burst: int) -> list[str]:
    """Commands of `ip` that set how long the bursts and the queue of a device are."""
    return [f"link set {name} gso_max_segs {burst}", f"link set {name} txqueuelen {max(128, 500 // burst)}"]


def run_ip(commands: Iterable[str], namespace: str | None = None) -> None:
    """Runs commands of the program `ip`.

    Args:
        commands: without the word `ip`.
        namespace: path of a network namespace; the current one if None.

    Raises:
        LabError: one of them was refused.
    """
    enter = [] if namespace is None else ["nsenter", f"--net={namespace}"]
    done = subprocess.run(
        [*enter, "ip", "-batch", "-"], input="\n".join(commands), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"The network of the lab cannot be built, as `ip` says: {done.stderr.splitlines()[0]}.")
