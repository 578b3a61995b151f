"""One small HTTP request with the standard library, for clients that ask a service now and then.

Models are asked through their SDKs. This is for the rest: whether a gateway or Ollama runs here, which models an
address lists, embeddings, a compressor under test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.request import HTTPErrorProcessor, ProxyHandler, Request, build_opener


class _AnyAnswer(HTTPErrorProcessor):
    def http_response(self, request: Request, response: Any) -> Any:  # noqa: ARG002
        return response  # Errors, and redirections, too: a key must not reach another address.

    https_response = http_response


def request_json(
    url: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float,
    bytes_max: int,
    is_local: bool = False,
) -> tuple[int, Any]:
    """Return the status of an answer and its JSON, None for an error in another form; a body makes it a POST.

    Follows no redirection. Raises OSError without a whole answer, ValueError for an address that cannot be read, and
    JSONDecodeError for such an answer. ``is_local``: no proxy is asked, whose answer would prove nothing.
    """
    data = None if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
    sent = {"user-agent": "refold", **({} if data is None else {"content-type": "application/json"}), **(headers or {})}
    opener = build_opener(_AnyAnswer(), *([ProxyHandler({})] if is_local else []))
    try:
        with opener.open(Request(url, data, sent), timeout=timeout_s) as answer:
            status, text = int(answer.status), answer.read(bytes_max)
    except HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    try:
        return status, json.loads(text)
    except (ValueError, RecursionError) as error:
        if status >= 300:
            return status, None
        raise json.JSONDecodeError("the answer is not JSON", "", 0) from error
