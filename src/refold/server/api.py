"""The interface under ``/api`` and the sidecar contract under ``/v1``, with their OpenAPI description.

Built only when first asked for: a gateway that nobody asks anything but completions never loads a framework.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from refold import __version__
from refold.errors import RefoldError
from refold.server.interface import Json, write_problem

if TYPE_CHECKING:
    from refold.server.app import Application

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
    401: "A key of this gateway is needed.",
    403: "Not for this caller.",
    404: "There is nothing of that name.",
    413: "Too large, or it cannot shrink enough.",
    422: "A setting is wrong.",
    502: "The upstream refused or failed.",
    503: "The upstream is not available.",
    504: "The upstream did not answer in time.",
}


def make_interface(application: Application) -> FastAPI:
    """Return the interface of an application."""
    from refold.server import api_chat, api_events, api_sessions, api_sidecar, api_workspace

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
    for part in (api_chat, api_events, api_workspace, api_sidecar, api_sessions):
        app.include_router(part.router)
    app.add_exception_handler(RefoldError, _tell_ours)
    app.add_exception_handler(RequestValidationError, _tell_invalid)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_exception_handler(Exception, _tell_unexpected)
    return app


def _tell_ours(_: Request, error: Exception) -> Json:
    assert isinstance(error, RefoldError)
    return write_problem(error.http_status, type(error).__name__, str(error))


def _tell_invalid(_: Request, error: Exception) -> Json:
    assert isinstance(error, RequestValidationError)
    # What was sent is not quoted: it may be a conversation.
    told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:8])
    return write_problem(400, "FormatError", told[:1_000])


def _tell_http(_: Request, error: Exception) -> Json:
    assert isinstance(error, HTTPException)
    made = write_problem(error.status_code, "HTTP", str(error.detail)[:300])
    for name, value in (error.headers or {}).items():
        made.headers[name] = value
    return made


def _tell_unexpected(request: Request, error: Exception) -> Json:
    log.error("unexpected", extra={"fields": {"error": type(error).__name__, "path": request.url.path[:200]}})
    return write_problem(500, "unexpected", f"unexpected {type(error).__name__}; this is a bug of refold")
