"""Pages of originals join to the whole, letter by letter."""

import pytest

from refold.conversation.reason import text_reason
from refold.conversation.view import Edit, FoldRecord
from refold.errors import HandleUnknown
from refold.ledger.records import Batch
from tests.rigs.recall import Workspace


def test_pages_join_to_the_exact_original(workspace: Workspace) -> None:
    text = "".join(f"línea {number} 端口\n" for number in range(500))
    (message_id,) = workspace.say("s", text)
    handle = workspace.handle("s", message_id)
    pieces, offset = [], 0
    while True:
        page = workspace.recall.expand("s", handle, offset, 700)
        pieces.append(page.text)
        assert page.total == len(text)
        if page.next_offset is None:
            break
        offset = page.next_offset
    assert "".join(pieces) == text
    assert workspace.recall.expand("s", handle, len(text) + 5).text == ""
    assert workspace.recall.expand("s", handle, -3, 5).text == text[:5]


def test_a_part_of_a_message_has_a_handle_of_its_own(workspace: Workspace) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
    (message_id,) = workspace.add("s", [{"role": "assistant", "content": "looking", "tool_calls": [call]}])
    handle = workspace.handle("s", message_id)
    assert workspace.recall.expand("s", f"{handle}.0").text == "looking"
    assert workspace.recall.expand("s", f"{handle}.1").text == '{"path": "."}'
    assert workspace.recall.expand("s", handle).text == 'looking\nls({"path": "."})'
    with pytest.raises(HandleUnknown, match="2 parts"):
        workspace.recall.expand("s", f"{handle}.7")


def test_a_fold_expands_to_every_message_it_stands_for(workspace: Workspace) -> None:
    ids = workspace.say("s", "one", "two", "three")
    fold = Edit("fold", "fold", tuple(ids[:2]), text="x", fold=FoldRecord("f:12345678", "summary"))
    assert workspace.ledger.commit("s", Batch("b", (fold,), text_reason("test")), now=2.0)
    text = workspace.recall.expand("s", "⟨f:12345678⟩").text
    assert text.index("one") < text.index("two")
    assert "three" not in text


def test_a_forgotten_original_says_that_it_was_forgotten(workspace: Workspace) -> None:
    ids = workspace.say("s", "secret", "fine")
    handle = workspace.handle("s", ids[0])
    workspace.ledger.forget("s", ids[:1], 2.0)
    with pytest.raises(HandleUnknown, match="forgotten on request"):
        workspace.recall.expand("s", handle)
