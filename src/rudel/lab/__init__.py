"""A pretend Wi-Fi cluster of small computers on one Linux machine; see docs/lab.md.

Guarantee: what a lab makes (network devices, namespaces, control groups, processes, mounts, lines in /etc/hosts) is
gone when it is stopped, and when whoever has made it is killed; only its state folder is kept. If the lab's own keeper
is killed, control groups and lines stay until the next `up` or `down`. Limits: Linux, as root.
"""

from rudel.lab.control import Traffic
from rudel.lab.lab import Lab

__all__ = ["Lab", "Traffic"]
