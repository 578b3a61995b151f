"""Rendering a message on arrival: each stage sees what the one before it made, so that they compose.

A pure function of the message and the stages' options: rendered once, stored, replayed for ever. The edits of one part
rise in level; a later one is made from the earlier, so that undoing the earlier undoes both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from refold.conversation.message import Message, Part
from refold.conversation.view import Edit
from refold.stages.stage import ArrivalStage


def render_arrival(stages: Iterable[ArrivalStage], message: Message) -> list[Edit]:
    """Return what all arrival stages together make of one message, in their order."""
    edits: list[Edit] = []
    newest: dict[int, Edit] = {}
    seen = message
    for stage in stages:
        for found in stage.arrive(seen):
            assert found.part is not None
            before = newest.get(found.part)
            edit = found
            if before is not None:
                edit = replace(found, level=before.level + 1, made_from=(before.id,), id="")
            newest[found.part] = edit
            edits.append(edit)
        seen = replace(message, parts=_show(message, newest))
    return edits


def _show(message: Message, edits: dict[int, Edit]) -> tuple[Part, ...]:
    return tuple(replace(part, text=edits[at].text) if at in edits else part for at, part in enumerate(message.parts))
