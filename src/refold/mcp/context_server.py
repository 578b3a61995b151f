"""An MCP server with the context tools of a workspace's sessions, over stdio or HTTP on loopback.

The session is an argument of every call; without one it is the server's own, or the only one of the workspace. Where
several exist, a call that names none is refused with a list of them. The server keeps nothing between calls except the
manager: the record belongs to the workspace. It answers in words. Descriptions of the tools are in the user's language;
answers about a session are in that of the conversation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from refold import __version__
from refold.agent.context_tools import PAGE_CHARS, ContextTools
from refold.cli.app import describe_error
from refold.cli.output import tr, translate
from refold.errors import RefoldError
from refold.manager import ContextCompressionManager

INSTRUCTIONS = (
    "refold keeps every message of a session and folds old ones. context_status says how full a context is, "
    "context_compress folds now, context_recall searches everything ever said, context_expand reads an original by its "
    "handle, context_append stores messages, context_prepare returns a context that fits."
)
MESSAGES_MAX = 10_000
LISTED_MAX = 20
SESSION = "the session's name; not needed if the server has one, or only one exists"
Session = Annotated[str, Field(description=SESSION, max_length=256)]


class Sessions:
    """Finds the tools of a session."""

    def __init__(self, manager: ContextCompressionManager, default: str = "") -> None:
        self.manager = manager
        self.default = default

    def find(self, session: str) -> ContextTools:
        """Return the tools of a session by name, of the server's own, or of the only one that exists.

        ToolError if several exist: the one that changed last may belong to somebody else.
        """
        name = session or self.default
        if not name:
            rows = self.manager.ledger.list_sessions(limit=LISTED_MAX + 1)
            if len(rows) > 1:
                listed = ", ".join(repr(row.id[:80]) for row in rows[:LISTED_MAX])
                more = ", …" if len(rows) > LISTED_MAX else ""
                raise ToolError(
                    tr("several sessions exist; name one with the argument session: {listed}", listed=listed + more)
                )
            name = rows[0].id if rows else "default"
        return ContextTools(self.manager, name)


def make_server(manager: ContextCompressionManager, session: str = "") -> MCPServer[Any]:
    """Return the server; ``session`` is the default of calls that name none."""
    server: MCPServer[Any] = MCPServer(
        "refold", title="refold context", instructions=translate(INSTRUCTIONS), version=__version__, log_level="WARNING"
    )
    sessions = Sessions(manager, session)
    _add_reading(server, sessions)
    _add_changing(server, sessions)
    return server


def _offer_by(server: MCPServer[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds a tool to the server, described in the user's language."""

    def offer(function: Callable[..., Any]) -> Callable[..., Any]:
        if "session" in function.__annotations__:
            function.__annotations__["session"] = Annotated[str, Field(description=translate(SESSION), max_length=256)]
        return server.tool(description=translate(function.__doc__ or ""), structured_output=False)(function)

    return offer


def _add_reading(server: MCPServer[Any], sessions: Sessions) -> None:
    @_offer_by(server)
    async def context_status(session: Session = "") -> str:
        """Tell how full the context is: tokens, window, turns, compressions, and what happens next."""
        return await asyncio.to_thread(lambda: sessions.find(session).context_status())

    @_offer_by(server)
    async def context_summary(limit: int = 3, session: Session = "") -> str:
        """Read the newest summaries of what was compressed."""
        return await asyncio.to_thread(lambda: sessions.find(session).context_summary(limit))

    @_offer_by(server)
    async def context_recall(query: str, limit: int = 5, session: Session = "") -> str:
        """Search everything ever said in the session, also what is no longer in view."""
        return await asyncio.to_thread(lambda: sessions.find(session).context_recall(query, limit))

    @_offer_by(server)
    async def context_expand(handle: str, offset: int = 0, limit: int = PAGE_CHARS, session: Session = "") -> str:
        """Read the exact original behind a handle such as m:4f2a91c3, page by page."""
        return await asyncio.to_thread(lambda: sessions.find(session).context_expand(handle, offset, limit))

    @_offer_by(server)
    async def context_sessions(limit: int = 20) -> str:
        """List the sessions of this workspace, the last changed first."""
        rows = await asyncio.to_thread(sessions.manager.ledger.list_sessions, limit=max(1, min(200, limit)))
        lines = [
            tr(
                "{id}: {messages:,} messages, {tokens:,} tokens, {model}",
                id=row.id,
                messages=row.messages,
                tokens=row.tokens,
                model=row.model or tr("no model"),
            )
            for row in rows
        ]
        return "\n".join(lines) or tr("no sessions yet")


def _add_changing(server: MCPServer[Any], sessions: Sessions) -> None:
    @_offer_by(server)
    async def context_compress(instructions: str = "", session: Session = "") -> str:
        """Compress the context now; nothing is lost. Say in a sentence what to keep in view above all."""
        return await sessions.find(session).context_compress(instructions)

    @_offer_by(server)
    async def context_config(
        changes: dict[str, Any] | None = None,
        maxTurns: int | None = None,  # noqa: N803 - the document's own names
        keepRecent: int | None = None,  # noqa: N803
        maxToolOutput: int | None = None,  # noqa: N803
        summaryMaxChars: int | None = None,  # noqa: N803
        autoCompress: bool | None = None,  # noqa: N803
        importanceThreshold: float | None = None,  # noqa: N803
        session: Session = "",
    ) -> str:
        """Show the settings of compression, or change some, such as {"keepRecent": 6}."""
        given = (maxTurns, keepRecent, maxToolOutput, summaryMaxChars, autoCompress, importanceThreshold)
        return await asyncio.to_thread(lambda: sessions.find(session).context_config(changes, *given))

    @_offer_by(server)
    async def context_pin(handle: str, session: Session = "") -> str:
        """Keep the message behind a handle from ever being compressed."""
        return await asyncio.to_thread(lambda: sessions.find(session).context_pin(handle))

    @_offer_by(server)
    async def context_append(messages: list[dict[str, Any]], session: Session = "") -> str:
        """Store messages of a conversation, in the format of OpenAI or Anthropic, so that they can be found again."""
        tools = sessions.find(session)
        if not 0 < len(messages) <= MESSAGES_MAX:
            return tr("give 1 to {most:,} messages", most=MESSAGES_MAX)
        try:
            count = await asyncio.to_thread(tools.manager.append, tools.session_id, messages)
        except RefoldError as error:
            return describe_error(error)
        return tr("session {session} has {count:,} messages now", session=tools.session_id, count=count)

    @_offer_by(server)
    async def context_prepare(model: str = "", session: Session = "") -> str:
        """Return the session as a context that fits the model's window, as JSON; compresses if it has to."""
        tools = sessions.find(session)
        try:
            prepared = await tools.manager.prepare_context(tools.session_id, None, model=model or None)
        except RefoldError as error:
            return describe_error(error)
        return json.dumps(
            {"session": tools.session_id, "tokens": prepared.total_tokens, "messages": prepared.messages},
            ensure_ascii=False,
        )
