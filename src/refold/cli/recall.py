"""``refold recall``: find what was said, in the workspace's own record, and print it with the handles that lead on."""

from __future__ import annotations

from dataclasses import asdict

import orjson
import typer

from refold.cli.render import clean_line
from refold.conversation.handle import mark
from refold.errors import LedgerError
from refold.ledger.choose import choose_ledger, find_file, find_index_file
from refold.recall import Recall, Recalled


def open_recall(workspace: str) -> Recall:
    """Return recall over a workspace's record; LedgerError if there is none."""
    from refold.config import load_config

    config = load_config(workspace)
    place = config.ledger
    file = find_file(workspace, place)
    if (place is None or place.kind == "file") and not file.is_file():
        raise LedgerError(f"there is no record at {file}; name another --workspace, or start a session in it")
    ledger, index = choose_ledger(workspace, place), find_index_file(workspace, place)
    return Recall(ledger, index, config.recall, variables=config.variables)


def choose_session(recall: Recall, session: str | None) -> str:
    """Return the session that is meant: the one that is named, else the one that changed last."""
    if session is not None:
        return session
    newest = recall.ledger.list_sessions(limit=1)
    if not newest:
        raise LedgerError("the record has no session yet; there is nothing to search")
    return newest[0].id


def say_where(session: str | None) -> str:
    """Return where was looked: the last changed session is not always the one that is meant."""
    return f" in session '{clean_line(session, 80)}'" if session is not None else " in any session"


def write_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def printable(text: str) -> str:
    """Return a text that a terminal can show: lone surrogates and control characters replaced, lines kept."""
    shown = text.encode("utf-8", "replace").decode()
    return "".join(character if character in "\n\t" or character.isprintable() else "\ufffd" for character in shown)


def run(query: str, session: str | None, limit: int, workspace: str, *, everywhere: bool, as_json: bool) -> None:
    """Search and print."""
    recall = open_recall(workspace)
    try:
        name = None if everywhere else choose_session(recall, session)
        found = recall.recall(name, query, limit)
    finally:
        recall.close()
        recall.ledger.close()
    if as_json:
        write_json([{**asdict(one), "text": one.text.encode("utf-8", "replace").decode()} for one in found])
        return
    if not found:
        elsewhere = "" if everywhere else "; --all searches every session of the workspace"
        typer.echo(f"nothing was found{say_where(name)}; other words may help, the same ones will not{elsewhere}")
    for one in found:
        typer.echo(_write(one, with_session=everywhere))


def _write(one: Recalled, *, with_session: bool) -> str:
    part = "" if one.is_whole else f", characters {one.start}–{one.stop}"
    where = f" in {clean_line(one.session_id, 80)}" if with_session else ""
    return f"{mark(one.handle)} {one.role}{where}{part}, score {one.score:.2f}\n{printable(one.text).rstrip()}\n"
