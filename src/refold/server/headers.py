"""Which headers go through: all that concern the two ends, none that concern one connection only.

Headers are pairs of bytes with lower-case names, as ASGI has them. Nothing of refold's own (``x-refold-…``) ever goes
upstream, and what an upstream says under our names is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from refold.server.coding import CODINGS

Headers = Sequence[tuple[bytes, bytes]]

OWN = b"x-refold-"
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"trailers",
        b"transfer-encoding",
        b"upgrade",
    )
)
# Set anew for each connection: whose host it is, how long the body is, whether to wait before sending it.
_PER_REQUEST = frozenset((b"host", b"content-length", b"expect"))
# What the reader of answers can decode; an answer in another coding would pass through unread.
_CODINGS = (*CODINGS, "identity")


def find_header(headers: Headers, name: bytes) -> str:
    """Return the first value of a header, empty if there is none."""
    value = next((value for key, value in headers if key == name), b"")
    return value.decode("latin-1").strip()


def find_bearer(headers: Headers) -> str:
    """Return the bearer token of a request, empty if there is none."""
    stated = find_header(headers, b"authorization")
    return stated[7:].strip() if stated[:7].lower() == "bearer " else ""


_NEVER_SENT = _HOP_BY_HOP | _PER_REQUEST


def choose_request_headers(headers: Headers, *, drop: Iterable[bytes] = (), limit_codings: bool = False) -> Headers:
    """Return what goes upstream of a client's headers."""
    dropped = _NEVER_SENT.union(_name_per_connection(headers), drop)
    chosen: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name in dropped or name.startswith(OWN):
            continue
        chosen.append((name, _limit_codings(value) if limit_codings and name == b"accept-encoding" else value))
    return chosen


def choose_response_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return what goes to the client of an upstream's headers."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP.union(_name_per_connection(lowered))
    return [(name, value) for name, value in lowered if name not in dropped and not name.startswith(OWN)]


def write_own(values: Iterable[tuple[str, object]]) -> list[tuple[bytes, bytes]]:
    """Return headers of our own; values are made plain: one line, ASCII, of bounded length."""
    return [(OWN + name.encode(), _make_plain(str(value))) for name, value in values if value not in (None, "")]


def decode_headers(headers: Headers) -> list[tuple[str, str]]:
    """Return headers as text for a client that writes UTF-8: valid UTF-8 comes out as it went in."""
    return [(name.decode("latin-1"), _decode(value)) for name, value in headers]


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _name_per_connection(headers: Headers) -> frozenset[bytes]:
    """Return what the Connection header names as its own."""
    for name, value in headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            break
    else:
        return frozenset()
    named = [value for name, value in headers if name == b"connection"]
    return frozenset(token.strip().lower() for value in named for token in value.split(b",")) - {b""}


def _limit_codings(value: bytes) -> bytes:
    kept = [
        coding.strip()
        for coding in value.decode("latin-1").split(",")
        if coding.partition(";")[0].strip().lower() in _CODINGS
    ]
    return ", ".join(kept or ["identity"]).encode("latin-1")


def _make_plain(text: str) -> bytes:
    line = " ".join(text.split())[:300]
    return line.encode("ascii", "replace")
