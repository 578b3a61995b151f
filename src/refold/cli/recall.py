"""``refold recall``: find what was said, in the workspace's own record, and print it with the handles that lead on."""

from __future__ import annotations

from dataclasses import asdict

from rich.text import Text

from refold.cli.reading import write_json
from refold.cli.render import clean_line, make_console
from refold.cli.workspace import choose_session, find_newest, open_workspace, tell_empty, write_line
from refold.conversation.handle import mark
from refold.recall import Recalled


def say_where(session: str | None) -> str:
    """Return where was looked: the last changed session is not always the one that is meant."""
    return f" in session '{clean_line(session, 80)}'" if session is not None else " in any session"


def printable(text: str) -> str:
    """Return a text that a terminal can show: lone surrogates and control characters replaced, lines kept."""
    shown = text.encode("utf-8", "replace").decode()
    return "".join(character if character in "\n\t" or character.isprintable() else "\ufffd" for character in shown)


def run(query: str, session: str | None, limit: int, workspace: str, *, everywhere: bool, as_json: bool) -> None:
    """Search and print."""
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session, everywhere=everywhere)
        if name is None and find_newest(manager.ledger) is None:
            tell_empty(workspace, as_json=as_json)
            return
        found = manager.recalling.recall(name, query, limit)
    if as_json:
        write_json([asdict(one) for one in found])
        return
    if not found:
        elsewhere = "" if everywhere else "; --all searches every session of the workspace"
        write_line(f"nothing was found{say_where(name)}; other words may help, the same ones will not{elsewhere}")
    console = make_console(err=False)
    for one in found:
        console.print(_write(one, with_session=everywhere), soft_wrap=True)


def _write(one: Recalled, *, with_session: bool) -> Text:
    part = "" if one.is_whole else f", characters {one.start}–{one.stop}"
    where = f" in {clean_line(one.session_id, 80)}" if with_session else ""
    told = (f" {one.role}{where}{part}, score {one.score:.2f}", "dim")
    return Text.assemble((mark(one.handle), "bold cyan"), told, f"\n{printable(one.text).rstrip()}\n")
