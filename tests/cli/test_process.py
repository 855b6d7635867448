"""The command as a process: start-up, pipes, signals, a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "rematc")


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return {**inherited, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", **more}


def run(*args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *args]
    return subprocess.run(command, env=environment(), cwd=cwd, capture_output=True, text=True, check=False)


def run_to(stdout: IO[str], *args: str) -> subprocess.CompletedProcess[str]:
    """Run it on an example, its standard output going there."""
    command = [*COMMAND, "examples/sin_chain.py", *args]
    return subprocess.run(
        command, env=environment(), cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.mark.parametrize("args", [["--help"], ["--completion", "bash"], ["no_such_model.py"]])
def test_start_up_imports_neither_jax_nor_numpy(args: list[str]) -> None:
    code = (
        "import sys\n"
        "from rematc.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('jax', 'jaxlib', 'numpy', 'scipy', 'rich') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, *args]
    ran = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_module_runs_the_command() -> None:
    ran = run("examples/sin_chain.py", "-q", "--emit", "ir")
    assert ran.returncode == 0
    assert ran.stdout.startswith("graph @loss(") and ran.stderr == ""


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="names of open files")
def test_standard_output_is_printed_to_by_its_path(tmp_path: Path) -> None:
    """Into a pipe, and into a file, which is not replaced behind the shell's back."""
    piped = run("examples/sin_chain.py", "-q", "--emit", "ir", "-o", "/dev/stdout")
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout.startswith("graph @loss(")
    with (tmp_path / "out").open("w") as stream:
        run_to(stream, "-q", "--emit", "ir", "-o", "/dev/stdout")
    assert (tmp_path / "out").read_text() == piped.stdout


@pytest.mark.parametrize("args", [["-q", "--emit", "stablehlo"], ["-q"], ["-q", "--json"]])
def test_reader_that_is_gone_is_no_error(args: list[str]) -> None:
    with subprocess.Popen(
        [*COMMAND, "examples/sin_chain.py", *args],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's full device")
@pytest.mark.parametrize("args", [["-q", "--emit", "ir"], ["-q"], ["-q", "--json"]])
def test_a_full_disk_under_standard_output_is_named(args: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ran = run_to(full, *args)
    assert ran.returncode == 1
    assert ran.stderr == "remat-compile: error: cannot write to standard output: the disk is full\n"


def test_standard_output_that_is_closed_is_named() -> None:
    shell = ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "examples/sin_chain.py", "-q"]
    ran = subprocess.run(shell, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr == "remat-compile: error: standard output is closed; name a file with -o\n"


def test_standard_error_that_is_closed_or_full_changes_nothing_else() -> None:
    for redirection in ("2>&-", "2>/dev/full"):
        shell = ["sh", "-c", f'"$@" {redirection}', "sh", *COMMAND, "examples/sin_chain.py", "--arg", "f32[3]"]
        ran = subprocess.run(shell, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounts a file system, as root")
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", tmp_path], check=False)
    if mounted.returncode:
        pytest.skip("no permission to mount")
    try:
        (tmp_path / "out.mlir").write_text("before")
        ran = run("examples/transformer.py", "-q", "--emit", "stablehlo", "-o", str(tmp_path / "out.mlir"))
        assert ran.returncode == 1
        assert ran.stderr == f"remat-compile: error: cannot write {tmp_path}/out.mlir: the disk is full\n"
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"out.mlir": "before"}
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that not even root writes to")
def test_a_folder_that_cannot_be_written_is_refused() -> None:
    ran = run("examples/sin_chain.py", "-q", "-o", "/proc/self/out.mlir")
    assert ran.returncode == 1
    assert ran.stderr.startswith("remat-compile: error: cannot write /proc/self/out.mlir: ")


SLEEPS_IN_PYTHON = """
import sys, time
import numpy as np

def loss(x):
    print("tracing", file=sys.stderr, flush=True)
    for _ in range(600):  # in pieces: a signal that comes just before a sleep begins does not wake it
        time.sleep(0.1)
    return np.sum(x)
"""


def test_ctrl_c_while_tracing_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SLEEPS_IN_PYTHON)
    interrupted_after(tmp_path, "tracing\n")


def interrupted_after(folder: Path, line: str) -> None:
    """Send Ctrl-C once the command has printed this line: it ends at once, and no file is there that was not."""
    with subprocess.Popen(
        [*COMMAND, "model.py", "-q", "--arg", "f32[3]", "-o", "out.mlir"],
        env=environment(),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        assert process.stderr.readline() == line
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, errors = process.communicate(timeout=30)
    assert time.monotonic() - start < 20, "not after the minute that the call takes"
    assert (process.returncode, out) == (130, "")
    assert errors.splitlines()[-1] == "remat-compile: interrupted"
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["model.py"]


def test_model_comes_through_a_pipe() -> None:
    source = "import numpy as np\ndef loss(x): return np.sum(x)\n"
    command = [*COMMAND, "/dev/stdin", "--arg", "f32[3]", "--emit", "ir"]
    ran = subprocess.run(
        command, env=environment(), cwd=ROOT, input=source, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert 'loc("loss"("/dev/stdin":2:' in ran.stdout


SLEEPS_IN_C = """
import ctypes, sys, time
import numpy as np
from rematc.lowering import runtime
from rematc.compiler.driver import lowered

# One call that Python cannot interrupt, as XLA's compiler is.
def compile_program(*args, **kwargs):
    print("compiling", file=sys.stderr, flush=True)
    ctypes.CDLL(None).sleep(60)

lowered.compile_program = lowered.compile_function = compile_program

def loss(x):
    return np.sum(x)
"""


def test_ctrl_c_while_xla_compiles_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SLEEPS_IN_C)
    interrupted_after(tmp_path, "compiling\n")


# -- on a terminal ---------------------------------------------------------------------------------------------------


def run_on_terminal(*args: str, **more: str) -> tuple[str, int]:
    """Everything that the command shows on a terminal of 80 columns, and its exit code."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *args], env=environment(COLUMNS="80", **more), cwd=ROOT, stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    shown = b""
    while True:
        ready, _, _ = select.select([parent], [], [], 120)
        assert ready, "nothing came for two minutes"
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(parent)
    return shown.decode().replace("\r\n", "\n"), process.wait()


@pytest.fixture(scope="module")
def long_chain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with more residuals than a terminal shows."""
    path = tmp_path_factory.mktemp("long") / "chain.py"
    path.write_text("import numpy as np\ndef f(x):\n    for _ in range(60): x = np.sin(x)\n    return np.sum(x)\n")
    return str(path)


def test_terminal_gets_colour_and_one_row_for_what_is_alike(long_chain: str) -> None:
    shown, code = run_on_terminal(long_chain, "--arg", "f32[8]")
    assert code == 0
    assert "\x1b[1m" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert re.search(r"^60 x 32 B +f32\[8\] +cosine +chain.py:3 \(f\)$", plain, re.MULTILINE)
    assert "output of cosine" not in plain
    assert len(plain.splitlines()) <= 40
    assert "█" in plain and "at the peak, step " in plain


def test_verbose_terminal_gets_everything_and_what_is_alike_once(long_chain: str) -> None:
    shown, _ = run_on_terminal(long_chain, "--arg", "f32[8]", "-v")
    assert shown.count("output of cosine") == 1 and "more" not in shown
    assert re.search(r"60 x 32 B\S* +\S*output of cosine", shown)
    assert "at the peak, step " in shown


def test_no_color_is_respected(long_chain: str) -> None:
    shown, _ = run_on_terminal(long_chain, "--arg", "f32[8]", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown), "no colours"


def test_program_text_has_no_colour_even_on_a_terminal() -> None:
    shown, code = run_on_terminal("examples/sin_chain.py", "--emit", "ir")
    assert code == 0 and "\x1b" not in shown


def test_error_on_a_terminal_is_coloured(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def loss(x): return undefined_name\n")
    shown, code = run_on_terminal(str(tmp_path / "model.py"), "--arg", "f32[3]")
    assert code == 1
    assert "error: \x1b[0m" in shown and "\x1b[1;32m      |                     ^" in shown
