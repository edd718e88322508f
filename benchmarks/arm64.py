"""One x86-64 and one 64-bit ARM computer, set up from this one and training together: `sudo python benchmarks/arm64.py`

Raspberry Pi OS is Debian for aarch64; the ARM node of the lab is that, its instructions emulated by QEMU. So this shows
that it works, not how fast: emulation is ten to twenty times slower than the real thing. Takes some 15 minutes, 5 of
them only the first time. Needs Linux, root, and `apt-get install debootstrap qemu-user-static openssh-server`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rudel.lab import Lab


def main() -> None:
    """Starts the lab, sets both nodes up, trains `digits` on them, and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(
            nodes=2, cpu=1.0, rate=1000, latency=1, arch=("x86_64", "arm64"), prefix="mixed", subnet="10.95.0",
            state=Path(folder, "lab"),
        )  # fmt: skip
        with lab:
            hosts = ",".join(lab.hosts)
            environment = os.environ | {"RUDEL_SSH_CONFIG": str(lab.ssh_config)}
            for command in (
                ["hosts", "setup", hosts, "--offline"],
                ["hosts", "check", hosts],
                ["train", "digits", "--on", hosts, "--epochs", str(given.epochs), "--run", f"{folder}/run", "--json"],
            ):
                _run(command, environment)
        rounds = Path(folder, "run", "rounds.jsonl").read_text().splitlines()
    last = json.loads([line for line in rounds if '"round"' in line][-1])
    for name, did in last["hosts"].items():
        print(f"{name}: {did['steps']} steps in {did['seconds']:.2f} s in the last of {last['round']} rounds")


def _run(arguments: Sequence[str], environment: dict[str, str]) -> None:
    print("$ rudel", *arguments, flush=True)
    began = time.perf_counter()
    done = subprocess.run([str(Path(sys.executable).with_name("rudel")), *arguments], env=environment, check=False)
    print(f"({time.perf_counter() - began:.0f} s)\n", flush=True)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
