"""Stages that render a message on arrival compose: each works on what the one before it made."""

import json

from refold.conversation.message import Message, Part
from refold.stages.densify import Densify
from refold.stages.stage import render_arrival
from refold.stages.truncate import Truncate


def message(text: str) -> Message:
    return Message({"role": "tool"}, "tool", (Part("result", text),), "4f2a91c3" + "0" * 24, "id-1")


def rows(count: int) -> str:
    return json.dumps([{"id": at, "city": "Berlin", "note": f"row number {at} of the export"} for at in range(count)])


def test_what_is_dense_enough_is_not_cut():
    source = message(rows(1_000))
    assert len(source.parts[0].text) > 51_200
    (edit,) = render_arrival([Densify(), Truncate()], source)
    assert edit.stage == "densify"


def test_what_is_dense_and_still_too_large_is_cut_as_dense_text():
    dense, cut = render_arrival([Densify(), Truncate()], message(rows(5_000)))
    assert (dense.stage, cut.stage) == ("densify", "truncate")
    assert cut.level > dense.level
    assert cut.made_from == (dense.id,)
    assert cut.text.split("\n")[:2] == dense.text.split("\n")[:2]
    assert cut.text.endswith("\n⟨/m:4f2a91c3⟩")


def test_a_small_message_is_left_alone():
    assert render_arrival([Densify(), Truncate()], message("ok")) == []


def test_the_same_message_is_rendered_the_same_every_time():
    first, second = (render_arrival([Densify(), Truncate()], message(rows(5_000))) for _ in range(2))
    assert first == second
    assert [edit.id for edit in first] == [edit.id for edit in second]
