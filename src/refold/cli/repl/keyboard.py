"""Reads the user's input: history, several lines, completion of slash commands, a gauge above the prompt.

A large paste is replaced in the line by a short mark, so that a megabyte need not be drawn, and inserted again when the
line is sent. Nothing heavy is imported here, so that the prompt appears before the rest of the program is loaded.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from refold.cli.words import tr

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT = "you › "
PASTE_CHARS = 2_000
PASTES_MAX = 50
SHOWN_S = 2.0
_MARK = re.compile(r"\[pasted #(\d+): [\d,]+ characters\]")


class CommandName(NamedTuple):
    """A slash command as /help lists it."""

    name: str
    argument: str
    means: str


COMMAND_LIST = (
    CommandName("help", "", "this list"),
    CommandName("context", "", "how full the context is, and what fills it"),
    CommandName("compress", "[instructions]", "compress now; optionally say what to keep"),
    CommandName("compact", "[instructions]", "the same; /fold, too"),
    CommandName("undo", "[id]", "undo the last compression, or one by its id"),
    CommandName("redo", "", "redo what was undone"),
    CommandName("pin", "HANDLE", "never compress this message"),
    CommandName("recall", "WORDS", "search everything that was said"),
    CommandName("expand", "HANDLE [offset]", "the exact original behind a handle"),
    CommandName("summary", "[n]", "the newest summaries"),
    CommandName("facts", "", "known facts: decisions, preferences, todos"),
    CommandName("memory", "[date]", "the memory page of a day"),
    CommandName("config", "[name=value]", "show or change compression settings"),
    CommandName("model", "[name]", "show or change the model"),
    CommandName("sessions", "", "the sessions of this workspace"),
    CommandName("resume", "SESSION", "continue another session"),
    CommandName("export", "[file]", "write this session to a file"),
    CommandName("cost", "", "what this session has cost"),
    CommandName("quit", "", "leave; the session is kept"),
)


class Pastes:
    """Large pastes, and the short marks shown in their place."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._count = 0

    def keep(self, text: str) -> str:
        """Return the text to insert for a paste: the paste itself, or a mark if it is large."""
        if len(text) <= PASTE_CHARS:
            return text
        self._count += 1
        self._texts[self._count] = text
        self._texts.pop(self._count - PASTES_MAX, None)
        return f"[pasted #{self._count}: {len(text):,} characters]"

    def put_back(self, line: str) -> str:
        return _MARK.sub(lambda found: self._texts.get(int(found[1]), found[0]), line)


class Interrupted(Exception):
    """Ctrl-C at the prompt. A KeyboardInterrupt raised in a task would end the event loop and the chat."""


class Keyboard:
    """Reads lines and answers to questions."""

    def __init__(self, folder: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.styles import Style

        self.pastes = Pastes()
        self.gauge: Callable[[], str] = str
        self._session: PromptSession[str] = PromptSession(
            history=_open_history(folder),
            completer=_make_completer(),
            complete_while_typing=True,
            key_bindings=_bind_keys(self.pastes),
            reserve_space_for_menu=4,
            enable_open_in_editor=False,
            interrupt_exception=Interrupted,
            style=Style.from_dict({"gauge": "fg:ansibrightblack"}),
        )

    async def read(self) -> str:
        """Return the line that the user sends; raise Interrupted on Ctrl-C and EOFError on Ctrl-D."""
        # Above the line: a toolbar is only drawn by terminals that report their cursor position.
        head = ("class:gauge", self.gauge())
        line = await self._session.prompt_async([head, ("", tr(PROMPT))], prompt_continuation="    · ")
        return self.pastes.put_back(line)

    async def wait_shown(self, reading: asyncio.Future[str]) -> None:
        """Wait until the prompt is drawn, or reading has ended."""
        shown = asyncio.Event()

        def note(_: object) -> None:
            shown.set()

        self._session.app.after_render += note
        drawing = asyncio.ensure_future(shown.wait())
        waited: set[asyncio.Future[Any]] = {drawing, reading}
        await asyncio.wait(waited, timeout=SHOWN_S, return_when=asyncio.FIRST_COMPLETED)
        drawing.cancel()
        self._session.app.after_render -= note

    async def print_above(self, show: Callable[[], None]) -> None:
        """Print something above the line being typed, which is kept."""
        from prompt_toolkit.application import run_in_terminal
        from prompt_toolkit.application.current import set_app

        if not self._session.app.is_running:
            show()
            return
        with set_app(self._session.app):
            await run_in_terminal(show)

    async def ask(self, question: str) -> str:
        """Ask and return the first letter of the answer; empty if the user typed nothing."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory

        asking: PromptSession[str] = PromptSession(history=InMemoryHistory())
        try:
            answer = await asking.prompt_async(question)
        except (KeyboardInterrupt, EOFError):
            return ""
        return answer.strip().lower()[:1]


@contextmanager
def hushed() -> Iterator[None]:
    """Turn off the echo of keys inside this context; keys pressed meanwhile are read at the next prompt."""
    try:
        import termios
    except ImportError:  # Not POSIX: keys are echoed.
        yield
        return
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (OSError, ValueError, termios.error):
        yield
        return
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _open_history(folder: Path) -> History:
    """Return the history of a workspace; very long entries are not stored."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class ShortHistory(FileHistory):
        def store_string(self, string: str) -> None:
            if len(string) <= PASTE_CHARS:
                super().store_string(string)

    try:
        (folder / ".refold").mkdir(parents=True, exist_ok=True)
        return ShortHistory(str(folder / ".refold" / "chat_history"))
    except OSError:
        return InMemoryHistory()


def _make_completer() -> Completer:
    from prompt_toolkit.completion import WordCompleter

    meanings = {f"/{command.name}": tr(command.means) for command in COMMAND_LIST}
    return WordCompleter(list(meanings), meta_dict=dict(meanings), sentence=True)


def _bind_keys(pastes: Pastes) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(pastes.keep(text))

    # Not Ctrl-J: lines typed before the prompt is ready end with it.
    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
