"""The interface under ``/api`` and the sidecar routes under ``/v1``: the application, and what every route shares.

It is built on first use: a gateway that only serves completions never loads the framework. A tenant's session names
become ids here and nowhere else, so no route can reach another tenant's session. Errors never quote a request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, StringConstraints, ValidationError
from starlette.exceptions import HTTPException

from refold import __version__
from refold.conversation.reason import Language
from refold.errors import (
    ChangeRefused,
    FormatError,
    LedgerError,
    RefoldError,
    Sentence,
    SessionBusy,
    SessionNotFound,
    find_sentence,
)
from refold.ledger.records import SESSION_ID_MAX, SessionRow
from refold.llm.choose import Endpoint
from refold.manager.status import read_client, read_parent, read_title
from refold.sentences import choose_language, describe_error
from refold.server.auth import Caller, belongs_to, make_id, name_session
from refold.server.body import Unreadable, dump_json, parse_json
from refold.server.settings import find_stored

if TYPE_CHECKING:
    from refold.server.app import Application

PAGE_MAX = 1_000
NAME_MAX = 200
Model = TypeVar("Model", bound=BaseModel)
log = logging.getLogger("refold.server")
_PROBLEM = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "message"],
            "properties": {"kind": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}
_STATUSES = {
    400: "The request cannot be read.",
    401: "A gateway key is required.",
    403: "Not for this caller.",
    404: "Not found.",
    413: "Too large, or it cannot shrink enough.",
    422: "A setting is wrong.",
    502: "The upstream refused or failed.",
    503: "The upstream or the ledger is not available.",
    504: "The upstream did not answer in time.",
    507: "The tenant's storage is full.",
}


class NotFound(RefoldError):
    """This tenant has no such session."""

    exit_code = 6
    http_status = 404


class Forbidden(RefoldError):
    """Only the operator may do this, not a tenant."""

    http_status = 403


class Json(Response):
    """JSON of any content, including lone surrogates and long integers."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dump_json(content)


def _check_text(text: str) -> str:
    if not text.isprintable() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("the text contains a lone surrogate")
    if "\x00" in text:
        raise ValueError("the text contains a null character")
    return text


Text = Annotated[str, StringConstraints(max_length=100_000), AfterValidator(_check_text)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX), AfterValidator(_check_text)]
Handle = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_check_text)]


class Access:
    """A caller's access to its own sessions."""

    def __init__(self, application: Application, caller: Caller) -> None:
        self.application = application
        self.manager = application.manager
        self.ledger = self.manager.ledger
        self.tenant = caller.tenant

    def find_model(self, row: SessionRow) -> Endpoint | None:
        """Return the model that may write summaries of a session, with a key that this caller may spend."""
        variables = {} if self.tenant else self.manager.config.variables
        return find_stored(self.application.settings, variables, row)

    def need(self, name: str) -> SessionRow:
        """Return a session's row by its name; raise NotFound if the caller has no such session."""
        session_id = make_id(self.tenant, name)
        row = self.ledger.read_session(session_id) if len(session_id) <= SESSION_ID_MAX else None
        if row is None:
            raise NotFound("there is no session {name!r}", name=name[:80])
        return row

    def name(self, session_id: str) -> str:
        """Return a session's name as the caller knows it."""
        return name_session(self.tenant, session_id)

    def owns(self, session_id: str) -> bool:
        """Return whether a session belongs to the caller."""
        return belongs_to(self.tenant, session_id)

    def list_rows(self, limit: int, offset: int) -> list[SessionRow]:
        """Return the caller's sessions, most recently changed first."""
        if not self.tenant:
            return self.ledger.list_sessions(limit=limit, offset=offset)
        return self.ledger.list_sessions(limit=limit, offset=offset, prefix=make_id(self.tenant, ""))

    def check_operator(self) -> None:
        """Raise Forbidden for a tenant; without tenants the caller is the operator."""
        if self.tenant:
            raise Forbidden("only the operator may do this")


def find_access(request: Request) -> Access:
    """Return the caller's access; a dependency of every route."""
    return Access(request.app.state.application, request.scope["refold.caller"])


Asker = Annotated[Access, Depends(find_access)]


def describe_body(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that a route reads itself."""
    schema = kind.model_json_schema()
    # A reference into this schema would lead nowhere in the whole document.
    inner = {f"#/$defs/{name}": one for name, one in schema.pop("$defs", {}).items()}
    for one in schema["properties"].values():
        one.update(inner.get(one.pop("$ref", ""), {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def read_model(body: bytes, kind: type[Model]) -> Model:
    """Parse a body; raise FormatError if it is malformed, without quoting it."""
    try:
        return kind.model_validate(parse_json(body))
    except Unreadable:
        raise FormatError("the request is not JSON") from None
    except ValidationError as error:
        absent = [".".join(map(str, one["loc"])) for one in error.errors() if one["type"] in ("missing", "too_short")]
        wrong = FormatError("missing or empty: {fields}", fields=", ".join(absent))
        raise (wrong if absent else FormatError(_list_faults(error))) from None


def _list_faults(error: ValidationError | RequestValidationError) -> str:
    """Return what is wrong with a body. The input is not quoted: it may be a conversation."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:8])[:1_000]


# Ledger errors whose messages do not name its files.
_FOR_TENANTS = (SessionBusy, SessionNotFound, ChangeRefused)


def show_error(error: RefoldError, tenant: str) -> str:
    """Return an error's message for a caller. Only the operator sees the names of the ledger's files and servers."""
    if tenant and isinstance(error, LedgerError) and not isinstance(error, _FOR_TENANTS):
        return Sentence("the ledger cannot be read or written now; the operator of this gateway has to look at it")
    return find_sentence(error)


def translate_error(error: RefoldError, tenant: str, language: Language) -> str:
    """Return an error's message for a caller, in its language."""
    if language == "en":
        return show_error(error, tenant)
    shown = type(error)(show_error(error, tenant)) if isinstance(error, LedgerError) else error
    return describe_error(shown, language)


def describe_row(access: Access, row: SessionRow) -> dict[str, object]:
    """Return a session for a list, with its client program and the session that it branched from."""
    return {
        "session": access.name(row.id),
        "title": read_title(access.ledger, row),
        "client": read_client(row),
        "parent": access.name(read_parent(row)),
        "wire": row.wire,
        "model": row.model,
        "messages": row.messages,
        "tokens": row.tokens,
        "compressions": row.compression_count,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def write_problem(status: int, kind: str, message: str) -> Json:
    """Return an error response."""
    return Json({"error": {"kind": kind, "message": message}}, status)


def make_interface(application: Application) -> FastAPI:
    """Return the interface of an application."""
    from refold.server.api import sessions, sidecar, workspace

    problems: dict[int | str, dict[str, Any]] = {
        status: {"description": what, "content": {"application/json": {"schema": _PROBLEM}}}
        for status, what in _STATUSES.items()
    }
    app = FastAPI(
        title="refold",
        version=__version__,
        description="Sessions, compressions, originals and events of a refold gateway.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        default_response_class=Json,
        responses=problems,
        redirect_slashes=False,
    )
    app.state.application = application
    for part in (workspace, sidecar, sessions):
        app.include_router(part.router)
    for kind in (RefoldError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)
    return app


def _answer_error(request: Request, error: Exception) -> Json:
    if isinstance(error, RefoldError):
        language = choose_language("", request.headers.get("accept-language", ""))
        message = translate_error(error, request.scope["refold.caller"].tenant, language)
        if request.url.path.endswith("/api/chat/compress"):
            # S3.3: the document's chat reads a sentence.
            return Json({"error": message, "kind": type(error).__name__}, error.http_status)
        return write_problem(error.http_status, type(error).__name__, message)
    if isinstance(error, RequestValidationError):
        return write_problem(400, "FormatError", _list_faults(error))
    if isinstance(error, HTTPException):
        made = write_problem(error.status_code, "HTTP", str(error.detail)[:300])
        made.headers.update(error.headers or {})
        return made
    log.error("unexpected", extra={"fields": {"error": type(error).__name__, "path": request.url.path[:200]}})
    return write_problem(500, "unexpected", f"unexpected {type(error).__name__}; this is a bug of refold")
