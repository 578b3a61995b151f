"""Which rows of a Claude Code file the conversation went through.

Every row names its parent, rows of bookkeeping too; at a compaction the chain goes on by ``logicalParentUuid``. Who
goes back and asks something else leaves the old branch in the file: those rows were never part of what came after.
Only branches that begin with a person's words are left out: parallel calls branch as well, and all of them count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from refold.replay.rows import Row


class Lineage:
    """Parents of the rows of one file, by uuid. Links that are missing or go in circles end a walk."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._parents: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        for row in rows:
            uuid = row.value.get("uuid")
            parent = row.value.get("parentUuid") or row.value.get("logicalParentUuid")
            if isinstance(uuid, str) and uuid not in self._parents:
                self._parents[uuid] = parent if isinstance(parent, str) else ""

    def knows(self, uuid: object) -> bool:
        """Tell whether a row of this name is in the file."""
        return isinstance(uuid, str) and uuid in self._parents

    def walk_up(self, uuid: str) -> Iterator[str]:
        """Yield a row and what it goes back to, up to the first."""
        seen: set[str] = set()
        while uuid in self._parents and uuid not in seen:
            seen.add(uuid)
            yield uuid
            uuid = self._parents[uuid]

    def find_root(self, uuid: object) -> str:
        """Return the first row that a row goes back to; itself if nothing is known of it."""
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

    def find_left(self, rows: Sequence[Row]) -> frozenset[str]:
        """Return the rows of branches that a person left: off the chain of the last row, and begun with words."""
        main = [row.value for row in rows if self.knows(row.value.get("uuid")) and not row.value.get("isSidechain")]
        spoken = [value for value in main if value.get("type") in ("user", "assistant")]
        chain = set(self.walk_up(spoken[-1]["uuid"])) if spoken else set()
        prompts = {value["uuid"] for value in spoken if is_prompt(value)} - chain
        return frozenset(self._find_below(prompts, chain, [value["uuid"] for value in main]) if prompts else ())

    def _find_below(self, prompts: set[str], chain: set[str], uuids: Sequence[str]) -> Iterator[str]:
        """Yield the rows that reach the chain by way of one of the prompts. Each row is walked through once."""
        is_left: dict[str, bool | None] = dict.fromkeys(chain, False)
        for uuid in uuids:
            passed: list[str] = []
            answer: bool | None = None
            for one in self.walk_up(uuid):
                if one in is_left:
                    answer = is_left[one]
                    break
                passed.append(one)
            # None: the walk ended before it met the chain, so nothing says that this was left.
            for one in reversed(passed):
                if answer is False and one in prompts:
                    answer = True
                is_left[one] = answer
            if is_left.get(uuid):
                yield uuid


def is_prompt(row: dict[str, Any]) -> bool:
    """Tell whether a row holds words of a person, not results and not what the program wrote for itself."""
    message = row.get("message")
    if row.get("type") != "user" or row.get("isMeta") or row.get("isCompactSummary") or not isinstance(message, dict):
        return False
    content = message.get("content")
    if isinstance(content, str):
        return bool(content.strip())
    blocks = content if isinstance(content, list) else []
    return bool(blocks) and not any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)
