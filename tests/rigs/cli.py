"""Runs the command line in a folder and a home of its own: inside this process, or in a process of its own.

A process costs half a second and more, so most tests run the same entry point in this one. typer takes most of a short
command's time to make its commands, so they are made once.
"""

import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

from typer.main import get_command

from refold.cli.app import run_to_end
from refold.cli.main import app, load_commands


@dataclass(frozen=True)
class Ran:
    """The result of a run: exit code, standard output and standard error."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")


@dataclass(frozen=True)
class Shell:
    """A folder to work in. No setting of the person who runs the tests is visible; commands run in this process."""

    folder: Path

    def refold(self, *args: str, stdin: bytes | None = None, **environment: str) -> Ran:
        streams = io.BytesIO(stdin or b""), io.BytesIO(), io.BytesIO()
        with replace_process(args, streams, self.folder, self.make_environment(environment)):
            code = run_to_end(make_commands())
        return Ran(code, streams[1].getvalue(), streams[2].getvalue().decode("utf-8", "replace"))

    def show(self, *args: str, columns: int = 80, typed: str = "", **environment: str) -> tuple[int, str]:
        """Run a command on a terminal, with what a person types; return its exit code and all that was printed."""
        given = {"TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
        with (
            open_terminal(typed) as (streams, printed),
            replace_process(args, streams, self.folder, self._alone(given)),
        ):
            code = run_to_end(make_commands())
        return code, b"".join(printed).decode("utf-8").replace("\r\n", "\n")

    def _alone(self, given: dict[str, str]) -> dict[str, str]:
        return {"HOME": str(self.folder / "home"), "LC_ALL": "C.UTF-8", **given}

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return path

    def make_environment(self, more: dict[str, str]) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("REFOLD_", "SYNAPSE_", "XDG_"))
            and name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
        }
        return {**inherited, "HOME": str(home), "LC_ALL": "C.UTF-8", **more}


@cache
def make_commands() -> Callable[..., object]:
    load_commands()
    return get_command(app)


@dataclass(frozen=True)
class ProcessShell(Shell):
    """The same, with a process per command: for what a process alone shows, such as its encoding and its end."""

    def refold(self, *args: str, stdin: bytes | None = None, **environment: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "refold", *args],
            cwd=self.folder,
            env=self.make_environment(environment),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=120,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


Streams = tuple[BinaryIO, BinaryIO, BinaryIO]


@contextmanager
def open_terminal(typed: str) -> Iterator[tuple[Streams, list[bytes]]]:
    """Open a pseudo-terminal; give the streams of a process on it and, once it is closed, what was printed there."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    printed: list[bytes] = []

    def read() -> None:
        while True:
            try:
                printed.append(os.read(ours, 65_536))
            except OSError:  # Nobody is left on the other side.
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ExitStack() as stack:
            ends = [stack.enter_context(open(theirs, mode, closefd=False)) for mode in ("rb", "wb", "wb")]
            yield (ends[0], ends[1], ends[2]), printed
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)


@contextmanager
def replace_process(
    args: tuple[str, ...], streams: Streams, folder: Path, environment: dict[str, str]
) -> Iterator[None]:
    """Give this process the arguments, streams, folder and environment of a command, and take them away again."""
    before = (sys.argv, sys.stdin, sys.stdout, sys.stderr, sys.excepthook)
    variables = dict(os.environ)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["refold", *args]
    sys.stdin = io.TextIOWrapper(streams[0], encoding="utf-8")
    sys.stdout = io.TextIOWrapper(streams[1], encoding=encoding, write_through=True)
    sys.stderr = io.TextIOWrapper(streams[2], encoding=encoding, errors="backslashreplace", write_through=True)
    try:
        with chdir(folder):
            yield
    finally:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.detach()  # Or its buffer would be closed with it.
        sys.argv, sys.stdin, sys.stdout, sys.stderr, sys.excepthook = before
        os.environ.clear()
        os.environ.update(variables)
