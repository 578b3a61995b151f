"""``refold chat``: a chat that never runs out of window, in a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refold.cli.help import write_examples
from refold.cli.options import Preset, Workspace, complete_session
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.agent.choosing import Chosen
    from refold.cli.repl.chat_session import ChatSession, Choose
    from refold.config import CompressionConfig


@dataclass(frozen=True, slots=True)
class ChatWish:
    """What the command line says."""

    prompt: str = ""
    model: str = ""
    base_url: str = ""
    preset: str | None = None
    session: str = ""
    resume: bool = False
    tools: str = ""
    once: bool = False
    workspace: str = "."
    system: str = ""
    summaries: str = ""
    yes: bool = False

    def fill(self, settings: Mapping[str, str | int]) -> ChatWish:
        """Return the wish with what the settings say where the command line says nothing."""
        given: dict[str, Any] = {name: value for name, value in settings.items() if not getattr(self, name)}
        return replace(self, **given)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    examples = write_examples(
        "refold chat",
        'refold chat "which port does the service use?" --resume',
        "git diff | refold chat --once --system 'Review this.'",
        "refold chat --base-url http://127.0.0.1:11434/v1 --model llama3.2",
    )
    app.command("chat", epilog=examples)(chat)


def chat(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Answer this and end; unset: a chat.")] = "",
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="The model; unset: the first there is, and why.")
    ] = "",
    base_url: Annotated[
        str, typer.Option("--base-url", metavar="URL", help="Where it is: an OpenAI-compatible address.")
    ] = "",
    preset: Preset = None,
    session: Annotated[
        str,
        typer.Option(
            "--session",
            "-s",
            metavar="SESSION",
            autocompletion=complete_session,
            help="The session's name; a known one goes on.",
        ),
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", "-r", help="Go on with the session that changed last.")] = False,
    tools: Annotated[
        str, typer.Option("--tools", "-t", metavar="NAMES", help="What the model may use: files,shell.")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Answer the standard input and end.")] = False,
    workspace: Workspace = ".",
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="A system prompt of your own.")] = "",
    summaries: Annotated[
        str,
        typer.Option("--summaries", metavar="WHO", help="Who writes them: auto, llm (the model) or extract (rules)."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Let tools write and run without asking.")] = False,
) -> None:
    """Chat with a model, without end.

    The context is compressed before it overflows, and nothing is lost.
    """
    run(ChatWish(prompt, model, base_url, preset, session, resume, tools, once, workspace, system, summaries, yes))


def run(wish: ChatWish) -> None:
    """Chat until somebody leaves."""
    import asyncio

    folder = Path(wish.workspace)
    if not folder.is_dir():
        raise ConfigError(f"{wish.workspace!r} is not a folder; --workspace names the folder to work in")
    is_typed = _is_terminal(sys.stdin) and _is_terminal(sys.stdout) and not wish.once and not wish.prompt
    if is_typed:
        _need_keyboard()
    _quiet_logs()
    partner = find_partner(wish, folder)  # Before anything is drawn: without a model there is nothing to type to.
    opened: list[ChatSession] = []

    def open_now() -> ChatSession:
        opened.append(open_chat(partner, folder))
        return opened[0]

    try:
        if is_typed:
            from refold.cli.repl.starting import start_talking

            asyncio.run(start_talking(folder, open_now))
        else:
            _answer_pipe(wish, open_now())
    finally:
        for session in opened:
            session.manager.close()


def _answer_pipe(wish: ChatWish, session: ChatSession) -> None:
    import asyncio

    from refold.cli.repl.screen import greet, make_screen
    from refold.cli.repl.talk import talk_from_pipe

    with make_screen(plain=True) as screen:
        greet(screen, session, is_typed=False)
        asyncio.run(talk_from_pipe(session, screen, wish.prompt, is_once=wish.once))


@dataclass(frozen=True, slots=True)
class Partner:
    """Whom one talks to: the wish with what the settings add, the settings, the model, and how to choose another."""

    wish: ChatWish
    config: CompressionConfig
    chosen: Chosen
    choose: Choose


def find_partner(wish: ChatWish, folder: Path) -> Partner:
    """Return the model that the command line and the settings lead to; ConfigError if there is none."""
    from refold.cli.blocks import CHAT, read_block
    from refold.config import load_config

    told = "asked for" if wish.model or wish.base_url else "set as chat.model in the settings"
    wish = wish.fill(read_block(CHAT, folder))
    if wish.summaries not in ("", "auto", "extract", "llm"):
        raise ConfigError(f"--summaries is {wish.summaries[:40]!r}; give auto, llm or extract")
    summariser = None if wish.summaries in ("", "auto") else wish.summaries
    config = load_config(folder, call={"preset": wish.preset, "summariser": summariser})
    choose = _make_choose(wish, config)
    chosen = choose(wish.model, told)
    if (window := getattr(chosen.model, "window", None)) and config.window is None:
        config = config.replace(window={chosen.model.name: window})
    return Partner(wish, config, chosen, choose)


def open_chat(partner: Partner, folder: Path) -> ChatSession:
    """Return a chat with all that the command line and the settings say."""
    from datetime import datetime

    from refold.agent.builtin import make_builtin_tools
    from refold.cli.repl.chat_session import SYSTEM, ChatSession, name_session
    from refold.cli.workspace import find_newest
    from refold.manager import ContextCompressionManager

    wish, config, chosen = partner.wish, partner.config, partner.chosen
    # The chat's model has tools that read the rest of an output that was cut.
    manager = ContextCompressionManager(config.cut_on_arrival(), folder)
    if config.tune == "auto":
        from refold.tuning import watch

        watch(manager, folder)
    name = wish.session
    if wish.resume and not name:
        name = find_newest(manager.ledger) or ""
        if not name:
            raise ConfigError("there is no session to resume here; leave --resume away to begin one")
    groups = [one.strip() for one in wish.tools.split(",") if one.strip()]
    return ChatSession(
        manager,
        chosen,
        partner.choose,
        name or name_session(datetime.now()),
        tools=make_builtin_tools(groups, folder),
        system=wish.system or SYSTEM,
        approve=(lambda _call, _tool: True) if wish.yes else None,
    )


def _make_choose(wish: ChatWish, config: CompressionConfig) -> Choose:
    from refold.agent.choosing import Wanted, choose_chat_model
    from refold.config.load import read_model_variables

    def choose(name: str, told: str = "asked for") -> Chosen:
        why = told if name or wish.base_url else "set as model in the settings"
        return choose_chat_model(Wanted(name or config.model or "", wish.base_url, told=why), read_model_variables())

    return choose


def _quiet_logs() -> None:
    """Keep what libraries log of every request out of the conversation, also where another one switched logging on."""
    import logging

    for name in ("httpx", "httpx2", "openai", "anthropic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _need_keyboard() -> None:
    try:
        import prompt_toolkit  # noqa: F401
    except ImportError:
        raise ConfigError(
            "a chat in a terminal needs prompt_toolkit; pip install 'refold[chat]', or pipe a question into --once"
        ) from None


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())
