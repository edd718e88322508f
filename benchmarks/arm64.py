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

from rudel.lab import Lab, arm64


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
            look_at(lab)
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


def look_at(lab: Lab) -> None:
    """Makes sure that the second node is what it should be, for users and after a crash.

    Raises:
        SystemExit: it is not.
    """
    arm = lab.hosts[1]
    by_ssh = [
        "ssh",
        "-F",
        str(lab.ssh_config),
        arm,
        "uname -m; whoami; python3 -c 'import platform; print(platform.machine())'",
    ]
    output = subprocess.run(by_ssh, capture_output=True, text=True, check=True).stdout.split()
    lab.run(arm, "sh", "-c", "echo kept > /home/pi/note; echo lost > /etc/note", root=True)
    lab.crash(arm)
    kept, lost = (lab.run(arm, "cat", path) for path in ("/home/pi/note", "/etc/note"))
    seen = (output, kept.stdout, lost.returncode != 0, (arm64.ROOT / "etc/note").exists())
    if seen != (["aarch64", "pi", "aarch64"], "kept\n", True, False):
        sys.exit(f"{arm} is not what it should be: {seen}")
    print(
        f"{arm} is aarch64, for a user who comes by SSH too; a crash leaves its home and forgets the rest\n", flush=True
    )


def _run(arguments: Sequence[str], environment: dict[str, str]) -> None:
    print("$ rudel", *arguments, flush=True)
    began = time.perf_counter()
    done = subprocess.run([str(Path(sys.executable).with_name("rudel")), *arguments], env=environment, check=False)
    print(f"({time.perf_counter() - began:.0f} s)\n", flush=True)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
