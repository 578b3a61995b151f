"""``refold chat``: a chat that never overflows its context window, in a terminal or a pipe."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import Preset, Workspace, name_session
from refold.cli.output import use_language
from refold.errors import ConfigError, Sentence

if TYPE_CHECKING:
    from refold.agent.models import Chosen
    from refold.cli.repl.session import ChatSession, Choose
    from refold.config import CompressionConfig
    from refold.config.load import ChatBlock


@dataclass(frozen=True, slots=True)
class ChatArguments:
    """The command's arguments."""

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

    def fill(self, settings: ChatBlock) -> ChatArguments:
        """Return the request with unset arguments taken from the settings."""
        given: dict[str, Any] = {name: value for name, value in settings if not getattr(self, name)}
        return replace(self, **given)


@app.command(
    epilog=format_examples(
        "refold chat",
        'refold chat "which port does the service use?" --resume',
        "git diff | refold chat --once --system 'Review this.'",
        "refold chat --base-url http://127.0.0.1:11434/v1 --model llama3.2",
    )
)
def chat(
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="Answer this and exit; default: an interactive chat.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="Model; default: the first one available.")
    ] = "",
    base_url: Annotated[
        str, typer.Option("--base-url", metavar="URL", help="OpenAI-compatible address of the model.")
    ] = "",
    preset: Preset = None,
    session: Annotated[str, name_session("Session id; an existing session is continued.")] = "",
    resume: Annotated[bool, typer.Option("--resume", "-r", help="Continue the session that changed last.")] = False,
    tools: Annotated[
        str, typer.Option("--tools", "-t", metavar="NAMES", help="Tools that the model may use: files,shell.")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Answer standard input and exit.")] = False,
    workspace: Workspace = "",
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="System prompt.")] = "",
    summaries: Annotated[
        str,
        typer.Option(
            "--summaries", metavar="WHO", help="Who writes summaries: auto, llm (the model) or extract (rules)."
        ),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Let tools write files and run commands without asking.")
    ] = False,
) -> None:
    """Chat with a model for as long as you like.

    The context is compressed before it overflows, and nothing is lost.
    """
    _run_chat(
        ChatArguments(prompt, model, base_url, preset, session, resume, tools, once, workspace, system, summaries, yes)
    )


def _run_chat(request: ChatArguments) -> None:
    """Chat until the user leaves or the input ends."""
    import asyncio

    folder = Path(request.workspace)
    if not folder.is_dir():
        raise ConfigError(
            "{workspace!r} is not a folder; --workspace names the folder to work in", workspace=request.workspace
        )
    is_typed = _is_terminal(sys.stdin) and _is_terminal(sys.stdout) and not request.once and not request.prompt
    if is_typed and find_spec("prompt_toolkit") is None:
        raise ConfigError(
            "a chat in a terminal needs prompt_toolkit; pip install 'refold[chat]', or pipe a question into --once"
        )
    _quiet_logs()
    partner = find_partner(request, folder)  # Before anything is drawn: without a model there is no chat.
    opened: list[ChatSession] = []

    def open_now() -> ChatSession:
        opened.append(open_chat(partner, folder))
        return opened[0]

    try:
        if is_typed:
            asyncio.run(_chat_at_terminal(folder, open_now))
        else:
            _answer_pipe(request, open_now())
    finally:
        for one in opened:
            one.manager.close()


async def _chat_at_terminal(folder: Path, open_now: Callable[[], ChatSession]) -> None:
    """Show the prompt at once, open the chat while the user types, then chat until the user leaves."""
    import asyncio

    from refold.cli.repl.keyboard import Interrupted, Keyboard

    keyboard = Keyboard(folder)
    reading = asyncio.ensure_future(keyboard.read())
    await keyboard.wait_shown(reading)  # Importing now would delay drawing the prompt.
    try:
        chat = await asyncio.to_thread(open_now)
    except BaseException:
        # Cancel the prompt, so that the terminal is restored before the error is printed.
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, EOFError, Interrupted):
            await reading
        raise
    from refold.cli.repl.screen import greet, make_screen
    from refold.cli.repl.session import talk

    with make_screen() as screen:
        await keyboard.print_above(lambda: greet(screen, chat, is_typed=True))
        await talk(chat, screen, keyboard, reading)
        screen.note("continue with: refold chat --session {session_id}", session_id=shlex.quote(chat.session_id))


def _answer_pipe(request: ChatArguments, session: ChatSession) -> None:
    import asyncio

    from refold.cli.repl.screen import greet, make_screen
    from refold.cli.repl.session import talk_from_pipe

    with make_screen(plain=True) as screen:
        greet(screen, session, is_typed=False)
        asyncio.run(talk_from_pipe(session, screen, request.prompt, is_once=request.once))


@dataclass(frozen=True, slots=True)
class Partner:
    """The model of a chat, the completed request, the settings, and how to choose another model."""

    request: ChatArguments
    config: CompressionConfig
    chosen: Chosen
    choose: Choose


def find_partner(request: ChatArguments, folder: Path) -> Partner:
    """Return the model that the command line and the settings select; raise ConfigError if there is none."""
    from refold.config import load_config
    from refold.config.load import ChatBlock, read_block

    origin = Sentence("asked for" if request.model or request.base_url else "set as chat.model in the settings")
    request = request.fill(read_block(ChatBlock, folder))
    if request.summaries not in ("", "auto", "extract", "llm"):
        raise ConfigError("--summaries is {summaries!r}; give auto, llm or extract", summaries=request.summaries[:40])
    summariser = None if request.summaries in ("", "auto") else request.summaries
    config = load_config(folder, call={"preset": request.preset, "summariser": summariser})
    use_language(config.language)
    choose = _make_choose(request, config)
    chosen = choose(request.model, origin)
    if (window := getattr(chosen.model, "window", None)) and config.window is None:
        config = config.replace(window={chosen.model.name: window})
    return Partner(request, config, chosen, choose)


def open_chat(partner: Partner, folder: Path) -> ChatSession:
    """Return the chat that the command line and the settings describe."""
    from datetime import datetime

    from refold.agent.builtin import make_builtin_tools
    from refold.cli.input import find_newest
    from refold.cli.repl.session import SYSTEM, ChatSession, name_session
    from refold.manager import ContextCompressionManager

    request, config, chosen = partner.request, partner.config, partner.chosen
    # Long outputs may be cut, because the chat's model has tools that read the rest.
    manager = ContextCompressionManager(config.cut_on_arrival(), folder)
    if config.tune == "auto":
        from refold.tuning import watch

        watch(manager, folder)
    name = request.session
    if request.resume and not name:
        name = find_newest(manager.ledger) or ""
        if not name:
            raise ConfigError("there is no session to resume here; start one without --resume")
    groups = [one.strip() for one in request.tools.split(",") if one.strip()]
    return ChatSession(
        manager,
        chosen,
        partner.choose,
        name or name_session(datetime.now(), manager.ledger),
        tools=make_builtin_tools(groups, folder),
        system=request.system or SYSTEM,
        approve=(lambda _call, _tool: True) if request.yes else None,
    )


def _make_choose(request: ChatArguments, config: CompressionConfig) -> Choose:
    from refold.agent.models import Wanted, choose_chat_model
    from refold.config.load import read_model_variables

    def choose(name: str, origin: str = Sentence("asked for")) -> Chosen:
        why = origin if name or request.base_url else Sentence("set as model in the settings")
        return choose_chat_model(
            Wanted(name or config.model or "", request.base_url, origin=why), read_model_variables()
        )

    return choose


def _quiet_logs() -> None:
    """Keep the libraries' request logs out of the conversation, even if logging was enabled elsewhere."""
    import logging

    for name in ("httpx", "httpx2", "openai", "anthropic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())
