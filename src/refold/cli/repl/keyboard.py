"""Reads what people type: history, several lines, completion of commands, a gauge above, pastes of any size.

A large paste is kept aside and stands in the line as a short mark, so that a megabyte does not have to be drawn; it is
put back when the line is sent. prompt_toolkit is imported when a keyboard is made, and nothing heavy is imported here:
the first prompt is there before the rest of the program is.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refold.cli.repl.command_list import COMMAND_LIST

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


class Pastes:
    """Large pastes, kept aside under marks."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._count = 0

    def keep(self, text: str) -> str:
        """Return what stands in the line for a paste."""
        if len(text) <= PASTE_CHARS:
            return text
        self._count += 1
        self._texts[self._count] = text
        self._texts.pop(self._count - PASTES_MAX, None)
        return f"[pasted #{self._count}: {len(text):,} characters]"

    def put_back(self, line: str) -> str:
        """Return a line with what was pasted."""
        return _MARK.sub(lambda found: self._texts.get(int(found[1]), found[0]), line)


class Interrupted(Exception):
    """Ctrl-C at the prompt. A KeyboardInterrupt out of a task would end the event loop, and the chat with it."""


class Keyboard:
    """Reads lines, and answers to a question."""

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
        """Return what a person sends; Interrupted and EOFError as the keys say."""
        # Above the line, not in a toolbar: a toolbar is only drawn by terminals that tell where their cursor is.
        gauge = self.gauge()
        head = [("class:gauge", f"\n{gauge}\n")] if gauge else []
        line = await self._session.prompt_async([*head, ("", PROMPT)], prompt_continuation="    · ")
        return self.pastes.put_back(line)

    async def wait_shown(self, reading: asyncio.Future[str]) -> None:
        """Wait until the prompt has been drawn, or reading is over."""
        shown = asyncio.Event()

        def tell(_: object) -> None:
            shown.set()

        self._session.app.after_render += tell
        drawing = asyncio.ensure_future(shown.wait())
        waited: set[asyncio.Future[Any]] = {drawing, reading}
        await asyncio.wait(waited, timeout=SHOWN_S, return_when=asyncio.FIRST_COMPLETED)
        drawing.cancel()
        self._session.app.after_render -= tell

    async def print_above(self, show: Callable[[], None]) -> None:
        """Print something above the line that is being typed, which stays as it is."""
        from prompt_toolkit.application import run_in_terminal
        from prompt_toolkit.application.current import set_app

        if not self._session.app.is_running:
            show()
            return
        with set_app(self._session.app):
            await run_in_terminal(show)

    async def ask(self, question: str) -> str:
        """Ask and return the answer's first letter, empty for none."""
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
    """Let keys that are pressed meanwhile not show between the lines of an answer; they wait for the next prompt."""
    try:
        import termios
    except ImportError:  # Another system: keys show, and that is all.
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
    """Return the history of a workspace; giant entries are not worth typing again, and are not kept."""
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

    meanings = {f"/{command.name}": command.means for command in COMMAND_LIST}
    return WordCompleter(list(meanings), meta_dict=dict(meanings), sentence=True)


def _bind_keys(pastes: Pastes) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(pastes.keep(text))

    # Not Ctrl-J: what is typed ahead, before the terminal is ours, ends with it.
    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
