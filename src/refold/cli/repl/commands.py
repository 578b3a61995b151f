"""The slash commands, each in the function ``run_NAME``. An error is printed as one line and never ends the chat.

Commands that change something print what changed and how to revert it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from pathlib import Path

from rich.table import Table
from rich.text import Text

from refold.agent.context_tools import Texts
from refold.agent.events import find_undo
from refold.cli.app import ALIASES
from refold.cli.config import format_row
from refold.cli.output import make_table
from refold.cli.repl.keyboard import COMMAND_LIST
from refold.cli.repl.screen import OPTIMISING, Screen, write_gauge
from refold.cli.repl.session import ChatSession
from refold.cli.session import describe_switched
from refold.cli.words import (
    clean_line,
    count_things,
    describe_error,
    describe_share,
    describe_steps,
    find_language,
    format_time,
    say_reason,
    shorten_tokens,
    tr,
)
from refold.config.names import DOCUMENT_FIELDS
from refold.config.values import explain as explain_settings
from refold.config.values import find_row
from refold.errors import RefoldError
from refold.manager.status import break_down
from refold.manager.usage import read_figures
from refold.memory import SETTINGS
from refold.tokens import counter_for

_REQUESTS_MAX = 100_000

Run = Callable[[ChatSession, Screen, str], "Awaitable[None] | None"]


async def run_command(chat: ChatSession, screen: Screen, line: str) -> None:
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(ALIASES.get(name.lower(), name.lower()))
    if command is None:
        near = get_close_matches(name.lower(), COMMANDS, 1)
        hint = tr("; did you mean /{name}?", name=near[0]) if near else tr("; /help lists them")
        screen.note("there is no command /{name}{hint}", "yellow", name=name[:40], hint=hint)
        return
    try:
        made = command(chat, screen, argument.strip())
        if inspect.isawaitable(made):
            await made
    except (RefoldError, OSError) as error:
        screen.note(describe_error(error) if isinstance(error, RefoldError) else str(error), "yellow")


def run_help(chat: ChatSession, screen: Screen, argument: str) -> None:  # noqa: ARG001
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for command in COMMAND_LIST:
        table.add_row(Text(f"/{command.name} {command.argument}".rstrip(), style="bold"), tr(command.means))
    table.add_row(Text("Enter, Alt-Enter", style="bold"), tr("send, new line; Ctrl-C stops an answer, Ctrl-D leaves"))
    screen.show(table)


def run_context(chat: ChatSession, screen: Screen, argument: str) -> None:  # noqa: ARG001
    status = chat.status()
    if status is None:
        screen.note("this session has no messages yet")
        return
    screen.show(write_gauge(status, cells=20))
    system_tokens = counter_for(status.model or None).count_text(chat.system)
    table = make_table("part", "tokens", "share", "messages", numbers=("tokens", "share", "messages"))
    for row in break_down(chat.manager.read_view(chat.session_id), status, system_tokens):
        share = f"{row.tokens / max(1, status.hard):.0%}"
        table.add_row(tr(row.name), f"{row.tokens:,}", share, f"{row.messages:,}" if row.messages else "·")
    screen.show(table)
    screen.note(
        "window {status.window:,} · hard {status.hard:,} · soft {status.soft:,} · counted by {status.counter} · "
        "{status.messages_in_view:,} of {status.messages:,} messages in view · {compressions}",
        status=status,
        compressions=count_things(status.compression_count, "compression"),
    )
    if status.stopped:
        screen.note("next: {stopped}", "yellow", stopped=say_reason(status.stopped))
    else:
        screen.note("next: {tell}", tell=status.ahead.tell(find_language()))


async def run_compress(chat: ChatSession, screen: Screen, argument: str) -> None:
    # Reading the status also loads system prompt and tools, so that before and after include them as the gauge does.
    if chat.status() is None:
        screen.note(Texts(find_language())("nothing_to_compress"))
        return
    screen.wait(tr(OPTIMISING))
    with chat.converse():
        done = await chat.manager.compress_async(chat.session_id, argument)
    screen.rest()
    if not done.success:
        screen.note(chat.agent.context.texts.explain("compress_failed", done.reason), "yellow")
        return
    if not any(stage.edits for stage in done.stages):
        screen.note("{reason}; {tokens:,} tokens as before", tokens=done.current_tokens, reason=say_reason(done.reason))
        return
    screen.show(
        "{done.previous_tokens:,} → {done.current_tokens:,} tokens ({shrunk}), {done.freed_tokens:,} freed",
        done=done,
        shrunk=describe_share(done.previous_tokens, done.current_tokens),
    )
    for failed in (stage for stage in done.stages if stage.is_failed):
        screen.note(say_reason(failed.note), "yellow")
    gone = describe_steps(done.stages)
    files = tr(" · {files} deleted", files=count_things(len(done.deleted_files), "file")) if done.deleted_files else ""
    kept = tr("unchanged: {messages}", messages=count_things(done.preserved_count, "message"))
    screen.note(
        "{kept} · freed by {gone}{files} · undo with /undo {id}",
        kept=kept,
        gone=gone,
        files=files,
        id=find_undo(chat.manager, chat.session_id),
    )
    _show_gauge(chat, screen)


def _show_gauge(chat: ChatSession, screen: Screen) -> None:
    """Print the gauge unless the prompt shows it."""
    if not screen.is_live:
        screen.note(chat.gauge())


def run_undo(chat: ChatSession, screen: Screen, argument: str) -> None:
    screen.show(describe_switched(chat.manager.undo(chat.session_id, argument or None), "undone"))
    _show_gauge(chat, screen)


def run_redo(chat: ChatSession, screen: Screen, argument: str) -> None:  # noqa: ARG001
    screen.show(describe_switched(chat.manager.redo(chat.session_id), "redone"))
    _show_gauge(chat, screen)


def run_pin(chat: ChatSession, screen: Screen, argument: str) -> None:
    screen.show(chat.agent.context.context_pin(argument) if argument else tr("name a message: /pin m:4f2a91c3"))


def run_recall(chat: ChatSession, screen: Screen, argument: str) -> None:
    if not argument:
        screen.show("name what to look for: /recall WORDS")
        return
    head, line, passages = chat.agent.context.context_recall(argument).partition("\n")
    screen.show(head.replace("context_expand(handle)", "/expand HANDLE") + line + passages)


def run_expand(chat: ChatSession, screen: Screen, argument: str) -> None:
    handle, _, rest = argument.partition(" ")
    if not handle:
        screen.show("name a handle: /expand m:4f2a91c3")
        return
    offset = int(rest) if rest.strip().isdecimal() else 0
    screen.show(chat.agent.context.context_expand(handle, offset))


def run_summary(chat: ChatSession, screen: Screen, argument: str) -> None:
    screen.show(chat.agent.context.context_summary(int(argument) if argument.isdecimal() else 3))


def run_facts(chat: ChatSession, screen: Screen, argument: str) -> None:  # noqa: ARG001
    known = chat.manager.facts(chat.session_id) if chat.status() is not None else []
    if not known:
        screen.note("no facts yet: compressions collect them")
    for fact in known:
        handles = " ".join(f"⟨{handle}⟩" for handle in fact.handles[-2:])
        screen.show(f"{tr(fact.kind)}{tr(': ')}{clean_line(fact.text, 300)} {handles}")


def run_memory(chat: ChatSession, screen: Screen, argument: str) -> None:
    pages = chat.manager.md_sync
    dates = pages.list_dates()
    date = argument or (dates[-1] if dates else "")
    page = pages.read(date) if date else None
    if page:
        screen.show(page)
    elif dates:
        screen.note("there is no page for {date}; the newest are {join}", date=date[:40], join=", ".join(dates[-5:]))
    else:
        screen.note("no pages yet: each compression adds to the page of its day")


def run_config(chat: ChatSession, screen: Screen, argument: str) -> None:
    changes: dict[str, object] = {}
    for pair in argument.split():
        name, equals, value = pair.partition("=")
        if not equals:
            screen.note("use /config name=value, or /config to list the settings", "yellow")
            return
        changes[name] = _read_value(value)
    if changes:
        screen.show(chat.agent.context.context_config(changes).partition("\n")[0])
    table = make_table("setting", "value", "means", wide=("means",), wraps=True)
    rows = {row.name: row for row in explain_settings(chat.manager.config)}
    begins = find_row(rows, "trigger_ratio")
    named = {name: rows[name] for name in DOCUMENT_FIELDS.get(chat.manager.config.preset_name, ())}
    named |= {name: rows[ours] for name, ours in SETTINGS.items()} | {begins.name: begins}
    for name, row in named.items():
        table.add_row(name, format_row(row), tr(row.means))
    screen.show(table)
    screen.note("change maxTurns and what follows with /config name=value; 'refold config explain --all' lists all")


def _read_value(text: str) -> object:
    import json

    try:
        value: object = json.loads(text)
    except ValueError:
        return {"on": True, "off": False}.get(text.lower(), text)
    return value


def run_model(chat: ChatSession, screen: Screen, argument: str) -> None:
    if argument:
        chat.chosen = chat.choose(argument)
        chat.open(chat.session_id)
    screen.show(f"{getattr(chat.chosen.model, 'source', chat.chosen.model.name)} ({tr(chat.chosen.why)})")


def run_sessions(chat: ChatSession, screen: Screen, argument: str) -> None:  # noqa: ARG001
    rows = chat.manager.ledger.list_sessions(limit=20)
    if not rows:
        screen.note("no sessions yet")
        return
    table = make_table("session", "messages", "tokens", "changed", numbers=("messages", "tokens"), wide=("session",))
    for row in rows:
        here = "▸ " if row.id == chat.session_id else "  "
        name = Text(f"{here}{clean_line(row.id, 60)}")
        table.add_row(name, f"{row.messages:,}", shorten_tokens(row.tokens), format_time(row.updated_at))
    screen.show(table)


def run_resume(chat: ChatSession, screen: Screen, argument: str) -> None:
    known = [row.id for row in chat.manager.ledger.list_sessions(limit=1_000)]
    if not argument:
        run_sessions(chat, screen, "")
        screen.note("name one: /resume SESSION, or the start of its name")
        return
    found = [one for one in known if one == argument] or [one for one in known if one.startswith(argument)]
    if len(found) != 1:
        why = tr("matches several sessions") if found else tr("is not a session")
        screen.note("{argument!r} {why}; /sessions lists them", "yellow", argument=argument[:60], why=why)
        return
    chat.open(found[0])
    status = chat.status()
    count = count_things(status.messages if status else 0, "message")
    screen.note(
        tr("session {name} · {count}", name=found[0], count=count) + ("" if screen.is_live else f" · {chat.gauge()}")
    )


def run_export(chat: ChatSession, screen: Screen, argument: str) -> None:
    from refold.ledger.codec import dump_json

    path = Path(argument or f"{Path(chat.session_id).name or 'session'}.json")
    if path.exists():
        screen.note("{path} already exists; name another file", "yellow", path=path)
        return
    content = dump_json(chat.manager.export_session(chat.session_id)) + b"\n"
    path.write_bytes(content)
    screen.show("wrote {path}: {content:,} bytes", path=path, content=len(content))


def run_cost(chat: ChatSession, screen: Screen, argument: str) -> None:  # noqa: ARG001
    bill = read_figures(chat.manager.ledger, chat.session_id, _REQUESTS_MAX).bill
    if not bill.requests:
        screen.show("the provider has reported no usage yet")
        return
    tokens = tr(
        "{requests} · {bill.tokens:,} tokens in ({bill.cached_share:.0%} from the cache) · {bill.output:,} out",
        requests=count_things(bill.requests, "request"),
        bill=bill,
    )
    if not bill.priced:
        screen.show("{tokens} · no known price", tokens=tokens)
        return
    unpriced = bill.requests - bill.priced
    rest = tr(" (without {count:,} of unknown price)", count=unpriced) if unpriced else ""
    screen.show("{tokens} · about ${dollars:.4f} at list prices{rest}", tokens=tokens, dollars=bill.dollars, rest=rest)


def run_quit(chat: ChatSession, screen: Screen, argument: str) -> None:  # noqa: ARG001
    chat.is_over = True


COMMANDS: dict[str, Run] = {one.name: globals()[f"run_{ALIASES.get(one.name, one.name)}"] for one in COMMAND_LIST}
