"""What every route of the interface stands on: who asks, which session is meant, how answers and errors look.

A tenant's names are turned into ids here and nowhere else, so no route can reach another tenant's session. Errors never
quote a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import AfterValidator, StringConstraints

from refold.errors import RefoldError
from refold.ledger.records import SESSION_ID_MAX, SessionRow
from refold.llm.choose import Endpoint
from refold.llm.conversation_model import GATEWAY
from refold.manager.status import read_title
from refold.server.auth import Caller
from refold.server.identity import belongs_to, make_id, name_session
from refold.server.reading import dump_json
from refold.server.summaries import find_stored

if TYPE_CHECKING:
    from refold.server.app import Application

PAGE_MAX = 1_000
NAME_MAX = 200


class NotFound(RefoldError):
    """There is no such session, for this tenant."""

    exit_code = 6
    http_status = 404


class Forbidden(RefoldError):
    """This concerns all tenants; one of them cannot ask for it."""

    http_status = 403


class Json(Response):
    """JSON of any content, lone surrogates and long integers included."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return dump_json(content)


def _check_text(text: str) -> str:
    if not text.isprintable() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("the text has half a character in it")
    if "\x00" in text:
        raise ValueError("the text has a null character in it")
    return text


Text = Annotated[str, StringConstraints(max_length=100_000), AfterValidator(_check_text)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX), AfterValidator(_check_text)]
Handle = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_check_text)]


class Access:
    """A caller's way to the sessions that are its own."""

    def __init__(self, application: Application, caller: Caller) -> None:
        self.application = application
        self.manager = application.managers.main
        self.ledger = self.manager.ledger
        self.tenant = caller.tenant

    def find_model(self, row: SessionRow) -> Endpoint | None:
        """Return the model that may write summaries of a session, with a key that is for this caller to spend."""
        variables = {} if self.tenant else self.manager.config.variables
        return find_stored(self.application.settings, variables, row)

    def need(self, name: str) -> SessionRow:
        """Return the row of a session by its name; NotFound if the caller has none of it."""
        session_id = make_id(self.tenant, name)
        row = self.ledger.read_session(session_id) if len(session_id) <= SESSION_ID_MAX else None
        if row is None:
            raise NotFound(f"there is no session {name[:80]!r}")
        return row

    def name(self, session_id: str) -> str:
        """Return a session's name as the caller knows it."""
        return name_session(self.tenant, session_id)

    def owns(self, session_id: str) -> bool:
        """Tell whether a session is the caller's."""
        return belongs_to(self.tenant, session_id)

    def list_rows(self, limit: int, offset: int) -> list[SessionRow]:
        """Return the caller's sessions, the last changed first."""
        if not self.tenant:
            return self.ledger.list_sessions(limit=limit, offset=offset)
        return self.ledger.list_sessions(limit=limit, offset=offset, prefix=make_id(self.tenant, ""))

    def check_operator(self) -> None:
        """Raise Forbidden unless there are no tenants: then the caller is the operator."""
        if self.tenant:
            raise Forbidden("this concerns every tenant; ask the operator")


def find_access(request: Request) -> Access:
    """Return the caller's access; a dependency of every route."""
    return Access(request.app.state.application, request.scope["refold.caller"])


Asker = Annotated[Access, Depends(find_access)]


def describe_row(access: Access, row: SessionRow) -> dict[str, object]:
    """Return a session for a list: also the program that it belongs to and the session that it was begun from."""
    made = row.settings.get(GATEWAY)
    told = made if isinstance(made, Mapping) else {}
    return {
        "session": access.name(row.id),
        "title": read_title(access.ledger, row),
        "client": str(told.get("client", "")),
        "parent": access.name(str(told.get("parent", ""))),
        "wire": row.wire,
        "model": row.model,
        "messages": row.messages,
        "tokens": row.tokens,
        "compressions": row.compression_count,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def write_problem(status: int, kind: str, message: str, fields: Mapping[str, object] | None = None) -> Json:
    """Return an error as the interface writes it."""
    return Json({"error": {"kind": kind, "message": message, **(fields or {})}}, status)
