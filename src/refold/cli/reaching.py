"""Whether a model's address answers: its list of models is asked for, which costs nothing. No library is loaded.

The key goes to the address it is meant for and nowhere else: a redirection is not followed.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException

from refold.llm import anthropic, openai
from refold.llm.choose import Endpoint

TIMEOUT_S = 5.0


def _make_opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


def ask_models(endpoint: Endpoint, timeout_s: float = TIMEOUT_S) -> tuple[str, str]:
    """Return what is wrong with an address, and what to do about it; two empty texts if it answers."""
    if endpoint.provider == "anthropic":
        url = f"{(endpoint.url or anthropic.URL).rstrip('/')}/v1/models"
        headers = {"x-api-key": endpoint.key, "anthropic-version": "2023-06-01"}
        variable = "ANTHROPIC"
    else:
        url = f"{(endpoint.url or openai.URL).rstrip('/')}/models"
        headers = {"authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        variable = "OPENAI"
    request = urllib.request.Request(url, headers={**headers, "user-agent": "refold"})
    try:
        with _make_opener().open(request, timeout=timeout_s) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        return _read_status(error.code, variable)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return f"does not answer ({reason})", f"check {variable}_BASE_URL and the network"
    return "", ""


def _read_status(status: int, variable: str) -> tuple[str, str]:
    if status in (401, 403):
        return f"refuses the key (HTTP {status})", f"check {variable}_API_KEY"
    if status in (404, 405):
        return "", ""  # It answers; not every compatible server lists its models.
    return f"answers with HTTP {status}", f"check {variable}_BASE_URL, or try again later"
