"""The three wire formats as the gateway sees them: paths, upstreams, messages, answers, and Anthropic's cache marks.

A cache mark writes the prefix up to its block; a later request finds it if one of its own marks is at most 20 blocks
further on. After a compression the marks among the messages move: one to the end of the folded part, one to the newest
block, and one between them if they are further apart than that. Marks on tools and system prompt stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.formats.block import MARK, drop_marks
from refold.formats.streamed import BlockAnswer, ChatAnswer, ResponseAnswer, StreamedAnswer

Side = Literal["openai", "anthropic"]
# Fields that refer to state at the provider.
_HELD = {
    "previous_response_id": because.PREVIOUS_RESPONSE,
    "conversation": because.CONVERSATION,
    "prompt": because.PROMPT,
}
_SEALED = frozenset(("compaction", "compaction_summary", "context_compaction"))
_CLIMBS = re.compile(r"(?:^|/|%2f)(?:\.|%2e){1,2}(?:/|%2f|$)|\\|%5c|//", re.I)
# An encoded slash is part of a model's name (meta-llama%2FLlama-3); elsewhere an upstream might read another path.
_HIDES_SLASH = re.compile(r"%2f", re.I)
_MODEL_PATH = "/v1/models/"
MARKS_MAX = 4
LOOKBACK_BLOCKS = 20
# Blocks that cannot carry a mark.
_UNMARKED = frozenset(("thinking", "redacted_thinking"))
Place = tuple[int, int]
# How clients ask for a summary of the conversation above it: Claude Code, Codex, Qwen Code and Gemini CLI.
_COMPACTION = re.compile(
    r"Your task is to create a detailed summary of th(?:e|is) (?:RECENT portion of the )?conversation"
    r"|You are performing a CONTEXT CHECKPOINT COMPACTION|\bgenerate the <state_snapshot>"
    r"|You are the component that summarizes (?:a conversation|internal chat history)"
)


@dataclass(frozen=True, slots=True)
class Wire:
    """One wire format. ``key`` names the messages, ``system`` a separate system prompt (empty: among the messages).

    ``limits`` name the output limit, ``answer`` is the class of its answers.
    """

    name: str
    side: Side
    key: str
    system: str
    limits: tuple[str, ...]
    find_pass_reason: Callable[[Mapping[str, Any]], Reason] = field(repr=False)
    answer: type[StreamedAnswer] = field(repr=False)


def _find_chat_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a chat request passes through unchanged; empty if it may be compressed."""
    return NO_REASON if isinstance(body.get("messages"), list) else because.NO_MESSAGES()


def _find_responses_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a Responses request passes through unchanged: the provider holds part of it, or compacts it itself."""
    for name, kind in _HELD.items():
        if body.get(name):
            return kind()
    if _asks_to_compact(body.get("context_management")):
        return because.PROVIDER_COMPACTION()
    items = body.get("input")
    if isinstance(items, str):
        return NO_REASON
    if not isinstance(items, list):
        return because.NO_MESSAGES()
    for item in items:
        if isinstance(item, dict) and (item.get("type") == "item_reference" or item.keys() == {"id"}):
            return because.PREVIOUS_RESPONSE()
        if isinstance(item, dict) and str(item.get("type")) in _SEALED:
            return because.PROVIDER_COMPACTION()
    return NO_REASON


def _asks_to_compact(edits: object) -> bool:
    """Return whether the client asks the provider to replace the conversation by its own summary.

    Other edits (clearing old thinking or tool results) work on a compressed request as well.
    """
    return isinstance(edits, list) and any(
        isinstance(edit, dict) and str(edit.get("type", "")).startswith("compact") for edit in edits
    )


def _find_anthropic_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a request passes through unchanged: the provider compacts the conversation itself."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return because.NO_MESSAGES()
    management = body.get("context_management")
    if isinstance(management, dict) and _asks_to_compact(management.get("edits")):
        return because.PROVIDER_COMPACTION()
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            kind = block.get("type") if isinstance(block, dict) else None
            if isinstance(kind, str) and "compaction" in kind:
                return because.PROVIDER_COMPACTION()
    return NO_REASON


CHAT = Wire(
    "openai-chat",
    "openai",
    "messages",
    "",
    ("max_completion_tokens", "max_tokens"),
    _find_chat_pass_reason,
    ChatAnswer,
)
RESPONSES = Wire(
    "openai-responses",
    "openai",
    "input",
    "instructions",
    ("max_output_tokens",),
    _find_responses_pass_reason,
    ResponseAnswer,
)
ANTHROPIC = Wire(
    "anthropic",
    "anthropic",
    "messages",
    "system",
    ("max_tokens",),
    _find_anthropic_pass_reason,
    BlockAnswer,
)
WIRES = {wire.name: wire for wire in (CHAT, RESPONSES, ANTHROPIC)}
_COMPRESSED = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": ANTHROPIC}
# Clients whose base URL was given without /v1.
_ALIASES = {path.removeprefix("/v1"): path for path in (*_COMPRESSED, "/v1/messages/count_tokens", "/v1/models")}
# Paths that tenants may use with the operator's key. None of them reads or changes the whole account.
_FOR_TENANTS = frozenset(
    (("GET", "/v1/models"), *(("POST", path) for path in (*_COMPRESSED, "/v1/messages/count_tokens", "/v1/embeddings")))
)
# Tenants may not use characters that a server behind the upstream could read as another path, such as %252f or ;.
_PLAIN_PATH = re.compile(r"(?:[\w.:@/~-]|%2[fF]|%3[aA]|%40)+")


def find_path(path: str) -> str | None:
    """Return the path as upstreams know it; None if the gateway does not serve it."""
    path = _ALIASES.get(path, path)
    if not path.startswith("/v1/") or _CLIMBS.search(path):
        return None
    if _HIDES_SLASH.search(path) and not path.startswith(_MODEL_PATH):
        return None
    return path


def is_for_tenants(method: str, path: str, more: Sequence[str] = ()) -> bool:
    """Return whether tenants that share the operator's key may use this path; ``more``: paths that settings allow."""
    if ".." in path or not _PLAIN_PATH.fullmatch(path):
        return False
    if (method, path) in _FOR_TENANTS or (method == "GET" and path.startswith(_MODEL_PATH)):
        return True
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in more)


def find_wire(method: str, path: str) -> Wire | None:
    """Return the wire format of a request that may be compressed; None for a request that only passes through."""
    return _COMPRESSED.get(path) if method == "POST" else None


def find_side(path: str, is_anthropic: bool) -> Side:
    """Return whose path this is; ``is_anthropic``: the client speaks Anthropic's protocol."""
    if path.startswith("/v1/messages") or is_anthropic:
        return "anthropic"
    return "openai"


def write_error(side: Side, status: int, message: str) -> dict[str, Any]:
    """Return a gateway error in the shape that the side's clients expect."""
    if side == "anthropic":
        kind = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}.get(
            status, "invalid_request_error" if status < 500 else "api_error"
        )
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": "refold"}}


def move_marks(body: Mapping[str, Any], messages: Sequence[Any]) -> dict[str, Any]:
    """Return the request with these messages and the client's marks moved; without marks, none are added."""
    given = body.get("messages")
    blocks = [block for one in (given if isinstance(given, list) else ()) for block in _list_blocks(one)]
    marks = [block[MARK] for block in blocks if isinstance(block, dict) and isinstance(block.get(MARK), dict)]
    if not marks:
        return {**body, "messages": list(messages)}
    above = [one for name in ("tools", "system") if isinstance(body.get(name), list) for one in body[name]]
    taken = sum(isinstance(one, dict) and bool(one.get(MARK)) for one in above)
    known = set(map(id, given or ()))
    # The last message that compression made; -1 if there is none.
    stable = max((at for at, message in enumerate(messages) if id(message) not in known), default=-1)
    plain: list[Any] = [drop_marks(message) for message in messages]
    for at, index in choose_places(plain, stable, MARKS_MAX - taken):
        content = list(_list_blocks(plain[at]))
        content[index] = {**content[index], MARK: marks[-1]}
        plain[at] = {**plain[at], "content": content}
    return {**body, "messages": plain}


def choose_places(messages: Sequence[Any], stable: int, free: int) -> list[Place]:
    """Return at most ``free`` places for marks, as message and block; the newest block comes first."""
    blocks = [
        (at, index)
        for at, message in enumerate(messages)
        for index, block in enumerate(_list_blocks(message))
        if _takes_mark(block)
    ]
    if not blocks or free <= 0:
        return []
    last = len(blocks) - 1
    wanted = [last]
    ends = [number for number, place in enumerate(blocks) if place[0] <= stable]
    if ends and ends[-1] != last:
        wanted.append(ends[-1])
    if last - (ends[-1] if ends else 0) > LOOKBACK_BLOCKS:
        wanted.append(last - LOOKBACK_BLOCKS)
    return sorted({blocks[number] for number in wanted[:free]})


def _list_blocks(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else []


def _takes_mark(block: Any) -> bool:
    if not isinstance(block, dict) or str(block.get("type")) in _UNMARKED:
        return False
    return block.get("type") != "text" or bool(block.get("text"))


def asks_for_summary(messages: Sequence[Any], system: Any) -> bool:
    """Return whether a client asks for a summary of its conversation: in its own newest text, or by Codex's trigger."""
    newest = messages[-1] if messages and isinstance(messages[-1], dict) else {}
    if newest.get("type") == "compaction_trigger":
        return True
    texts = _list_texts(newest.get("content")) if newest.get("role") == "user" else []
    return any(_COMPACTION.search(text) for text in (*texts, *_list_texts(system)))


def _list_texts(content: Any) -> list[str]:
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    found = (one.get("text") for one in blocks if isinstance(one, dict) and one.get("type") in ("text", "input_text"))
    return [text for text in found if isinstance(text, str)]
