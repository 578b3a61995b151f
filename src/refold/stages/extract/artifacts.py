"""The artifact index: exact values of a folded span, each with the handle where it occurs, ranked, within a budget.

Filled by rules, never by a model. One pass over the messages; every value is a substring of what was said. The
index is cumulative: a later fold takes the artifacts of an earlier one in and ranks them anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from refold.conversation.edit import Artifact
from refold.conversation.handle import message_handle
from refold.conversation.message import Message
from refold.conversation.part import Part
from refold.stages.extract.actions import Action, find_actions
from refold.stages.extract.values import VALUE_CHARS_MAX, find_values

# What a fold remembers for the next one; what is written into the text is a fraction of it.
ARTIFACTS_MAX = 3_000
# What an earlier fold knew counts less with each fold over it, unless it is seen again.
CARRIED_SHARE = 0.7


@dataclass(slots=True)
class Evidence:
    """Where a value was met: in how many messages of each kind, and where last."""

    sort: str
    value: str
    by_user: int = 0
    by_call: int = 0
    by_assistant: int = 0
    by_result: int = 0
    times: int = 0
    last_at: int = 0
    handle: str = ""
    spoken: int = 0


# Who said it decides most: what a person names or the agent has used will be used again.
_USER, _CALL, _ASSISTANT, _RESULT = 4, 3, 2, 1


def find_artifacts(messages: Sequence[Message], actions: Sequence[Action] | None = None) -> list[Artifact]:
    """Return the exact values of these messages, best first."""
    met: dict[str, Evidence] = {}
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            _collect(met, at, message, number, part)
    notes = _note_files(find_actions(messages) if actions is None else actions)
    size = len(messages)
    found = [
        Artifact(
            seen.sort, seen.value, seen.handle, notes.get(seen.value, ""), weigh(seen, size, notes.get(seen.value, ""))
        )
        for seen in met.values()
    ]
    return rank(found)[:ARTIFACTS_MAX]


def rank(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Return artifacts by weight, heaviest first, ties by value so that the order is always the same."""
    return sorted(artifacts, key=lambda artifact: (-artifact.weight, artifact.value))


def merge_artifacts(earlier: Iterable[Artifact], later: Iterable[Artifact]) -> list[Artifact]:
    """Take what an earlier fold knew into what the new span shows, and rank them together."""
    merged = {artifact.value: replace(artifact, weight=artifact.weight * CARRIED_SHARE) for artifact in earlier}
    for artifact in later:
        before = merged.get(artifact.value)
        if before is not None:
            note = artifact.note or before.note
            artifact = replace(artifact, weight=artifact.weight + before.weight, note=note)
        merged[artifact.value] = artifact
    return rank(merged.values())[:ARTIFACTS_MAX]


def weigh(seen: Evidence, size: int, note: str) -> float:
    """Return how likely a value is to be needed again: who said it, how often, how lately, what it is."""
    weight = 3.0 * min(seen.by_user, 2) + 2.0 * min(seen.by_call, 3) + 1.0 * min(seen.by_assistant, 3)
    weight += 1.0 * math.log2(1 + seen.by_result) + 0.25 * math.log2(1 + seen.times)
    weight += 2.0 * (seen.last_at + 1) / max(1, size)
    weight *= _SORT_SHARE.get(seen.sort, 1.0)
    if note:
        weight += 3.0 if note != "read" else 1.5
    return round(weight, 4)


_SORT_SHARE = {
    "id": 1.4,
    "file": 1.3,
    "email": 1.3,
    "date": 1.2,
    "time": 0.5,
    "number": 0.6,
    "url": 0.9,
    "flag": 0.7,
    "name": 0.8,
}


def _collect(met: dict[str, Evidence], at: int, message: Message, number: int, part: Part) -> None:
    if part.kind not in ("text", "call", "result"):
        return
    is_user = part.kind == "text" and message.role == "user"
    is_spoken = part.kind == "text"
    handle = message_handle(message, number)
    spoken = _USER if is_user else _CALL if part.kind == "call" else _ASSISTANT if is_spoken else _RESULT
    text = _unescape(part.text) if part.kind == "call" else part.text
    for (sort, value), times in find_values(text, with_names=is_spoken).items():
        if len(value) > VALUE_CHARS_MAX:
            continue
        seen = met.get(value)
        if seen is None:
            seen = met[value] = Evidence(sort, value)
        seen.times += times
        seen.last_at = at
        if spoken == _USER:
            seen.by_user += 1
        elif spoken == _CALL:
            seen.by_call += 1
        elif spoken == _ASSISTANT:
            seen.by_assistant += 1
        else:
            seen.by_result += 1
        # The handle leads to the newest place that tells most: a result or a person, rather than a mere mention.
        if not seen.handle or spoken in (_RESULT, _USER):
            seen.handle = handle


def _unescape(arguments: str) -> str:
    """Return JSON text with its line breaks and quotes as separators, so that ``\\n`` glues no ``n`` to a word."""
    return arguments.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"') if "\\" in arguments else arguments


def _note_files(actions: Iterable[Action]) -> dict[str, str]:
    notes: dict[str, str] = {}
    for action in actions:
        for touch, path in action.touched:
            if touch != "read" or path not in notes:
                notes[path] = touch
    return notes
