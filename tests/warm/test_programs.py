"""Programs that begin with modules imported do what the interpreter itself does."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import LONG
from warm.client import counted
from warm.programs import forking, warm_programs


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("warm")
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    with warm_programs(folder, {("fractions",): environment}):
        yield environment


@pytest.fixture
def shell(environment: dict[str, str], tmp_path: Path) -> Callable[..., Any]:
    """Runs a line of the shell."""

    def run(line: str, **how: Any) -> subprocess.CompletedProcess[str]:
        how = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True} | how
        return subprocess.run(["bash", "-c", line], check=False, **how)

    return run


WARM = "import sys; print('fractions' in sys.modules)"


def test_modules_are_there_only_for_the_same_environment(shell: Callable[..., Any]) -> None:
    assert shell(f'python -c "{WARM}"').stdout == "True\n"
    assert shell(f'python -P -c "{WARM}"').stdout == "True\n"
    assert shell(f'PYTHONHASHSEED=3 python -c "{WARM}"').stdout == "False\n"
    assert shell(f'python -I -c "{WARM}"').stdout == "False\n"
    assert shell("python --version").stdout.startswith("Python 3")
    assert shell("rudel --version").stdout.startswith("rudel ")


def test_no_package_that_tests_import_keeps_programs_cold(zygotes: list[dict[str, Any]]) -> None:
    importlib.import_module("polars")  # which sets a variable, as others may that this process has imported
    changed = counted(dict(os.environ)).items() ^ zygotes[0]["environment"].items()
    assert not changed


def test_it_has_its_own_arguments_folder_files_and_environment(shell: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text("import sys; print(__name__, __file__, sys.argv, sys.path[0])")
    assert shell("python shown.py a 'b c'").stdout == f"__main__ shown.py ['shown.py', 'a', 'b c'] {tmp_path}\n"
    code = "import os, sys; print(input(), os.getcwd(), os.environ['COLUMNS'], sys.argv); print('bad', file=sys.stderr)"
    done = shell(f'echo said | COLUMNS=9 python -c "{code}" x')
    assert (done.stdout, done.stderr) == (f"said {tmp_path} 9 ['-c', 'x']\n", "bad\n")
    assert shell("python -c 'import sys; print(sys.executable)' | sed 's,.*/,,'").stdout == "python\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_it_prints_waits_as_its_own_environment_says(
    shell: Callable[..., Any], environment: dict[str, str], unbuffered: str
) -> None:
    code = "import os, sys; print('bad', file=sys.stderr); print(1); os._exit(0)"
    own = environment | {"PYTHONUNBUFFERED": unbuffered}
    warm, cold = (shell(f'{program} -c "{code}"', env=own) for program in ("python", sys.executable))
    assert (warm.stdout, warm.stderr) == (cold.stdout, cold.stderr) == ("1\n" if unbuffered else "", "bad\n")
    assert shell(f'PATH="$PATH:/nowhere" python -c "{WARM}"', env=own).stdout == "True\n"


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import atexit, os; atexit.register(print, 'end'); os.kill(os.getpid(), 9)", 137, ""),
        ("import atexit; atexit.register(print, 'end')", 0, ""),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
    ],
)
def test_it_ends_as_the_interpreter_does(shell: Callable[..., Any], code: str, status: int, error: str) -> None:
    done, cold = (shell(f'{program} -c "{code}"; exit $?') for program in ("python", sys.executable))
    assert done.returncode == cold.returncode == status
    assert done.stdout == cold.stdout
    assert done.stderr.endswith(error)


def test_signals_reach_it(shell: Callable[..., Any], tmp_path: Path) -> None:
    going = 'python -c \'import time; open("there", "w"); time.sleep(600)\' & '
    until = "until [ -e there ]; do sleep 0.01; done; "
    assert shell(f"{going}{until}kill $!; wait $!; echo $?").stdout == "143\n"
    (tmp_path / "there").unlink()
    ignored = "python -c 'import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)' & wait"
    assert shell(ignored).stdout == "True\n"


def test_when_it_is_killed_it_is_gone_before_anything_else_begins(shell: Callable[..., Any]) -> None:
    code = "import os, time; open('pid', 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"
    going = f'python -c "{code}" & until [ -s pid ]; do sleep 0.01; done; '
    look = 'python -c \'import os; print(os.path.exists("/proc/" + open("pid").read().strip()))\''
    done = shell(f"{going}kill -9 $!; wait $! 2>/dev/null; echo $?; {look}")
    assert done.stdout == "137\nFalse\n"


def test_a_forked_program_takes_every_signal_and_says_how_it_ended(tmp_path: Path) -> None:
    def until(file: Path, text: str) -> None:
        deadline = time.monotonic() + LONG
        while not (file.exists() and text in file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    code = (
        "import sys, time; print('fractions' in sys.modules, *sys.argv[1:], flush=True); time.sleep(float(sys.argv[1]))"
    )
    with forking(("fractions",), os.environ) as fork, (tmp_path / "log").open("wb") as log:
        brief, long = (fork(code, [seconds], os.environ, log.fileno()) for seconds in ("0", "600"))
        assert (brief.wait(), brief.poll()) == (0, 0)
        until(tmp_path / "log", "True 600\n")
        long.send_signal(signal.SIGSTOP)
        until(Path(f"/proc/{long.pid}/status"), "\nState:\tT")
        assert long.poll() is None
        long.send_signal(signal.SIGKILL)
        assert (long.wait(), long.poll()) == (-signal.SIGKILL, -signal.SIGKILL)
