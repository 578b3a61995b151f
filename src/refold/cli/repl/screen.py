"""What the chat prints: answers as Markdown while they come in, notices, the line that says that it is optimising.

On a terminal finished blocks are printed once and stay; the unfinished end is drawn below them. Elsewhere plain text
goes out as it comes, with no colour and no movement. Nothing that a model says can move the cursor.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from refold.cli.render import clean_line, count_things, describe_share

if TYPE_CHECKING:
    from refold.cli.repl.chat_session import ChatSession

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FENCE = re.compile(r"^\s{0,3}(```|~~~)", re.M)
_REFRESH_PER_S = 8
_LAST_CHARS = 200
OPTIMISING = "Optimising context…"


def clean_block(text: str) -> str:
    """Return text with its lines, without anything that moves a cursor or turns the direction of writing."""
    return _UNSAFE.sub("", text.replace("\r\n", "\n"))


def make_screen(*, plain: bool = False) -> Screen:
    """Return the screen of this process: answers on standard output, notices beside it where that is no terminal."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    out = Console(highlight=False, emoji=False, markup=False)
    err = out if out.is_terminal and not plain else Console(stderr=True, highlight=False, emoji=False, markup=False)
    return Screen(out, err, is_live=out.is_terminal and not out.is_dumb_terminal and not plain)


def greet(screen: Screen, chat: ChatSession, *, is_typed: bool) -> None:
    """Say which model answers and why, and where the session stands."""
    model = chat.chosen.model
    source = f"{getattr(model, 'source', model.name)} ({chat.chosen.why})"
    if not is_typed:
        screen.note(f"{source} · session {chat.session_id}")
        return
    screen.note(source)
    status = chat.status()
    size = f" · {count_things(status.messages, 'message')}" if status is not None else ""
    screen.note(f"session {chat.session_id}{size} · /help lists commands, Ctrl-D leaves")
    if status is not None:
        _remind(screen, chat)
        screen.note(chat.gauge())


def _remind(screen: Screen, chat: ChatSession) -> None:
    """Show what was said last, for whoever goes on."""
    last: dict[str, str] = {}
    for item in chat.manager.read_view(chat.session_id):
        words = clean_line(" ".join(part.text[:_LAST_CHARS] for part in item.parts if part.kind == "text"), _LAST_CHARS)
        if words and not item.is_fold and item.role in ("user", "assistant"):
            last.pop(item.role, None)  # So that they stand in the order they were said.
            last[item.role] = words
    for role, words in last.items():
        screen.note(f"{'you said' if role == 'user' else 'answered'}: {words}")


class Screen:
    """Prints. ``is_live`` is a terminal that can redraw."""

    def __init__(self, out: Console, err: Console, *, is_live: bool) -> None:
        self.out = out
        self.err = err
        self.is_live = is_live
        self._answer: AnswerView | None = None
        self._wait: WaitView | None = None
        self._held: list[Callable[[], None]] | None = None

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Print nothing meanwhile: somebody is being asked. What came is printed afterwards, in order."""
        self.rest()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for show in held:
                show()

    def note(self, text: str, style: str = "dim") -> None:
        """Print one line beside the conversation."""
        if self._held is not None:
            self._held.append(lambda: self.note(text, style))
            return
        self.rest()
        self.err.print(Text(clean_line(text, 1_000), style=style), soft_wrap=not self.is_live)

    def show(self, thing: Any) -> None:
        """Print a table or a text that a command made."""
        self.rest()
        self.out.print(Text(clean_block(thing)) if isinstance(thing, str) else thing)

    def say(self, piece: str) -> None:
        """Print a piece of the answer."""
        if self._held is not None:
            self._held.append(lambda: self.say(piece))
            return
        self._end_wait()
        if self._answer is None:
            self._answer = AnswerView(self.out, is_live=self.is_live)
        self._answer.feed(clean_block(piece))

    def wait(self, text: str) -> None:
        """Show that something takes a while, with the time it has taken so far."""
        if self._held is not None:
            self._held.append(lambda: self.wait(text))
            return
        self._end_answer()
        self._end_wait()
        self._wait = WaitView(self.err, text, is_live=self.is_live)

    def rest(self) -> None:
        """End what is being drawn; the next thing starts on a line of its own."""
        self._end_answer()
        self._end_wait()

    def compressed(self, before: int, after: int, reason: str, undo: str) -> None:
        """Print the line after a compression."""
        back = f" · back with /undo {undo}" if undo else ""
        self.note(f"context {before:,} → {after:,} tokens ({describe_share(before, after)}) · {reason}{back}", "green")

    def _end_answer(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def _end_wait(self) -> None:
        if self._wait is not None:
            self._wait.close()
            self._wait = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()


class WaitView:
    """One line with a spinner and the elapsed time; it leaves nothing behind on a terminal."""

    def __init__(self, console: Console, text: str, *, is_live: bool) -> None:
        self._text = text
        self._started = time.monotonic()
        self._live: Live | None = None
        if is_live:
            self._live = Live(
                self,
                console=console,
                transient=True,
                refresh_per_second=_REFRESH_PER_S,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        elif text == OPTIMISING:
            console.print(Text(text), soft_wrap=True)  # S3.11; the rest of the waiting is nothing to read.

    def __rich__(self) -> Text:
        seconds = time.monotonic() - self._started
        mark = "|/-\\"[int(seconds * 6) % 4]
        return Text(f"{mark} {self._text} {seconds:.1f} s", style="cyan", no_wrap=True)

    def close(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()


class AnswerView:
    """An answer while it comes in: whole blocks as Markdown, the rest as it is."""

    def __init__(self, console: Console, *, is_live: bool) -> None:
        self._console = console
        self._pending = ""
        self._live: Live | None = None
        self._is_live = is_live
        self._ends_line = True

    def feed(self, piece: str) -> None:
        """Take a piece."""
        if not self._is_live:
            self._console.file.write(piece)
            self._console.file.flush()
            self._ends_line = piece.endswith("\n") if piece else self._ends_line
            return
        self._pending += piece
        done, self._pending = split_blocks(self._pending)
        if done:
            self._stop()
            self._print(done)
        if self._pending.strip():
            self._draw()

    def _print(self, block: str) -> None:
        from refold.cli.repl.markdown import ChatMarkdown  # Slow to import, and not needed before the first answer.

        self._console.print()
        self._console.print(ChatMarkdown(block.strip("\n")))

    def _draw(self) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console,
                transient=True,
                refresh_per_second=_REFRESH_PER_S,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
        # Only the end: what is taller than the screen cannot be redrawn.
        room = max(1, self._console.height - 3)
        width = max(10, self._console.width)
        tail = self._pending[-room * width :]
        lines = Text(tail).wrap(self._console, width)
        self._live.update(Text("\n").join([Text(""), *lines[-room:]]))

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def close(self) -> None:
        """Print what is left."""
        if not self._is_live:
            if not self._ends_line:
                self._console.file.write("\n")
                self._console.file.flush()
            return
        self._stop()
        if self._pending.strip():
            self._print(self._pending)
        self._pending = ""


def split_blocks(text: str) -> tuple[str, str]:
    """Return what is complete of a Markdown text, up to its last blank line outside a fence, and the rest."""
    at = len(text)
    while (at := text.rfind("\n\n", 0, at)) >= 0:
        if len(_FENCE.findall(text, 0, at)) % 2 == 0:
            return text[: at + 2], text[at + 2 :]
    return "", text
