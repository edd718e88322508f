"""Setting up hosts without a way to any package index, on the pretend Wi-Fi: how long, and how many bytes.

    sudo python benchmarks/hosts_setup.py [--nodes 4] [--cpu 0.4] [--rate 100] [--latency 1.5] [--minimal] [--json FILE]

The wheels are fetched before, so that no package index is measured. Bytes are those on the air, counted by the lab. The
second call is made as a user would, by starting Python anew.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rudel.cluster.foreground import wait_for
from rudel.cluster.setup import Outcome, set_up_hosts
from rudel.lab import Lab

_AGAIN = "from rudel.cli.main import run; run()"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--cpu", type=float, default=0.4, help="cores of a node")
    parser.add_argument("--rate", type=float, default=100.0, help="Mbit/s")
    parser.add_argument("--latency", type=float, default=1.5, help="ms")
    parser.add_argument("--minimal", action="store_true", help="only what a worker needs")
    parser.add_argument("--json", type=Path, help="where to write the numbers as well")
    options = parser.parse_args()
    numbers = measured(options)
    print(f"{options.nodes} empty nodes at {options.cpu:g} core, {options.rate:g} Mbit/s shared, without an index")
    print(f"set up          {numbers['seconds']:6.1f} s   {numbers['bytes'] / 1e6:7.1f} MB on the air")
    print(f"the second time {numbers['seconds_again']:6.1f} s   {numbers['bytes_again'] / 1e6:7.1f} MB on the air")
    if options.json:
        options.json.write_text(json.dumps({"options": vars(options) | {"json": None}, **numbers}, indent=2) + "\n")


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds and bytes of both calls."""
    with tempfile.TemporaryDirectory() as state:
        shape = {"cpu": options.cpu, "rate": options.rate, "latency": options.latency, "state": state}
        with Lab(nodes=1, prefix="fetch", subnet="10.92.1", **{**shape, "cpu": 1.0, "rate": 1000.0}) as lab:
            checked(wait_for(set_up_hosts(lab.hosts, lab.ssh_config, offline=True, minimal=options.minimal)))
        with Lab(nodes=options.nodes, prefix="setup", subnet="10.92.0", **shape) as lab:
            began = time.perf_counter()
            checked(wait_for(set_up_hosts(lab.hosts, lab.ssh_config, offline=True, minimal=options.minimal)))
            seconds, traffic = time.perf_counter() - began, lab.stats(reset=True)
            words = ["hosts", "setup", ",".join(lab.hosts), "--ssh-config", str(lab.ssh_config)]
            words += ["--minimal"] if options.minimal else []
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", _AGAIN, *words], check=True, capture_output=True)
            again, traffic_again = time.perf_counter() - began, lab.stats()
    return {
        "seconds": seconds,
        "bytes": sum(one.bytes for one in traffic.values()),
        "seconds_again": again,
        "bytes_again": sum(one.bytes for one in traffic_again.values()),
    }


def checked(outcomes: tuple[Outcome, ...]) -> None:
    """Ends the measurement where a host was not set up."""
    for outcome in outcomes:
        if outcome.problem:
            raise SystemExit(outcome.problem)


if __name__ == "__main__":
    main()
