"""Runs the real command line in a process of its own, in a folder and a home of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    """What a run left: exit code, standard output and standard error."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")


@dataclass(frozen=True)
class Shell:
    """A folder to work in, where no setting of the person who runs the tests is seen."""

    folder: Path

    def refold(self, *args: str, stdin: bytes | None = None, **environment: str) -> Ran:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("REFOLD_", "SYNAPSE_", "XDG_"))
            and name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
        }
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "refold", *args],
            cwd=self.folder,
            env={**inherited, "HOME": str(home), **environment},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=120,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return path
