"""``refold recall``: search everything that was said in a workspace's sessions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import (
    AsJson,
    Everywhere,
    SessionOption,
    Workspace,
    choose_session,
    find_newest,
    open_workspace,
    show_empty,
)
from refold.cli.output import clean_line, make_console, name_scope, write_json, write_line
from refold.cli.words import tr

if TYPE_CHECKING:
    from rich.text import Text

    from refold.recall import Recalled


@app.command(
    epilog=format_examples('refold recall "which port"', "refold recall ERR-4711 --all", "refold expand m:4f2a91c3")
)
def recall(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words to search for, or an exact value.")],
    session: SessionOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=200, help="Maximum results.")] = 10,
    everywhere: Everywhere = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Search everything that was said, by words, meaning or value.

    Results are exact originals, each with its handle.
    """
    if not query.strip():
        raise typer.BadParameter(tr("the query is empty; give words or a value"), param_hint="QUERY")
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session, everywhere=everywhere)
        if name is None and find_newest(manager.ledger) is None:
            show_empty(workspace, as_json=as_json)
            return
        found = manager.recalling.recall(name, query, limit)
    if as_json:
        write_json([asdict(one) for one in found])
        return
    if not found:
        elsewhere = "" if everywhere else tr("; --all searches every session of the workspace")
        write_line(
            tr(
                "nothing was found{name_scope}; try other words{elsewhere}",
                name_scope=name_scope(name),
                elsewhere=elsewhere,
            )
        )
    console = make_console(err=False)
    for one in found:
        console.print(_format(one, with_session=everywhere), soft_wrap=True)


def _format(one: Recalled, *, with_session: bool) -> Text:
    from rich.text import Text

    from refold.conversation.message import mark

    part = "" if one.is_whole else tr(", characters {start}–{stop}", start=one.start, stop=one.stop)
    where = tr(" in {session}", session=clean_line(one.session_id, 80)) if with_session else ""
    details = (
        tr(" {role}{where}{part}, score {score:.2f}", role=one.role, where=where, part=part, score=one.score),
        "dim",
    )
    return Text.assemble((mark(one.handle), "bold cyan"), details, f"\n{_make_printable(one.text).rstrip()}\n")


def _make_printable(text: str) -> str:
    """Replace lone surrogates and control characters; keep line breaks and tabs."""
    shown = text.encode("utf-8", "replace").decode()
    return "".join(character if character in "\n\t" or character.isprintable() else "\ufffd" for character in shown)
