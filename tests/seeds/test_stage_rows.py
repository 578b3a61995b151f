"""Rows of the documents about single stages and counting, each as it is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import CompressionConfig, ContextCompressionManager
from refold.conversation.message import Part
from refold.stages.fold import Fold
from refold.stages.offload import Offload
from refold.stages.score import score_message
from tests.rigs.stages import lines, propose, run, shown, step, user, view_of


def test_s0_2_messages_are_counted_as_four_each_with_content_and_role_and_two_in_all() -> None:
    counter = refold.TokenCounter()
    assert counter.count_messages([]) == 2
    hello = [{"role": "user", "content": "Hello world"}]
    assert counter.count_messages(hello) == 2 + 4 + counter.count_text("Hello world") + counter.count_text("user")
    both = [*hello, {"role": "assistant", "content": "Hi there!"}]
    assert counter.count_messages(both) == counter.count_messages(hello) + 4 + counter.count_text(
        "Hi there!"
    ) + counter.count_text("assistant")


RICH = " ".join(f"sentence number {n} says something new" for n in range(60))


@pytest.mark.parametrize(
    ("role", "kind", "text", "score"),
    [
        ("user", "text", "tell me about the weather in spring and autumn", 0.2),
        ("user", "text", "remember: this is important, tell me about spring", 0.4),
        ("user", "text", "run `make test` and tell me about the weather", 0.3),
        ("assistant", "text", "ok", 0.0),
        ("user", "text", "ok", 0.1),
        ("tool", "result", "forty two rows were written to the table today", 0.0),
    ],
)
def test_s1_2_a_message_is_scored_by_the_documents_weights(role: Any, kind: Any, text: str, score: float) -> None:
    found = score_message(role, (Part(kind, text),))
    assert found.score == score
    assert bool(found.reasons) is (score > 0 or role == "tool" or len(text) < 10)


def test_s1_2_a_rich_message_scores_more_than_a_plain_one() -> None:
    plain, rich = (score_message("user", (Part("text", text),)) for text in ("a plain question about it", RICH))
    assert round(rich.score - plain.score, 2) == 0.1


def test_s1_2_the_weights_and_words_are_settings() -> None:
    config = CompressionConfig(preset="importance", score={"user": 0.05, "keyword": 1, "keywords": ["ducks"]})
    fold = next(stage for stage in config.stages() if isinstance(stage, Fold))
    found = score_message("user", (Part("text", "it is important to feed the ducks"),), fold.score)
    assert (found.score, found.reasons) == (1.0, ("user +0.05", "keyword 'ducks' +1"))
    ready = CompressionConfig(fold=Fold(importance_threshold=0.5, score=fold.score))
    assert ready.score == fold.score, "a ready stage brings its own"
    with pytest.raises(refold.ConfigError, match=r"score\.user is 3"):
        CompressionConfig(score={"user": 3})
    with pytest.raises(refold.ConfigError, match="unknown stage 'score'"):
        CompressionConfig(ladder=["score"])


def tell_important(turns: int, important: tuple[int, ...]) -> list[dict[str, Any]]:
    """A chat in which some turns bring an important call with its result."""
    told: list[dict[str, Any]] = [{"role": "system", "content": "You are careful."}]
    for turn in range(turns):
        told += [{"role": "user", "content": f"hm {turn}"}, {"role": "assistant", "content": f"answer {turn}. " * 40}]
        if turn in important:
            told += step("decide", {"note": f"important decision {turn}: the port is {8000 + turn}"}, "noted")
            told[-2]["content"] = f"Important: we decided on port {8000 + turn}, remember it."
    return [*told, {"role": "user", "content": "and now?"}]


@pytest.mark.parametrize("important", [(0,), (0, 4), (3, 9), (9,), ()])
def test_s1_3_the_summary_comes_first_then_the_important_with_their_tool_pairs_then_the_recent(
    important: tuple[int, ...],
) -> None:
    told = tell_important(20, important)
    config = CompressionConfig(preset="importance", keep_recent=3)
    out = refold.compress(told, budget=2_200, config=config).messages
    kept = [message for message in told if "decided" in str(message) or message.get("content") == "noted"]
    recent = told[-5:]
    assert out[0] is told[0]
    assert "earlier messages" in out[1]["content"]
    assert out[2 : 2 + len(kept)] == kept
    assert len(kept) == 2 * len(important)
    assert out[2 + len(kept) :] == recent


def test_s1_3_the_order_holds_when_the_next_compression_takes_the_summary_in(tmp_path: Path) -> None:
    config = CompressionConfig(preset="importance", keep_recent=3, max_turns=12)
    told = tell_important(30, (0, 4, 16))
    for count in (30, 45, len(told)):
        # Every compression by another process: the place of a fold is in the ledger.
        manager = ContextCompressionManager(config, tmp_path)
        seen = manager.prepare_context_sync("s1", told[:count]).messages
        manager.close()
        folds = [at for at, message in enumerate(seen) if "earlier messages, done work" in str(message)]
        assert folds == [1]
        important = [message for message in told[:count] if "decided" in str(message)]
        assert [message for message in seen[2:] if "decided" in str(message)] == important
    restored = ContextCompressionManager(config, tmp_path)
    for _ in restored.ledger.read_batches("s1"):
        restored.undo("s1")
    assert [item.raw for item in restored.read_view("s1")] == told


def test_s2_1_old_tool_results_go_to_files_and_the_message_keeps_the_path_size_and_preview() -> None:
    steps = [message for n in range(8) for message in step("run", {"n": n}, lines(60, f"row{n}"))]
    view = view_of([user("go"), *steps, user("next")])
    edits = propose(Offload(), view)
    places = {message.id: at for at, message in enumerate(view.messages)}
    assert [places[edit.covers[0]] for edit in edits] == [2, 4, 6, 8], "the oldest half, oldest first"
    text = shown(run(Offload(), view))[2]
    assert re.match(r"Tool result is at: offloaded/\S+\.txt\b", text)
    assert "60 lines" in text
    assert "row0 0 of the output" in text


def test_s2_1_results_under_fifty_characters_stay() -> None:
    steps = [message for n in range(8) for message in step("run", {"n": n}, "x" * 49)]
    assert propose(Offload(), view_of([user("go"), *steps, user("next")])) == []


def test_s4_3_the_split_falls_between_user_turns_and_the_last_ones_stay_verbatim() -> None:
    messages: list[Any] = []
    for turn in range(10):
        messages += [user(f"question {turn} {lines(20)}"), *step("run", {"turn": turn}, lines(40)), user_result(turn)]
    config = refold.CompressionConfig.preset("turns").replace(keep_last_turns=3)
    prepared = refold.compress(messages, budget=2_500, config=config)
    kept = [message for message in prepared.messages if any(message is one for one in messages)]
    assert kept == messages[-12:]


def user_result(turn: int) -> dict[str, Any]:
    return {"role": "assistant", "content": f"answer {turn}"}


def test_s4_3_a_tool_result_inside_a_user_message_starts_no_turn() -> None:
    messages: list[Any] = []
    for turn in range(8):
        call = {"type": "tool_use", "id": f"t{turn}", "name": "run", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": lines(60)}
        messages += [
            {"role": "user", "content": f"question {turn}"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": f"answer {turn}"},
        ]
    config = refold.CompressionConfig.preset("turns").replace(keep_last_turns=2)
    prepared = refold.compress(messages, budget=2_500, config=config)
    assert prepared.messages[-8:] == messages[-8:]
    assert len(prepared.messages) == 9


def test_s4_8_counts_are_exact_the_ratio_is_recorded_and_summaries_are_summed_up() -> None:
    messages: list[Any] = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} {lines(20)}"} for n in range(40)
    ]
    first = refold.compress(messages, budget=3_000, model="gpt-4o")
    assert first.report is not None
    assert (first.report.counter, first.report.margin) == ("o200k_base", 0.0)
    assert first.report.tokens_after < first.report.tokens_before
    more = [*messages, *({**message, "content": f"later {message['content']}"} for message in messages)]
    again = refold.compress(more, budget=800, model="gpt-4o", edits=first.edits)
    folds = [edit for edit in again.edits if edit.kind == "fold"]
    assert any(set(edit.made_from) & {one.id for one in first.edits} for edit in folds)
