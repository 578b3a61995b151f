"""``refold chat``: a chat that never overflows its context window, in a terminal or a pipe."""

from __future__ import annotations

import contextlib
import logging
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.options import Preset, Workspace, name_session
from refold.cli.words import use_language
from refold.errors import ConfigError, Sentence

if TYPE_CHECKING:
    from refold.agent.models import Chosen
    from refold.cli.repl.session import ChatSession
    from refold.config import CompressionConfig


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
    is_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    is_typed = is_terminal and not request.once and not request.prompt
    if is_typed and find_spec("prompt_toolkit") is None:
        raise ConfigError(
            "a chat in a terminal needs prompt_toolkit; pip install 'refold[chat]', or pipe a question into --once"
        )
    # The libraries' request logs stay out of the conversation, even if logging was enabled elsewhere.
    for name in ("httpx", "httpx2", "openai", "anthropic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    open_chat = prepare_chat(request, folder)  # Before anything is drawn: without a model there is no chat.
    with contextlib.ExitStack() as opened:

        def open_now() -> ChatSession:
            chat = open_chat()
            opened.callback(chat.manager.close)
            return chat

        if is_typed:
            asyncio.run(_chat_at_terminal(folder, open_now))
            return
        from refold.cli.repl.screen import greet, open_screen
        from refold.cli.repl.session import talk_from_pipe

        chat = open_now()
        with open_screen(plain=True) as screen:
            greet(screen, chat, is_typed=False)
            asyncio.run(talk_from_pipe(chat, screen, request.prompt, is_once=request.once))


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
    from refold.cli.repl.screen import greet, open_screen
    from refold.cli.repl.session import talk

    with open_screen() as screen:
        await keyboard.print_above(lambda: greet(screen, chat, is_typed=True))
        await talk(chat, screen, keyboard, reading)
        screen.note("continue with: refold chat --session {session_id}", session_id=shlex.quote(chat.session_id))


def prepare_chat(request: ChatArguments, folder: Path) -> Callable[[], ChatSession]:
    """Choose the model and return the function that opens the chat; raise ConfigError if there is no model."""
    from refold.agent.models import Wanted, choose_chat_model
    from refold.config import load_config
    from refold.config.load import ChatBlock, read_block, read_model_variables

    named = Sentence("asked for" if request.model or request.base_url else "set as chat.model in the settings")
    settings = read_block(ChatBlock, folder)
    request = replace(request, **{name: value for name, value in settings if not getattr(request, name)})
    if request.summaries not in ("", "auto", "extract", "llm"):
        raise ConfigError("--summaries is {summaries!r}; give auto, llm or extract", summaries=request.summaries[:40])
    summariser = None if request.summaries in ("", "auto") else request.summaries
    config = load_config(folder, call={"preset": request.preset, "summariser": summariser})
    use_language(config.language)

    def choose(name: str, origin: str = Sentence("asked for")) -> Chosen:
        why = origin if name or request.base_url else Sentence("set as model in the settings")
        wanted = Wanted(name or config.model or "", request.base_url, origin=why)
        return choose_chat_model(wanted, read_model_variables())

    chosen = choose(request.model, named)
    if (window := getattr(chosen.model, "window", None)) and config.window is None:
        config = config.replace(window={chosen.model.name: window})
    return partial(_open_chat, request, config, chosen, choose)


def _open_chat(
    request: ChatArguments, config: CompressionConfig, chosen: Chosen, choose: Callable[[str], Chosen]
) -> ChatSession:
    from datetime import datetime

    from refold.agent.builtin import make_builtin_tools
    from refold.cli.input import find_newest
    from refold.cli.repl.session import SYSTEM, ChatSession, name_session
    from refold.manager import ContextCompressionManager

    # Long outputs may be cut, because the chat's model has tools that read the rest.
    manager = ContextCompressionManager(config.cut_on_arrival(), request.workspace)
    if config.tune == "auto":
        from refold.tuning import watch

        watch(manager, request.workspace)
    name = request.session
    if request.resume and not name:
        name = find_newest(manager.ledger) or ""
        if not name:
            raise ConfigError("there is no session to resume here; start one without --resume")
    groups = [one.strip() for one in request.tools.split(",") if one.strip()]
    return ChatSession(
        manager,
        chosen,
        choose,
        name or name_session(datetime.now(), manager.ledger),
        tools=make_builtin_tools(groups, request.workspace),
        system=request.system or SYSTEM,
        approve=(lambda _call, _tool: True) if request.yes else None,
    )
