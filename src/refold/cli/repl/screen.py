"""The output of the chat: streamed answers as Markdown, notices, and the line shown during a compression.

On a terminal, finished blocks are printed once and the unfinished end is redrawn below them. Elsewhere plain text is
written as it arrives, without colour. Nothing in a model's answer can move the cursor. The gauge shows how full the
context is, as one line and as a breakdown.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from refold.budget.decision import Limit
from refold.cli.words import clean_line, count_things, find_language, shorten_tokens, strip_controls, tr
from refold.conversation import because
from refold.manager.status import SessionStatus

if TYPE_CHECKING:
    from rich.markdown import Markdown

    from refold.cli.repl.session import ChatSession


_FENCE = re.compile(r"^\s{0,3}(```|~~~)", re.M)
_REFRESH_PER_S = 8
_LAST_CHARS = 200
OPTIMISING = "Optimising context…"
CELLS = 5
FULL, EMPTY = "▰", "▱"


@contextlib.contextmanager
def open_screen(*, plain: bool = False) -> Iterator[Screen]:
    """Print answers on standard output, and notices on standard error unless it is a terminal."""
    out = Console(highlight=False, emoji=False, markup=False)
    err = out if out.is_terminal and not plain else Console(stderr=True, highlight=False, emoji=False, markup=False)
    screen = Screen(out, err, is_live=out.is_terminal and not out.is_dumb_terminal and not plain)
    try:
        yield screen
    finally:
        screen.rest()


def greet(screen: Screen, chat: ChatSession, *, is_typed: bool) -> None:
    """Print the model, why it was chosen, and the state of the session."""
    model = chat.chosen.model
    source = f"{getattr(model, 'source', model.name)} ({tr(chat.chosen.why)})"
    if not is_typed:
        screen.note("{source} · session {session_id}", source=source, session_id=chat.session_id)
        return
    screen.note(source)
    status = chat.status()
    size = f" · {count_things(status.messages, 'message')}" if status is not None else ""
    screen.note(
        "session {session_id}{size} · /help lists commands, Ctrl-D leaves", session_id=chat.session_id, size=size
    )
    if status is not None:
        _remind(screen, chat)
        screen.note(chat.gauge())


def _remind(screen: Screen, chat: ChatSession) -> None:
    """Print the last message of each side when a session is continued."""
    last: dict[str, str] = {}
    for item in chat.manager.read_view(chat.session_id):
        words = clean_line(" ".join(part.text[:_LAST_CHARS] for part in item.parts if part.kind == "text"), _LAST_CHARS)
        if words and not item.is_fold and item.role in ("user", "assistant"):
            last.pop(item.role, None)  # Keeps the order of the conversation.
            last[item.role] = words
    for role, words in last.items():
        screen.note(tr("you said: {words}", words=words) if role == "user" else tr("answered: {words}", words=words))


class Screen:
    """Prints the chat. ``is_live``: a terminal that can redraw."""

    def __init__(self, out: Console, err: Console, *, is_live: bool) -> None:
        self.out = out
        self.err = err
        self.is_live = is_live
        self._drawn: AnswerView | WaitView | None = None
        self._held: list[Callable[[], None]] | None = None

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Hold output back while the user is asked something; print it afterwards, in order."""
        self.rest()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for show in held:
                show()

    def note(self, text: str, style: str = "dim", /, **values: object) -> None:
        """Print one line that is not part of the conversation, in the user's language."""
        if self._held is not None:
            self._held.append(lambda: self.note(text, style, **values))
            return
        self.rest()
        self.err.print(Text(clean_line(tr(text, **values), 1_000), style=style), soft_wrap=not self.is_live)

    def show(self, thing: Any, /, **values: object) -> None:
        """Print the table or text of a command; a sentence of ours is printed in the user's language."""
        self.rest()
        self.out.print(Text(strip_controls(tr(thing, **values))) if isinstance(thing, str) else thing)

    def wrap(self, text: str) -> str:
        """Return a text as lines of their own, as wide as the terminal: above a prompt, longer ones are cut off."""
        lines = Text(text).wrap(self.err, self.err.width) if text else ()
        return "".join(f"\n{line.plain.rstrip()}" for line in lines) + "\n" * bool(text)

    def say(self, piece: str) -> None:
        """Print a piece of the answer."""
        if self._held is not None:
            self._held.append(lambda: self.say(piece))
            return
        if not isinstance(self._drawn, AnswerView):
            self.rest()
            self._drawn = AnswerView(self.out, is_live=self.is_live)
        self._drawn.feed(strip_controls(piece))

    def wait(self, text: str) -> None:
        """Show that something is in progress, with the elapsed time."""
        if self._held is not None:
            self._held.append(lambda: self.wait(text))
            return
        self.rest()
        self._drawn = WaitView(self.err, text, is_live=self.is_live)

    def rest(self) -> None:
        """Finish what is being drawn; the next output starts on a new line."""
        if self._drawn is not None:
            self._drawn.close()
            self._drawn = None


@cache
def _load_markdown() -> type[Markdown]:
    """Return Markdown with headings on the left. Imported for the first answer, because it is slow to import."""
    from rich.markdown import Heading, Markdown

    class LeftHeading(Heading):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            self.text.justify = "left"
            yield self.text

    class ChatMarkdown(Markdown):
        elements: ClassVar = {**Markdown.elements, "heading_open": LeftHeading}

    return ChatMarkdown


def _start_live(console: Console, shown: RenderableType = "") -> Live:
    live = Live(
        shown,
        console=console,
        transient=True,
        refresh_per_second=_REFRESH_PER_S,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    live.start()
    return live


class WaitView:
    """One line with a spinner and the elapsed time, removed when it ends."""

    def __init__(self, console: Console, text: str, *, is_live: bool) -> None:
        self._text = text
        self._started = time.monotonic()
        self._live: Live | None = None
        if is_live:
            self._live = _start_live(console, self)
        elif text == OPTIMISING:
            console.print(Text(text), soft_wrap=True)  # In a pipe, only this wait is worth a line.

    def __rich__(self) -> Text:
        seconds = time.monotonic() - self._started
        mark = "|/-\\"[int(seconds * 6) % 4]
        return Text(f"{mark} {self._text} {seconds:.1f} s", style="cyan", no_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


class AnswerView:
    """A streamed answer: complete blocks as Markdown, the rest as plain text."""

    def __init__(self, console: Console, *, is_live: bool) -> None:
        self._console = console
        self._pending = ""
        self._live: Live | None = None
        self._is_live = is_live
        self._ends_line = True

    def feed(self, piece: str) -> None:
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
        self._console.print()
        self._console.print(_load_markdown()(block.strip("\n")))

    def _draw(self) -> None:
        if self._live is None:
            self._live = _start_live(self._console)
        # Only the end: text taller than the screen cannot be redrawn.
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
    """Split Markdown at its last blank line outside a fence: complete blocks, and the rest."""
    at = len(text)
    while (at := text.rfind("\n\n", 0, at)) >= 0:
        if len(_FENCE.findall(text, 0, at)) % 2 == 0:
            return text[: at + 2], text[at + 2 :]
    return "", text


def write_gauge(status: SessionStatus, cells: int = CELLS) -> str:
    """Return the gauge: ``▰▰▰▰▱ 81% · 78k/96k tokens · compresses at 96,000 tokens; 17,920 tokens to go``.

    Bar, percentage and fraction refer to the next threshold, or to the whole budget if compression has stopped.
    """
    next_one = Limit("tokens", status.hard, status.tokens) if status.stopped else status.ahead.nearest
    filled = round(next_one.share * cells)
    bar = FULL * filled + EMPTY * (cells - filled)
    # A share that rounds to 100% would announce a compression that is not due yet.
    percent = min(round(next_one.share * 100), 99 if next_one.left else 100)
    now, at = shorten_tokens(next_one.now), shorten_tokens(next_one.at)
    parts = [f"{bar} {percent}%", f"{now}/{at} {next_one.unit(find_language())}"]
    if not status.stopped:
        parts.append(status.ahead.tell(find_language()))
    elif status.stopped.is_a(because.AUTO_OFF):
        parts.append(tr("automatic compression is off"))
    else:
        parts.append(tr("automatic compression has stopped"))
    return " · ".join(parts)
