"""Session files of Claude Code (``projects/*/*.jsonl``), read as Anthropic messages.

A row holds a message beside bookkeeping; one answer of the model is spread over several rows with one message id,
results of one step over several user rows, and with parallel calls the two may alternate. Helpers (``isSidechain``)
are sessions of their own. Left out: its own summaries of compacted history (the history itself is in the file), answers
that the client wrote itself for errors, branches that a person abandoned, and calls that never got a result, because no
provider would accept them. The system prompt and the tools are not in the file, so they cannot be counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from refold.readers.chat import count_used, join_texts
from refold.readers.session import (
    Broken,
    Compaction,
    FileRow,
    RecordedUsage,
    Session,
    read_time,
    read_type,
    settle_times,
)

KIND = "claude-code"
_ROLES = ("user", "assistant")
_USED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
# The model's name in an answer that the client wrote itself: an error, a limit that was reached.
_SYNTHETIC = "<synthetic>"


def knows(row: dict[str, Any]) -> bool:
    return read_type(row) in _ROLES and isinstance(row.get("message"), dict) and "role" not in row


def read_rows(rows: Sequence[FileRow], name: str) -> tuple[list[Session], list[Broken]]:
    """Read the sessions of a file; each helper is a separate session."""
    lineage = Lineage(rows)
    # An older version copied the history into a new file when a session continued: the same row counts once.
    left, taken = lineage.find_left(rows), dict[str, object]()
    others: list[int] = []
    broken: list[Broken] = []
    builders: dict[str, _Builder] = {}
    names = _Names(lineage, name)
    for row in rows:
        value, uuid = row.value, row.value.get("uuid")
        key = names.find_key(value)
        if value.get("isCompactSummary") is True:
            builders.setdefault(key, _Builder()).add_compaction(value.get("message"))
        # New versions add new kinds of bookkeeping: skip rows that are not messages.
        if read_type(value) not in _ROLES or (isinstance(uuid, str) and uuid in left) or _is_unsent(value):
            continue
        if isinstance(uuid, str) and uuid in taken:
            others += [row.line] if value.get("message") != taken[uuid] else []
            continue
        if not isinstance(value.get("message"), dict):
            broken.append(Broken(row.line, f"a row of type {value['type']!r} whose message is not one"))
            continue
        why = builders.setdefault(key, _Builder()).add(value)
        if why:
            broken.append(Broken(row.line, why))
        elif isinstance(uuid, str):
            taken[uuid] = value["message"]
    if others:
        why = f"rows with the uuid of an earlier row but another message, which were skipped: {len(others):,}"
        broken.append(Broken(others[0], why))
    sessions = [builder.finish(names.title(key)) for key, builder in builders.items()]
    return [session for session in sessions if session.messages], broken


def _is_unsent(row: dict[str, Any]) -> bool:
    """Return whether a row was shown or stored but was never part of a request."""
    message = row.get("message")
    is_synthetic = isinstance(message, dict) and message.get("model") == _SYNTHETIC
    marks = ("isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")
    return is_synthetic or any(row.get(mark) is True for mark in marks)


class _Names:
    """Finds the session of a row. A session that continued under a new id is one: its first row's parent is here."""

    def __init__(self, lineage: Lineage, file_name: str) -> None:
        self._lineage = lineage
        self._file_name = file_name
        self._keys: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._owners: dict[str, str] = {}

    def find_key(self, row: dict[str, Any]) -> str:
        """Return the key of a row's session."""
        named = str(row.get("sessionId") or self._file_name)
        uuid, parent = row.get("uuid"), row.get("parentUuid") or row.get("logicalParentUuid")
        if row.get("isSidechain"):
            helper = row.get("agentId") or self._lineage.find_root(uuid) or "side"
            key = f"{self._keys.get(named, named)}/{helper}"
            self._titles.setdefault(key, f"{named}/{helper}")
            return key
        if named not in self._keys:
            self._keys[named] = self._owners.get(parent, named) if isinstance(parent, str) else named
        key = self._keys[named]
        self._titles[key] = named
        if isinstance(uuid, str):
            self._owners.setdefault(uuid, key)
        return key

    def title(self, key: str) -> str:
        """Return the session's own id: the last one it had."""
        return self._titles.get(key, key)


class _Builder:
    """Joins rows into messages."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._times: list[float | None] = []
        self._answer_id: object = None
        self._answer_at = -1
        self._model = ""
        self._compactions: list[Compaction] = []
        self._reported: dict[int, RecordedUsage] = {}

    def add_compaction(self, message: object) -> None:
        """Note that the client replaced everything so far by a summary of its own."""
        content = message.get("content") if isinstance(message, dict) else None
        self._compactions.append(Compaction(len(self._messages), join_texts(content)))

    def add(self, row: dict[str, Any]) -> str:
        """Add one row; return what is wrong with it, if anything."""
        message = row["message"]
        role, content = message.get("role", row["type"]), message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role not in _ROLES or not isinstance(blocks, list):
            return f"a message with role {str(role)[:20]!r} and content of type {type(content).__name__}"
        blocks = [block for block in blocks if isinstance(block, dict) and _has_content(block)]
        if not blocks:
            return ""
        model = message.get("model")
        if isinstance(model, str) and model and not model.startswith("<"):
            self._model = model
        self._join(role, blocks, message.get("id"), read_time(row.get("timestamp")))
        used = count_used(message.get("usage"), _USED)
        if role == "assistant" and used is not None:
            self._reported[self._answer_at] = used
        return ""

    def _join(self, role: str, blocks: list[dict[str, Any]], message_id: object, time: float | None) -> None:
        last = self._messages[-1] if self._messages else None
        if role == "assistant" and message_id is not None and message_id == self._answer_id:
            # Results of its first calls may be in between.
            self._messages[self._answer_at]["content"].extend(blocks)
            return
        if last is not None and role == "user" == last["role"] and _brings_results(blocks, last["content"]):
            last["content"].extend(blocks)
            return
        self._messages.append({"role": role, "content": blocks})
        self._times.append(time)
        # A user's message ends an answer, even if the answer's id appears again.
        if role == "assistant" or not _brings_results(blocks):
            self._answer_id, self._answer_at = (message_id if role == "assistant" else None), len(self._messages) - 1

    def finish(self, session_id: str) -> Session:
        """Return the session without unpaired calls and results."""
        kept: list[dict[str, Any]] = []
        places: list[int] = []
        for at, message in enumerate(self._messages):
            blocks = _keep_paired(self._messages, at)
            if blocks and (kept or message["role"] == "user"):
                kept.append({"role": message["role"], "content": blocks})
                places.append(at)
        return Session(
            session_id,
            tuple(kept),
            "anthropic",
            times=settle_times([self._times[at] for at in places]),
            model=self._model,
            client=KIND,
            compactions=tuple(one.moved(bisect_left(places, one.at)) for one in self._compactions),
            reported=tuple(
                self._reported[at].moved(number) for number, at in enumerate(places) if at in self._reported
            ),
        )


def _keep_paired(messages: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    """Return the blocks of a message without calls that the next one does not answer and results without a call."""
    blocks = messages[at]["content"]
    if messages[at]["role"] == "assistant":
        follows = messages[at + 1]["content"] if at + 1 < len(messages) else None
        if follows is None:
            return list(blocks)
        answered = {str(block.get("tool_use_id")) for block in follows if block.get("type") == "tool_result"}
        return [block for block in blocks if block.get("type") != "tool_use" or str(block.get("id")) in answered]
    before = messages[at - 1]["content"] if at else []
    called = {str(block.get("id")) for block in before if block.get("type") == "tool_use"}
    return [block for block in blocks if block.get("type") != "tool_result" or str(block.get("tool_use_id")) in called]


def _brings_results(*contents: list[dict[str, Any]]) -> bool:
    return all(block.get("type") == "tool_result" for blocks in contents for block in blocks)


def _has_content(block: dict[str, Any]) -> bool:
    return block.get("type") != "text" or bool(str(block.get("text") or "").strip())


class Lineage:
    """Parents of the rows of one file, by uuid. Links that are missing or go in circles end a walk."""

    def __init__(self, rows: Sequence[FileRow]) -> None:
        self._parents: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        for row in rows:
            uuid = row.value.get("uuid")
            parent = row.value.get("parentUuid") or row.value.get("logicalParentUuid")
            if isinstance(uuid, str) and uuid not in self._parents:
                self._parents[uuid] = parent if isinstance(parent, str) else ""

    def knows(self, uuid: object) -> bool:
        return isinstance(uuid, str) and uuid in self._parents

    def walk_up(self, uuid: str) -> Iterator[str]:
        """Yield a row and its ancestors, up to the first."""
        seen: set[str] = set()
        while uuid in self._parents and uuid not in seen:
            seen.add(uuid)
            yield uuid
            uuid = self._parents[uuid]

    def find_root(self, uuid: object) -> str:
        """Return the oldest ancestor of a row; the row itself if it has none."""
        if not isinstance(uuid, str):
            return ""
        passed: list[str] = []
        for one in self.walk_up(uuid):
            passed.append(one)
            if one in self._roots:
                break
        root = self._roots.get(passed[-1], passed[-1]) if passed else uuid
        self._roots.update(dict.fromkeys(passed, root))
        return root

    def find_left(self, rows: Sequence[FileRow]) -> frozenset[str]:
        """Return the rows of abandoned branches: not ancestors of the last row, and started by a user's prompt."""
        main = [row.value for row in rows if self.knows(row.value.get("uuid")) and not row.value.get("isSidechain")]
        spoken = [value for value in main if value.get("type") in ("user", "assistant")]
        chain = set(self.walk_up(spoken[-1]["uuid"])) if spoken else set()
        prompts = {value["uuid"] for value in spoken if is_prompt(value)} - chain
        return frozenset(self._find_below(prompts, chain, [value["uuid"] for value in main]) if prompts else ())

    def _find_below(self, prompts: set[str], chain: set[str], uuids: Sequence[str]) -> Iterator[str]:
        """Yield the rows that reach the chain through one of the prompts. Each row is visited once."""
        is_left: dict[str, bool | None] = dict.fromkeys(chain, False)
        for uuid in uuids:
            passed: list[str] = []
            answer: bool | None = None
            for one in self.walk_up(uuid):
                if one in is_left:
                    answer = is_left[one]
                    break
                passed.append(one)
            # None: the walk ended before it met the chain, so nothing shows that this branch was abandoned.
            for one in reversed(passed):
                if answer is False and one in prompts:
                    answer = True
                is_left[one] = answer
            if is_left.get(uuid):
                yield uuid


def is_prompt(row: dict[str, Any]) -> bool:
    """Return whether a row is a user's prompt, not results and not text that the program wrote."""
    message = row.get("message")
    if row.get("type") != "user" or row.get("isMeta") or row.get("isCompactSummary") or not isinstance(message, dict):
        return False
    content = message.get("content")
    if isinstance(content, str):
        return bool(content.strip())
    blocks = content if isinstance(content, list) else []
    return bool(blocks) and not any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)
