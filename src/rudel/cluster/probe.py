"""Facts about a host: its processor, system and software, from one small shell script on standard input.

The script is POSIX `sh` and starts the Pythons that it finds, so that a host with an old one, or with none, answers as
well. Each answer is a line `rudel:key=value`; whatever else a shell prints when it starts is skipped.
"""

import json
import shlex
from dataclasses import dataclass, field
from typing import Any

import asyncssh

from rudel.cluster import ssh
from rudel.cluster.hosts import COMPUTER, REMOTE_FOLDER, REMOTE_PYTHON, Host
from rudel.errors import HostError

RECORD = f"{REMOTE_FOLDER}/env/rudel.json"
"""A record of the packages in the environment of a host, written last."""

UNFINISHED = f"{REMOTE_FOLDER}/unfinished"
"""There while something is being installed, and after that was broken off."""

WORKER_MODULES = ("numpy", "rudel.cluster.worker", "rudel.cluster.quiet", "rudel.replicas.replica_service")
"""Modules that a worker imports before it is ready. Packages compiled against NumPy do not say that it is missing."""

_SECONDS = 600.0
"""Time for the answer: the first import after a set-up compiles every module, which takes a small computer minutes."""

_ABOUT_PYTHON = """
import platform, struct, sys
try:
    import ssl, venv, zipfile
    whole = "whole"
except ImportError:
    whole = "parts"
print("rudel:%s=%s" % (sys.argv[1], "|".join([
    sys.executable or "", ".".join(str(n) for n in sys.version_info[:3]), str(8 * struct.calcsize("P")),
    platform.python_implementation() + getattr(sys, "abiflags", ""), whole])))
"""

_INSTALLED = """
import csv, importlib, os, sys
def look(folder, name):
    record = os.path.join(folder, name, "RECORD")
    if not os.path.isfile(record):
        print("rudel:unfinished=yes")
        return
    try:
        with open(record, newline="") as lines:
            whole = all(not size or os.path.getsize(os.path.join(folder, file)) == int(size)
                        for file, _, size in csv.reader(lines))
    except (OSError, ValueError):
        whole = False
    if not whole:
        print("rudel:damaged=" + name[:-10])
found = set()
for folder in sys.path:
    if folder and os.path.isdir(folder):
        for name in os.listdir(folder):
            if name.endswith(".dist-info"):
                print("rudel:installed=" + name[:-10])
                found.add(name.partition("-")[0])
                if sys.argv[1] == "ours":
                    look(folder, name)
if "rudel" in found:
    sys.stdout.flush()
    try:
        for name in sys.argv[2:]:
            importlib.import_module(name)
    except BaseException as error:
        print("rudel:trouble=" + " ".join((str(error) or type(error).__name__).split()))
    else:
        print("rudel:tried=yes")
"""


def _script() -> str:
    return f"""
LC_ALL=C; export LC_ALL
say() {{ printf 'rudel:%s=%s\\n' "$1" "$2"; }}
echo
say system "$(uname -s)"
say machine "$(uname -m)"
say elf "$(od -An -tx1 -j4 -N1 /bin/sh 2>/dev/null)"
say libc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
say name "$(. /etc/os-release 2>/dev/null; printf %s "$PRETTY_NAME")"
say cores "$(nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
say memory "$(grep MemTotal /proc/meminfo 2>/dev/null)"
say disk "$(df -Pk . 2>/dev/null | {{ read -r _; read -r _ _ _ free _; printf %s "$free"; }})"
grep -q -w avx /proc/cpuinfo 2>/dev/null && say avx yes
say computer "$({COMPUTER} 2>/dev/null)"
say record "$(cat {RECORD} 2>/dev/null)"
[ -e {UNFINISHED} ] && say unfinished yes
about() {{ "$1" -c {shlex.quote(_ABOUT_PYTHON)} "$2" 2>/dev/null </dev/null; }}
seen=
for name in python3.14 python3.13 python3.12 python3.11 python3 python /usr/local/bin/python3 \
    "$HOME"/.local/bin/python3.1? "$HOME"/.pyenv/versions/*/bin/python3 "$HOME"/.local/share/uv/python/*/bin/python3
do
    path=$(command -v "$name" 2>/dev/null) || continue
    file=$(readlink -f "$path" 2>/dev/null || printf %s "$path")
    case "|$seen|" in *"|$file|"*) continue ;; esac
    seen="$seen|$file"
    about "$path" python
done
[ -f "$1" ] && ! [ -x "$1" ] && say barred yes
if [ -n "$1" ] && command -v "$1" >/dev/null 2>&1; then
    about "$1" environment
    ours=theirs; [ "$1" = {REMOTE_PYTHON} ] && ours=ours
    "$1" -c {shlex.quote(_INSTALLED)} $ours {" ".join(WORKER_MODULES)} 2>/dev/null </dev/null
fi
say end yes
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python on a host.

    Args:
        path: of the interpreter.
        version: three numbers.
        bits: 32 or 64.
        kind: such as `CPython`; with a `t` at its end where it has no global lock.
        whole: whether the parts of the standard library are there that an environment needs.
    """

    path: str
    version: tuple[int, ...]
    bits: int
    kind: str
    whole: bool

    @property
    def minor(self) -> str:
        """Such as `3.11`."""
        return ".".join(str(number) for number in self.version[:2])


@dataclass(frozen=True)
class Facts:
    """Facts that a host reports about itself.

    Args:
        system: `Linux`, `Darwin` and so on.
        machine: of its kernel, such as `aarch64`.
        bits: of its programs, 32 or 64; None where it cannot say. A 64-bit kernel can carry 32-bit programs.
        name: of the system, as people say it.
        libc: version of glibc; None where there is none.
        cores: that may be used.
        memory: in bytes.
        disk: free bytes in the home folder.
        avx: whether an x86 processor has AVX.
        pythons: interpreters that were found.
        environment: the interpreter that workers are started with, if it is there.
        computer: the same for all names of one computer, and for no other; empty where it cannot say.
        installed: packages in that environment, by their normalised names, with their versions.
        damaged: packages of Rudel's own environment of which files are missing, or not as large as they were.
        trouble: why a worker could not import what it needs; empty where it could, or where there is no Rudel.
        record: what the last set-up wrote down; empty where none came to its end.
        unfinished: whether a set-up was broken off while it installed, or a package has lost the list of its files.
        barred: whether the interpreter that workers are started with is there, and may not be executed.
    """

    system: str
    machine: str
    bits: int | None
    name: str
    libc: tuple[int, int] | None
    cores: int
    memory: int
    disk: int
    avx: bool
    pythons: tuple[Interpreter, ...]
    environment: Interpreter | None
    computer: str = ""
    installed: dict[str, str] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    trouble: str = ""
    record: dict[str, Any] = field(default_factory=dict)
    unfinished: bool = False
    barred: bool = False


async def probe(connection: asyncssh.SSHClientConnection, host: Host) -> Facts:
    """Asks a host what it is.

    Raises:
        HostError: it did not answer, or has no shell.
    """
    python = (host.python or REMOTE_PYTHON).removeprefix("~/")
    done = await ssh.run(connection, f"sh -s -- {shlex.quote(python)}", input=_script().encode(), timeout=_SECONDS)
    text = done.stdout.decode(errors="replace")
    if "rudel:end=yes" not in text:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0] or f"exit status {done.exit_status}"
        raise HostError(f"`{host}` has no usable shell ({said}): does `ssh {host} sh` work?")
    return parse(text)


def parse(text: str) -> Facts:
    """Facts from the answer of the script."""
    answers: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, value = line.removeprefix("rudel:").partition("=")
        if line.startswith("rudel:") and equals:
            answers.setdefault(key, []).append(value.strip())

    def first(key: str) -> str:
        return answers.get(key, [""])[0]

    found = [_name_and_version(value) for value in answers.get("installed", [])]
    installed = dict(reversed(found))  # of several versions of a package, Python imports the first
    trouble = "" if "rudel" not in installed or first("tried") else first("trouble") or "Python crashed"
    environment = [_interpreter(value) for value in answers.get("environment", [])]
    return Facts(
        system=first("system"),
        machine=first("machine"),
        bits={"01": 32, "02": 64}.get(first("elf")),
        name=first("name"),
        libc=_libc(first("libc")),
        cores=_number(first("cores")),
        memory=1024 * _number(first("memory").removeprefix("MemTotal:").removesuffix("kB")),
        disk=1024 * _number(first("disk")),
        avx=first("avx") == "yes",
        pythons=tuple(_interpreter(value) for value in answers.get("python", [])),
        environment=environment[0] if environment else None,
        computer=first("computer"),
        installed=installed,
        damaged=tuple(_name_and_version(value)[0] for value in answers.get("damaged", [])),
        trouble=trouble,
        record=_record(first("record")),
        unfinished=first("unfinished") == "yes",
        barred=first("barred") == "yes",
    )


def normalised(name: str) -> str:
    """The name of a package as it is compared: lower case, with single hyphens."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def _interpreter(value: str) -> Interpreter:
    path, version, bits, kind, whole = value.split("|")
    return Interpreter(path, tuple(int(n) for n in version.split(".")), int(bits), kind, whole == "whole")


def _name_and_version(stem: str) -> tuple[str, str]:
    name, _, version = stem.partition("-")
    return normalised(name), version


def _libc(text: str) -> tuple[int, int] | None:
    kind, _, version = text.partition(" ")
    numbers = version.split(".")
    return (int(numbers[0]), int(numbers[1])) if kind == "glibc" and len(numbers) > 1 else None


def _number(text: str) -> int:
    return int(text.strip()) if text.strip().isdigit() else 0


def _record(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
