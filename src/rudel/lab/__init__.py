"""A pretend Wi-Fi cluster of small computers on one Linux machine; see docs/lab.md.

Guarantee: what a lab makes (network devices, namespaces, control groups, processes, lines in /etc/hosts) is gone when it
is stopped, and when whoever has made it was killed. Limits: Linux, as root.
"""

from rudel.lab.control import Traffic
from rudel.lab.lab import Lab

__all__ = ["Lab", "Traffic"]
