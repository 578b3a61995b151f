"""An MCP server with the context tools of a workspace's sessions, over stdio or HTTP on loopback.

The session is an argument of every call; without one it is the server's own, or the only one of the workspace. Where
several exist, a call that names none is refused with a list of them. The server keeps nothing between calls except the
manager: the record belongs to the workspace. It answers in words. Descriptions of the tools are in the user's language;
answers about a session are in that of the conversation.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from refold import __version__
from refold.agent.context_tools import ContextTools
from refold.agent.tools import Tool, make_tool
from refold.cli.words import count_things, describe_error, tr
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
SessionName = Annotated[str, Field(max_length=256)]


class Sessions:
    """Finds the tools of a session, and has the tools that only a server needs."""

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

    async def context_sessions(self, limit: int = 20) -> str:
        """List the sessions of this workspace, the last changed first."""
        rows = await asyncio.to_thread(self.manager.ledger.list_sessions, limit=max(1, min(200, limit)))
        lines = [
            tr(
                "{row.id}: {row.messages:,} messages, {row.tokens:,} tokens, {model}",
                row=row,
                model=row.model or tr("no model"),
            )
            for row in rows
        ]
        return "\n".join(lines) or tr("no sessions yet")

    async def context_append(self, messages: list[dict[str, Any]], session: SessionName = "") -> str:
        """Store messages of a conversation, in the format of OpenAI or Anthropic, so that they can be found again."""
        tools = self.find(session)
        if not 0 < len(messages) <= MESSAGES_MAX:
            return tr("give 1 to {most:,} messages", most=MESSAGES_MAX)
        try:
            stored = await asyncio.to_thread(self.manager.append, tools.session_id, messages)
        except RefoldError as error:
            return describe_error(error)
        count = count_things(stored, "message")
        return tr("session {session} has {messages} now", session=tools.session_id, messages=count)

    async def context_prepare(self, model: str = "", session: SessionName = "") -> str:
        """Return the session as a context that fits the model's window, as JSON; compresses if it has to."""
        tools = self.find(session)
        try:
            prepared = await self.manager.prepare_context(tools.session_id, None, model=model or None)
        except RefoldError as error:
            return describe_error(error)
        made = {"session": tools.session_id, "tokens": prepared.total_tokens, "messages": prepared.messages}
        return json.dumps(made, ensure_ascii=False)


def make_server(manager: ContextCompressionManager, session: str = "") -> MCPServer[Any]:
    """Return the server; ``session`` is the default of calls that name none."""
    server: MCPServer[Any] = MCPServer(
        "refold", title="refold context", instructions=tr(INSTRUCTIONS), version=__version__, log_level="WARNING"
    )
    sessions = Sessions(manager, session)
    own = (sessions.context_sessions, sessions.context_append, sessions.context_prepare)
    for tool in [*ContextTools(manager, "").list_tools(), *(make_tool(one) for one in own)]:
        described = server.tool(description=tr(tool.description), structured_output=False)
        described(_make_function(tool, sessions))
    return server


def _make_function(tool: Tool, sessions: Sessions) -> Callable[..., Any]:
    """Return a tool as a function with its arguments, described in the user's language.

    An agent's own context tool takes the name of the session, too.
    """
    is_about_one = hasattr(ContextTools, tool.name)

    async def function(**arguments: Any) -> str:
        if not is_about_one:
            return await tool.run(**arguments)
        found = await asyncio.to_thread(sessions.find, arguments.pop("session"))
        return await replace(tool, call=getattr(found, tool.name)).run(**arguments)

    taken = [*inspect.signature(tool.call, eval_str=True).parameters.values()]
    if is_about_one:
        taken.append(inspect.Parameter("session", inspect.Parameter.KEYWORD_ONLY, default="", annotation=SessionName))
    for at, one in enumerate(taken):
        about = SESSION if one.name == "session" else tool.arguments.model_fields[one.name].description
        taken[at] = one.replace(annotation=Annotated[one.annotation, Field(description=about and tr(about))])
    function.__name__ = tool.name
    function.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    return function
