"""Injection through the manager: at the tail, stored, the same bytes on the next request, valid in every format."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.conversation import because
from refold.errors import BudgetTooSmall
from refold.formats import make_format
from tests.rigs.convert import to_anthropic, to_responses

PARROT = "The captain's parrot sleeps in the galley, below the brass lantern."
HOST = " ".join(["We talked at length about the voyage and the weather."] * 6 + [PARROT])
QUESTION = "What did you say earlier about the captain's parrot?"
FORMATS = ("openai-chat", "anthropic", "openai-responses")
CONFIG: dict[str, Any] = {
    "window": 12_000,
    "reserve": 1_000,
    "threshold_rounds": 30,
    "retention_count": 6,
    "model": "gpt-4o",
}
# A record with room for a sentence or two would say it itself; this one has room for its handle alone.
BARE_RECORD: dict[str, Any] = {"index_tokens_max": 0, "summary_tokens_max": 40}


def talk(count: int = 44) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "content": "Let us begin."}]
    said += [
        {"role": ("assistant", "user")[at % 2], "content": f"More talk about lunch, part {at}. " * 8}
        for at in range(count - 1)
    ]
    said[3] = {"role": "assistant", "content": HOST}
    return said


def convert(messages: list[dict[str, Any]], wire: str) -> list[Any]:
    if wire == "anthropic":
        return list(to_anthropic(messages)["messages"])
    return list(to_responses(messages)["input"]) if wire == "openai-responses" else messages


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ContextCompressionManager]:
    with ContextCompressionManager(CompressionConfig(**CONFIG), tmp_path) as made:
        yield made


def text_of(raw: Any) -> str:
    content = raw["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def prepare(manager: ContextCompressionManager, messages: list[Any], **more: Any) -> Any:
    return manager.prepare_context_sync("s", messages, **more)


def test_what_the_newest_message_refers_to_goes_to_the_tail_exact_and_marked(manager) -> None:
    manager.configure(fold=BARE_RECORD)
    prepare(manager, talk())
    prepared = prepare(manager, [*talk(), {"role": "user", "content": QUESTION}])
    last = text_of(prepared.messages[-1])
    assert last.startswith(f"{QUESTION}\n\n⟦")
    assert PARROT in last
    assert last.endswith("⟧")
    assert all(PARROT not in text_of(raw) for raw in prepared.messages[:-1])
    assert any("recall: the message refers back" in str(note) for note in prepared.report.notes)
    assert prepared.total_tokens <= prepared.report.budget.hard


@pytest.mark.parametrize("wire", FORMATS)
def test_every_format_stays_valid_and_the_next_request_has_the_same_bytes_before_it(tmp_path: Path, wire: str) -> None:
    with ContextCompressionManager(CompressionConfig(**CONFIG), tmp_path) as manager:
        history = convert(talk(), wire)
        prepare(manager, history, format=wire)
        history += convert([{"role": "user", "content": QUESTION}], wire)
        first = prepare(manager, copy.deepcopy(history), format=wire)
        assert PARROT in str(first.messages[-1])
        form = make_format(wire)
        assert form.find_faults([form.parse(raw) for raw in first.messages]) == []
        history += convert([{"role": "assistant", "content": "On galley."}], wire)
        history += convert([{"role": "user", "content": "Thanks!"}], wire)
        second = prepare(manager, copy.deepcopy(history), format=wire)
        assert second.messages[: len(first.messages)] == first.messages
        assert form.find_faults([form.parse(raw) for raw in second.messages]) == []
    # Another process sees the same.
    with ContextCompressionManager(CompressionConfig(**CONFIG), tmp_path) as later:
        again = prepare(later, copy.deepcopy(history), format=wire)
        assert again.messages == second.messages
        assert later.verify("s") == []


def test_nothing_is_added_below_a_message_that_is_no_longer_the_last(manager) -> None:
    manager.configure(recall={"inject": "off"})
    history = [*talk(), {"role": "user", "content": QUESTION}]
    prepare(manager, history)
    manager.configure(recall={"inject": "auto"})
    history += [{"role": "assistant", "content": "Let me think."}]
    prepared = prepare(manager, history)
    assert text_of(prepared.messages[-2]) == QUESTION


def test_off_adds_nothing_and_auto_leaves_other_messages_alone(manager) -> None:
    prepare(manager, talk())
    thanks = {"role": "user", "content": "Thanks, please go on with the next part."}
    prepared = prepare(manager, [*talk(), thanks])
    assert prepared.messages[-1] is thanks
    assert any(note.is_a(because.RECALL_NOTHING) for note in prepared.report.notes)
    manager.configure(recall={"inject": "off"})
    question = {"role": "user", "content": QUESTION}
    assert prepare(manager, [*talk(), question]).messages[-1] is question


def test_a_value_that_the_record_says_is_not_recalled_and_the_note_says_why(manager) -> None:
    history = talk()
    history[5] = {"role": "user", "content": HOST + " Our ticket-ZX99817 is about the harbour and its mooring fee."}
    prepare(manager, history)
    history.append({"role": "user", "content": "Close ticket-ZX99817 please and write the harbour report."})
    prepared = prepare(manager, history)
    assert "ticket-ZX99817" in text_of(prepared.messages[0])
    assert prepared.messages[-1] is history[-1]
    assert [str(note) for note in prepared.report.notes] == [
        "recall: nothing added: the message does not refer to folded messages"
    ]


def test_before_anything_is_folded_nothing_is_looked_for(manager, tmp_path: Path) -> None:
    question = {"role": "user", "content": QUESTION}
    prepared = prepare(manager, [*talk(6), question])
    assert prepared.messages[-1] is question
    assert not list(tmp_path.glob(".refold/*recall*"))


def test_preparing_the_same_twice_adds_once(manager) -> None:
    prepare(manager, talk())
    history = [*talk(), {"role": "user", "content": QUESTION}]
    first, second = prepare(manager, history), prepare(manager, history)
    assert first.messages == second.messages
    assert sum(edit.stage == "recall" for edit in second.edits) == 1
    assert [event.fields["tokens"] for event in manager.ledger.read_events("s") if event.kind == "recalled"]


def test_forgetting_what_was_quoted_takes_the_quote_too(manager, tmp_path: Path) -> None:
    manager.configure(fold=BARE_RECORD)
    prepare(manager, talk())
    history = [*talk(), {"role": "user", "content": QUESTION}]
    assert PARROT in text_of(prepare(manager, history).messages[-1])
    (found,) = [one for one in manager.recall("s", PARROT, 3) if PARROT in one.text]
    manager.forget("s", found.handle)
    assert "galley" not in str(manager.read_view("s")[-1].raw)
    manager.close()
    assert b"galley" not in (tmp_path / ".refold" / "ledger.db").read_bytes()


def test_what_was_recalled_can_be_undone_and_is_not_added_again(manager) -> None:
    prepare(manager, talk())
    history = [*talk(), {"role": "user", "content": QUESTION}]
    edit = next(one for one in prepare(manager, history).edits if one.stage == "recall")
    manager.undo("s", edit.id)
    assert text_of(prepare(manager, history).messages[-1]) == QUESTION


def test_a_fold_over_it_knows_the_words_of_the_user_and_not_the_quote(manager) -> None:
    prepare(manager, talk())
    history = [*talk(), {"role": "user", "content": QUESTION}]
    prepare(manager, history)
    history += [{"role": ("assistant", "user")[at % 2], "content": f"More on topic {at}. " * 8} for at in range(40)]
    prepared = prepare(manager, history)
    assert not any(edit.stage == "recall" and edit.covers[0] in _shown(manager) for edit in prepared.edits)
    assert "recalled from earlier" not in "".join(text_of(raw) for raw in prepared.messages)


def _shown(manager: ContextCompressionManager) -> set[str]:
    return {item.message.id for item in manager.read_view("s") if not item.is_fold}


def test_where_the_window_shrinks_the_quote_gives_way_before_the_request_fails(tmp_path: Path) -> None:
    long_question = f"{QUESTION} {'please now, please do. ' * 70}"
    history = [*talk(), {"role": "user", "content": long_question}]
    with ContextCompressionManager(CompressionConfig(**CONFIG), tmp_path) as manager:
        prepare(manager, talk())
        prepared = prepare(manager, history)
        assert PARROT in text_of(prepared.messages[-1])
        alone = manager.token_counter.count_text(long_question)
    small = CompressionConfig(**{**CONFIG, "window": alone + 130, "reserve": 20})
    with ContextCompressionManager(small, tmp_path) as manager:
        try:
            prepared = prepare(manager, history)
        except BudgetTooSmall:
            pytest.fail("the recalled text should have given way")
        assert text_of(prepared.messages[-1]) == long_question


@pytest.mark.parametrize("damage", [b"not a database at all" * 100, b""], ids=["overwritten", "emptied"])
def test_a_damaged_index_is_made_again_without_being_asked(manager, tmp_path: Path, damage: bytes) -> None:
    manager.configure(fold=BARE_RECORD)
    prepare(manager, talk())
    assert manager.recalling.upkeep.join()
    manager.recalling.close()
    for path in (tmp_path / ".refold").glob("*recall*"):
        path.write_bytes(damage)
    prepared = prepare(manager, [*talk(), {"role": "user", "content": QUESTION}])
    assert PARROT in text_of(prepared.messages[-1])
    assert manager.recalling.upkeep.join()
    assert manager.recall("s", "captain's parrot")
    assert manager.verify() == []


@pytest.mark.parametrize(
    "newest",
    ["\ud800 what did you say earlier about the captain's parrot? 🎉", "⟧⟦ " + QUESTION, QUESTION],
)
def test_any_message_may_be_the_newest_one(manager, newest: str) -> None:
    prepare(manager, talk())
    history = [*talk(), {"role": "user", "content": newest}]
    prepared = prepare(manager, history)
    last = text_of(prepared.messages[-1])
    assert last.startswith(f"{newest}\n\n⟦")
    assert PARROT in last
    manager.close()
    assert prepare(manager, history).messages == prepared.messages


def test_a_message_of_a_megabyte_and_an_image_alone_get_nothing(manager) -> None:
    manager.configure(window=2_000_000)
    prepare(manager, talk())
    manager.compress("s")
    long = {"role": "user", "content": f"{QUESTION} " * 20_000}
    assert prepare(manager, [*talk(), long]).messages[-1] is long
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
    assert prepare(manager, [*talk(), image]).messages[-1] is image


def test_chinese_questions_are_answered_in_their_own_frame(tmp_path: Path) -> None:
    said = [{"role": ("user", "assistant")[at % 2], "content": f"今天聊聊天气，第{at}段。" * 8} for at in range(44)]
    fact = "船长的鹦鹉睡在厨房的铜灯下面。"
    said[3] = {"role": "assistant", "content": "我们谈了很久的大海。" * 8 + fact}
    with ContextCompressionManager(CompressionConfig(**CONFIG), tmp_path) as manager:
        prepare(manager, said)
        prepared = prepare(manager, [*said, {"role": "user", "content": "你之前说船长的鹦鹉睡在哪里？"}])
        last = text_of(prepared.messages[-1])
        assert fact in last
        assert "以下为本次对话较早内容的原文摘录" in last


def test_what_a_message_names_is_in_no_file_once_it_is_forgotten(tmp_path: Path) -> None:
    history = talk()
    history[5] = {"role": "user", "content": HOST + " Our ticket-ZX99817 is about the harbour and its mooring fee."}
    config = CompressionConfig(**CONFIG, fold=BARE_RECORD)
    with ContextCompressionManager(config, tmp_path) as manager:
        prepare(manager, history)
        history.append({"role": "user", "content": "Close ticket-ZX99817 please and write the harbour report."})
        assert "mooring fee" in text_of(prepare(manager, history).messages[-1])
        digests = manager.ledger.read_path("s").digests
        for digest in (digests[5], digests[-1]):
            manager.forget("s", f"m:{digest[:8]}")
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()).lower()
    assert b"zx99817" not in left
