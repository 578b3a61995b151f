"""Runs the command line in a folder and a home of its own: inside this process, or in a process of its own.

A process costs half a second and more, so most tests run the same entry point in this one. typer takes most of a short
command's time to make its commands, so they are made once.
"""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from typer.main import get_command

from refold.cli.app import run_to_end
from refold.cli.main import app


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
        with replace_process(args, stdin or b"", self.folder, self.make_environment(environment)) as (out, err):
            code = run_to_end(make_commands())
        return Ran(code, out.getvalue(), err.getvalue().decode("utf-8", "replace"))

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


make_commands = cache(lambda: get_command(app))


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


@contextmanager
def replace_process(
    args: tuple[str, ...], stdin: bytes, folder: Path, environment: dict[str, str]
) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Give this process the arguments, streams, folder and environment of a command, and take them away again."""
    before = (sys.argv, sys.stdin, sys.stdout, sys.stderr, sys.excepthook)
    variables = dict(os.environ)
    out, err = io.BytesIO(), io.BytesIO()
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["refold", *args]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding=encoding, write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding=encoding, errors="backslashreplace", write_through=True)
    try:
        with chdir(folder):
            yield out, err
    finally:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.detach()  # Or its buffer would be closed with it.
        sys.argv, sys.stdin, sys.stdout, sys.stderr, sys.excepthook = before
        os.environ.clear()
        os.environ.update(variables)
