"""Settings of a lab, checked."""

import dataclasses
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.errors import LabError, option

STATES = Path("/var/lib/rudel-lab")
"""Default folder for labs' keys and the homes of their nodes."""

NATIVE, ARM64 = "native", "arm64"
DESKTOP = "desktop"
_DESKTOP_NUMBER = 254
_MOST_NODES = 99
_LEAST_CPU = 0.01


@dataclass(frozen=True)
class Node:
    """A small computer of a lab.

    Args:
        name: its host name.
        address: its IPv4 address.
        cpu: cores that it may use.
        arch: NATIVE (this machine's own, with its root file system) or ARM64.
    """

    name: str
    address: str
    cpu: float
    arch: str

    @property
    def ipv6(self) -> str:
        """Its IPv6 address, where this machine's kernel has IPv6."""
        return ipv6_beside(self.address)


@dataclass(frozen=True)
class Settings:
    """A lab; to be had from `settings`.

    Args:
        prefix: what the names of the nodes begin with; also the name of the lab.
        subnet: first three numbers of all addresses.
        state: folder of keys and homes.
        rate: Mbit/s of the air.
        latency: ms from the last bit sent to the frame received.
        nodes: the nodes.
    """

    prefix: str
    subnet: str
    state: Path
    rate: float
    latency: float
    nodes: tuple[Node, ...]

    @property
    def desktop(self) -> str:
        """This machine's address in the lab."""
        return f"{self.subnet}.{_DESKTOP_NUMBER}"

    @property
    def desktop_ipv6(self) -> str:
        """This machine's IPv6 address in the lab."""
        return ipv6_beside(self.desktop)

    @property
    def tap(self) -> str:
        """The name of this machine's network device in the lab."""
        return tap_name(self.prefix)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(node.name for node in self.nodes)

    @property
    def key(self) -> Path:
        """The private key that opens all nodes."""
        return self.state / "id_ed25519"

    @property
    def ssh_config(self) -> Path:
        """The file for `ssh -F`."""
        return self.state / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The nodes' host keys."""
        return self.state / "known_hosts"

    def folder(self, node: Node) -> Path:
        """Folder of what belongs to a node."""
        return self.state / node.name

    def mac(self, place: int) -> str:
        """The Ethernet address of a station: 0 is the desktop, 1 the first node.

        >>> settings(subnet="10.77.0").mac(3)
        '02:00:0a:4d:00:03'
        """
        return ":".join(f"{number:02x}" for number in (2, 0, *map(int, self.subnet.split(".")), place))

    def names_file(self) -> list[str]:
        """The lines of the lab in /etc/hosts."""
        nodes = [f"{node.address} {node.name}" for node in self.nodes]
        return [*nodes, f"{self.desktop} {self.prefix}-{DESKTOP} {DESKTOP}"]

    def document(self) -> dict[str, Any]:
        """The same as a JSON document; `from_document` is the way back."""
        return dataclasses.asdict(self) | {"state": str(self.state)}


def ipv6_beside(address: str) -> str:
    """The IPv6 address of a station with this IPv4 address: a unique local one (RFC 4193) that ends in the same digits.

    >>> ipv6_beside("10.77.0.12")
    'fd72:750a:4d00::12'
    """
    first, second, third, number = address.split(".")
    return f"fd72:75{int(first):02x}:{int(second):02x}{int(third):02x}::{number}"


def tap_name(lab: str) -> str:
    """The name of this machine's network device in a lab."""
    return f"lab-{lab}"


def from_document(document: dict[str, Any]) -> Settings:
    """Settings from their JSON document."""
    nodes = tuple(Node(**node) for node in document["nodes"])
    return Settings(**(document | {"state": Path(document["state"]), "nodes": nodes}))


def settings(
    nodes: int = 4,
    cpu: float | Sequence[float] = 0.4,
    rate: float = 100.0,
    latency: float = 1.5,
    prefix: str = "raspi",
    subnet: str = "10.77.0",
    state: str | Path | None = None,
    arch: str | Sequence[str] = NATIVE,
) -> Settings:
    """Checks the settings of a lab.

    Args:
        nodes: how many.
        cpu: cores that a node may use; one number for all, or one for each.
        rate: Mbit/s of the air.
        latency: ms from the last bit sent to the frame received.
        prefix: what the names of the nodes begin with.
        subnet: first three numbers of all addresses.
        state: folder of keys and homes; /var/lib/rudel-lab/PREFIX if None.
        arch: "native" or this machine's own, or "arm64"; one for all, or one for each.

    Returns:
        The settings.

    Raises:
        LabError: something cannot be so.
    """
    if not 1 <= nodes <= _MOST_NODES:
        raise LabError(f"A lab has 1 to {_MOST_NODES} nodes, not {nodes}: give another number to {option('nodes')}.")
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,8}[a-z])?", prefix):
        raise LabError(
            f"`{prefix}` cannot be what names of nodes begin with: "
            f"give {option('prefix')} at most 10 small letters, digits and hyphens, with a letter at both ends."
        )
    if not _is_subnet(subnet):
        raise LabError(
            f"`{subnet}` is not a subnet: give {option('subnet')} three numbers of 0 to 255, such as 10.77.0."
        )
    check_air(rate, latency)
    shares = _one_each("cpu", cpu, nodes)
    for share in shares:
        check_cpu(share)
    kinds = [_kind(name) for name in _one_each("arch", arch, nodes)]
    made = zip(range(1, nodes + 1), shares, kinds, strict=True)
    return Settings(
        prefix=prefix,
        subnet=subnet,
        state=Path(state).absolute() if state else STATES / prefix,
        rate=float(rate),
        latency=float(latency),
        nodes=tuple(Node(f"{prefix}{i}", f"{subnet}.{i}", float(share), kind) for i, share, kind in made),
    )


def check_cpu(share: float) -> None:
    """Refuses a share of the processor that a node cannot have.

    Args:
        share: cores.

    Raises:
        LabError: this machine has fewer, or it is none.
    """
    cores = os.cpu_count() or 1
    if not _LEAST_CPU <= share <= cores:
        raise LabError(f"A node cannot have {share:g} cores of this machine: give it from {_LEAST_CPU} to {cores}.")


def check_air(rate: float, latency: float) -> None:
    """Refuses an air that cannot be.

    Args:
        rate: Mbit/s.
        latency: ms.

    Raises:
        LabError: one of them cannot be so.
    """
    if not 0.01 <= rate <= 10_000:
        raise LabError(
            f"The radio channel cannot carry {rate:g} Mbit/s: give {option('rate')} a number from 0.01 to 10,000."
        )
    if not 0 <= latency <= 1000:
        raise LabError(f"The latency cannot be {latency:g} ms: give {option('latency')} a number from 0 to 1,000.")


def _is_subnet(text: str) -> bool:
    return re.fullmatch(r"\d{1,3}(\.\d{1,3}){2}", text) is not None and all(int(n) < 256 for n in text.split("."))


def _kind(arch: str) -> str:
    own = platform.machine()
    if arch in (NATIVE, own) or (arch, own) == (ARM64, "aarch64"):
        return NATIVE
    if arch in (ARM64, "aarch64"):
        return ARM64
    raise LabError(f"This machine has no nodes of `{arch}`: give {option('arch')} {own} or {ARM64}.")


def _one_each(name: str, given: Any, nodes: int) -> list[Any]:
    values = [given] * nodes if isinstance(given, int | float | str) else list(given)
    if len(values) == 1:
        values *= nodes
    if len(values) != nodes:
        raise LabError(
            f"{nodes} nodes cannot have {len(values)} values of {option(name)}: give one, or one for each node."
        )
    return values
