"""A chat in a real pseudo-terminal, against a scripted provider; the screen is what a person would see of it."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from refold.testing import ScriptedProvider

READY = "you ›"
# The pseudo-terminal does not tell where its cursor is.
NO_CPR = {"PROMPT_TOOLKIT_NO_CPR": "1"}
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")


def make_environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("REFOLD_", "OPENAI_", "ANTHROPIC_"))
    }
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        **kept,
        "HOME": str(home),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
        **NO_CPR,
        **more,
    }


def strip(text: str) -> str:
    """Return what was printed without what moves the cursor or colours it."""
    return _ESCAPES.sub("", text).replace("\r", "")


class Terminal:
    """A running chat. ``raw`` is all that it wrote, ``expect`` goes through it as a person reads."""

    def __init__(self, child: "pexpect.spawn[str]") -> None:
        self.child = child
        self.raw = ""
        self._unread = ""

    def send(self, line: str) -> None:
        """Type a line and press Enter, as a keyboard does."""
        self.child.send(f"{line}\r")

    def press(self, key: str) -> None:
        """Press a key together with Ctrl."""
        self.child.sendcontrol(key)

    def expect(self, text: str, timeout: float = 120) -> str:
        """Wait until this is on the screen; return what came before it."""
        until = time.monotonic() + timeout
        while True:
            seen = strip(self._unread)
            at = seen.find(text)
            if at >= 0:
                self._unread = seen[at + len(text) :]
                return seen[:at]
            if time.monotonic() > until:
                pytest.fail(f"{text!r} did not come; the screen ends with:\n{seen[-2_000:]}")
            self._read()

    def _read(self) -> None:
        try:
            piece = self.child.read_nonblocking(65_536, timeout=0.2)
        except pexpect.TIMEOUT:
            return
        except pexpect.EOF:
            pytest.fail(f"the chat ended; its last words:\n{strip(self.raw)[-2_000:]}")
        self.raw += piece
        self._unread += piece

    def begin(self) -> str:
        """Wait for the greeting and the prompt after it; return the greeting. Typing could begin before."""
        head = self.expect("Ctrl-D leaves")
        self.ready()
        return head

    def ready(self) -> str:
        """Wait for the prompt."""
        return self.expect(READY)

    def end(self) -> int:
        """Leave by Ctrl-D and return the exit code."""
        for _ in range(240):  # Pressed before the prompt is there, it says nothing.
            self.child.sendcontrol("d")
            try:
                self.child.expect(pexpect.EOF, timeout=0.5)
                break
            except pexpect.TIMEOUT:
                continue
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)


def hear_interrupts() -> None:
    """Undo what a shell does to its background jobs: they, and all they start, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def chatting(
    folder: Path, provider: ScriptedProvider, *options: str, columns: int = 80, **environment: str
) -> Iterator[Terminal]:
    """Run ``refold chat`` until the block ends."""
    (folder / ".git").mkdir(exist_ok=True)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "refold", "chat", "-m", "gpt-4o", "--base-url", provider.openai_url, *options],
        cwd=str(folder),
        env=make_environment(folder, **environment),  # type: ignore[arg-type]
        dimensions=(30, columns),
        encoding="utf-8",
        timeout=120,
        preexec_fn=hear_interrupts,
    )
    try:
        yield Terminal(child)
    finally:
        child.close(force=True)


def wait_for(condition: object, seconds: float = 60.0) -> None:
    """Wait until a function says yes."""
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            pytest.fail("it did not happen in time")
        time.sleep(0.02)
