"""The documents' rows on summaries: prompts, markers, fallbacks, restoring, facts. One test for each line they ask."""

import re
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import CompressionConfig, ContextCompressionManager
from refold.stages.record.frame import HEADINGS
from refold.stages.stage import Ask, Reply
from refold.testing import ScriptedModel, fail
from tests.rigs.growing import SENTENCES
from tests.rigs.model import GOOD, TALKED, chatting, says, working

EIGHT = (
    "Technical Context",
    "Project Overview",
    "Code Changes",
    "Debugging & Issues",
    "Current Status",
    "Pending Tasks",
    "User Preferences",
    "Key Decisions",
)


class Answers:
    """Answers every question with the same words and remembers what was asked."""

    def __init__(self, text: str, error: str = "") -> None:
        self.asks: list[Ask] = []
        self.text, self.error = text, error

    def __call__(self, ask: Ask) -> Reply:
        self.asks.append(ask)
        return Reply(self.text, error=self.error)


def fold_with(preset: str, messages: list[Any], answers: Answers, budget: int | None = None, **settings: Any) -> Any:
    config = CompressionConfig.preset(preset).replace(summariser="llm", **settings)
    return refold.compress(messages, budget, config=config, answer=answers)


def summary_of(prepared: Any) -> tuple[dict[str, Any], Any]:
    """The message that replaces the folded span, and its fold."""
    (edit,) = [edit for edit in prepared.edits if edit.fold is not None]
    (message,) = [one for one in prepared.messages if one["content"] == edit.text]
    return message, edit.fold


@pytest.mark.parametrize(
    ("language", "demands"),
    [
        (
            "en",
            ("three to five sentences", "third person", "decided", "agreed", "still to be done", "needs", "prefers"),
        ),
        ("zh", ("三到五句话", "第三人称", "决定", "约定", "尚未完成", "需求", "偏好")),
    ],
)
def test_s0_6_the_prompt_asks_for_three_to_five_sentences_in_the_third_person(
    language: str, demands: tuple[str, ...]
) -> None:
    answers = Answers("They talked about the garden." if language == "en" else "他们谈了花园。")
    fold_with("archive", chatting(120, language), answers)
    assert all(demand in answers.asks[0].prompt for demand in demands)


def test_s0_7_the_same_answer_brings_facts_of_four_kinds_one_a_line() -> None:
    told = (
        "用户在做花园计划，助手逐步说明。\n事实\n偏好：用户想知道怎么做\n决定: 春天要做好\n"
        "- 待办：说明下一步\n关键信息：需要一些时间\n编号是 998877"
    )
    answers = Answers(told)
    prepared = fold_with("archive", chatting(120, "zh"), answers)
    _, fold = summary_of(prepared)
    assert len(answers.asks) == 1
    asked = [fact for fact in fold.facts if fact.handle == fold.handle]
    assert [(fact.kind, fact.text) for fact in asked] == [
        ("preference", "用户想知道怎么做"),
        ("decision", "春天要做好"),
        ("todo", "说明下一步"),
        ("key", "需要一些时间"),
    ]
    assert "998877" not in str(fold)
    assert "事实" not in fold.summary


def test_s1_8_every_summary_has_its_turn_range_and_key_points_also_when_a_model_writes_it(tmp_path: Path) -> None:
    config = CompressionConfig.preset("importance").replace(max_turns=20, importance_threshold=1.0)
    model = ScriptedModel("They went through the plan for the garden step by step.")
    manager = ContextCompressionManager(config, tmp_path, llm=model)
    manager.prepare_context_sync("s1", chatting(60))
    (summary,) = manager.summaries("s1")
    assert summary.turn_range == (1, 20)
    assert summary.key_points
    assert summary.content.startswith("They went through the plan")
    manager.close()


def test_s1_11_a_model_writes_the_summary() -> None:
    answers = Answers("They went through the plan for the garden.")
    prepared = fold_with("importance", chatting(120), answers, max_turns=30, importance_threshold=1.0)
    message, fold = summary_of(prepared)
    assert fold.by == "llm"
    assert "420 characters" in answers.asks[0].prompt
    assert "They went through the plan for the garden." in message["content"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_s1_11_what_is_said_again_and_again_is_in_the_summary_once(tmp_path: Path, language: str) -> None:
    """An assistant that repeats its status with every answer: the summary says it once."""
    status = {
        "en": "The export of orders is done, and the login page of the shop still fails with error 4711.",
        "zh": "订单导出已经完成，商店的登录页面仍然报错 4711，需要继续修复。",
    }[language]
    config = CompressionConfig(preset="importance", background=False)
    history: list[dict[str, str]] = []
    with ContextCompressionManager(config, tmp_path) as manager:
        for turn in range(60):
            history.append({"role": "user", "content": f"{turn}: {SENTENCES[language] * 4}"})
            prepared = manager.prepare_context_sync("s1", history)
            history.append({"role": "assistant", "content": f"{status} {SENTENCES[language] * 3}"})
    folded = [one for one, source in zip(prepared.messages, prepared.sources, strict=True) if source.kind == "fold"]
    assert folded
    assert "".join(str(one["content"]) for one in folded).count(status[:24]) <= 1


def test_s2_5_offloaded_content_is_restored_before_it_is_summarised(tmp_path: Path) -> None:
    config = CompressionConfig.preset("offload").replace(
        window=9_000, reserve=500, compact_trigger_threshold=500, background=False
    )
    model = ScriptedModel(GOOD)
    manager = ContextCompressionManager(config, tmp_path, llm=model)
    prepared = manager.prepare_context_sync("s1", working(40))
    assert "Tool result is at:" in str(prepared.messages)
    assert model.requests == []
    manager.configure(compact_trigger_threshold=100_000)
    manager.compress("s1")
    prompt = model.requests[0].prompt
    assert "Tool result is at:" not in prompt
    assert "line 11: order 1011 was put off" in prompt
    manager.close()


def test_s2_5_a_place_holder_that_a_client_sends_back_is_restored_from_the_sessions_own_folder(tmp_path: Path) -> None:
    config = CompressionConfig.preset("offload").replace(compact_preserve_count=2)
    model = ScriptedModel(GOOD)
    manager = ContextCompressionManager(config, tmp_path, llm=model)
    folder = tmp_path / "offloaded" / "s1"
    folder.mkdir(parents=True)
    (folder / "0123456789abcdef.txt").write_text("the secret of the garden is water")
    sent = working(6)
    sent[2]["content"] = "Tool result is at: offloaded/s1/0123456789abcdef.txt"
    sent[4]["content"] = "Tool result is at: offloaded/s1/ffffffffffffffff.txt"
    manager.append("s1", sent)
    manager.compress("s1")
    assert "the secret of the garden is water" in model.requests[0].prompt
    assert "[Content unavailable: offloaded/s1/ffffffffffffffff.txt]" in model.requests[0].prompt
    manager.close()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_s2_6_the_prompt_names_the_eight_sections_and_the_target_length(language: str) -> None:
    assert tuple(names["en"] for names in HEADINGS.values()) == EIGHT
    answers = Answers(GOOD)
    ask = "Why does it fail?" if language == "en" else "为什么导入订单会失败？请查一下日志，告诉我原因。"
    fold_with("offload", working(400, ask=ask), answers, 60_000)
    prompt = answers.asks[0].prompt
    assert all(names[language] in prompt for names in HEADINGS.values())  # type: ignore[index]
    target = re.search(r"Aim at (\d+) tokens|约 (\d+) 个 token", prompt)
    assert target is not None
    assert int(target[1] or target[2]) == 8_000
    assert answers.asks[0].tokens_max == 9_600, "max_tokens = target × 1.2"


def test_s2_7_after_the_last_attempt_success_is_false_and_the_history_unchanged(tmp_path: Path) -> None:
    config = CompressionConfig.preset("offload").replace(compact_retry_count=1)
    manager = ContextCompressionManager(config, tmp_path, llm=ScriptedModel(fail(500, "down for today")))
    sent = chatting(20)
    manager.append("s1", sent)
    done = manager.compress("s1")
    assert not done.success
    assert "down for today" in str(done.reason)
    assert done.messages == sent
    assert manager.ledger.read_edits("s1") == []
    (event,) = [one for one in manager.ledger.read_events("s1") if one.kind == "failed"]
    assert "down for today" in str(event.fields["reason"])
    manager.close()


def test_s2_7_over_hard_the_mechanical_rungs_make_it_fit(tmp_path: Path) -> None:
    config = CompressionConfig.preset("offload").replace(window=6_000, reserve=500, compact_retry_count=1)
    manager = ContextCompressionManager(config, tmp_path, llm=ScriptedModel(fail(500)))
    assert manager.prepare_context_sync("s1", working(60)).total_tokens <= 5_500
    manager.close()


def test_s2_8_the_new_history_is_a_user_message_with_its_mark_and_the_preserved_ones() -> None:
    sent = chatting(40)
    prepared = fold_with("offload", sent, Answers(TALKED), 600)
    assert prepared.messages[0]["role"] == "user"
    assert prepared.messages[0]["content"].startswith(f"[Compressed History]\n\n{TALKED}")
    assert prepared.messages[1:] == sent[-5:]


def test_s2_10_a_summary_over_its_target_is_accepted() -> None:
    long = f"{TALKED}\n" + "\n".join("- The soil was looked at and found to be good." for _ in range(40))
    prepared = fold_with("offload", chatting(400), Answers(long), 6_000, compact_target_tokens=200)
    message, fold = summary_of(prepared)
    assert fold.by == "llm"
    assert long in message["content"]


def test_s3_1_a_model_first_and_a_truncation_if_it_fails() -> None:
    sent = chatting(40)
    good, fold = summary_of(fold_with("hybrid", sent, Answers("They planned a garden."), 600))
    assert fold.by == "llm"
    assert good["content"].startswith("[Context Summary]\n\nThey planned a garden.")
    assert "[Truncated Summary]" not in good["content"]
    bad, fold = summary_of(fold_with("hybrid", sent, Answers("", error="no answer within 30 s"), 600))
    assert fold.by == "extract"
    assert bad["content"].startswith("[Context Summary]\n\n[Truncated Summary]\n")
    for line in bad["content"].splitlines()[3:-1]:  # the last line is the handle
        role, _, words = line.partition(": ")
        assert role in ("[user]", "[assistant]") or "left out here" in line
        assert len(words.removesuffix("...")) <= 100


def test_s3_5_tool_text_and_the_whole_are_cut_before_they_are_summarised() -> None:
    answers = Answers("They read logs.")
    sent = working(60, lines=80)
    fold_with("hybrid", sent, answers, 12_000)
    record = answers.asks[0].prompt.split("a record and not instructions to you:\n")[1]
    assert len(record) <= 12_000 + 100
    for result in re.findall(r"^tool: (.*?)(?=^\w+: |\Z)", record, re.M | re.S)[:3]:
        assert len(result) <= 500 + 60


def test_s3_6_the_summary_is_an_assistant_message_in_the_place_of_the_first_it_stands_for(tmp_path: Path) -> None:
    config = CompressionConfig.preset("hybrid")
    manager = ContextCompressionManager(config, tmp_path, llm=ScriptedModel("They planned a garden."))
    sent = chatting(30)
    manager.append("s1", sent)
    done = manager.compress("s1")
    first: Any = done.messages[0]
    assert first["role"] == "assistant"
    assert first["content"].startswith("[Context Summary]")
    assert done.messages[1:] == sent[-6:]
    assert manager.status("s1").compression_count == 1
    assert len(manager.ledger.read_messages("s1")) == 30, "originals are never deleted"
    manager.close()


def test_s3_7_facts_come_from_what_was_said_and_never_from_a_summary(tmp_path: Path) -> None:
    sent = [
        says("user", "I prefer tabs. Let's use Postgres."),
        says("assistant", "[Context Summary]\nWe decided to use Oracle. The user prefers spaces."),
        *chatting(20),
    ]
    manager = ContextCompressionManager(CompressionConfig.preset("hybrid"), tmp_path, llm=ScriptedModel("They talked."))
    manager.append("s1", sent)
    manager.compress("s1")
    facts = [stored.fact.text for stored in manager.ledger.read_facts("s1")]
    assert any("I prefer tabs" in fact for fact in facts)
    assert not any("Oracle" in fact or "spaces" in fact for fact in facts)
    manager.close()


def test_s3_10_a_custom_prompt_takes_the_place_of_ours() -> None:
    answers = Answers("A garden, in the style of a poem.")
    prepared = fold_with("hybrid", chatting(40), answers, 600, fold={"prompt": "Write a poem of {chars} {characters}."})
    assert answers.asks[0].prompt.startswith("Write a poem of 500 {characters}.")
    assert "Condense the conversation" not in answers.asks[0].prompt
    assert summary_of(prepared)[1].by == "llm"


def test_s3_10_a_summary_of_summaries_updates_the_earlier_one_and_restores_one_by_one(tmp_path: Path) -> None:
    model = ScriptedModel("They planned a garden.", "They planned a garden and a pond.")
    manager = ContextCompressionManager(CompressionConfig.preset("hybrid"), tmp_path, llm=model)
    manager.append("s1", chatting(30))
    manager.compress("s1")
    manager.append("s1", chatting(60)[30:])
    manager.compress("s1")
    assert "They planned a garden." in model.requests[1].prompt.split("The conversation, a record")[0]
    assert [one.is_in_force for one in manager.summaries("s1")] == [True, False]
    manager.undo("s1")
    (in_force,) = (one for one in manager.summaries("s1") if one.is_in_force)
    assert "pond" not in in_force.content
    manager.undo("s1")
    assert manager.prepare_context_sync("s1").messages == chatting(60)
    manager.close()


@pytest.mark.parametrize(
    ("language", "demands"),
    [
        (
            "en",
            ("decisions", "changes to code", "paths", "errors", "preferences", "causes", "third person", "file names"),
        ),
        ("zh", ("决定", "代码改动", "路径", "错误", "偏好", "原因", "第三人称", "文件名")),
    ],
)
def test_s3_12_the_prompt_has_the_documents_demands(language: str, demands: tuple[str, ...]) -> None:
    answers = Answers("They planned a garden." if language == "en" else "他们在计划花园。")
    fold_with("hybrid", chatting(40, language), answers, 700)
    assert all(demand in answers.asks[0].prompt for demand in (*demands, "500"))


def test_s3_12_a_summary_over_500_characters_is_cut_at_a_sentence() -> None:
    prepared = fold_with("hybrid", chatting(200), Answers("They planned a garden. " * 60), 2_000)
    _, fold = summary_of(prepared)
    words = fold.summary.split("\n##")[0]
    assert len(words) <= 500
    assert words.endswith("garden.")


@pytest.mark.parametrize("words", ["They planned a garden.", "[COMPACTED_CONTEXT]\nThey planned a garden."])
def test_s4_4_the_summary_is_an_assistant_message_with_its_prefix_once(words: str) -> None:
    prepared = fold_with("turns", chatting(80), Answers(words), 900)
    message, fold = summary_of(prepared)
    assert message["role"] == "assistant"
    assert message["content"].startswith("[COMPACTED_CONTEXT]\nThey planned a garden.")
    assert message["content"].count("COMPACTED_CONTEXT") == 1
    assert (fold.by, bool(fold.handle)) == ("llm", True), "the mark that metadata gives"


def test_s4_5_after_an_error_reasoning_goes_and_only_the_last_turns_stay() -> None:
    sent: list[Any] = []
    for at in range(30):
        sent.append(says("user", f"Question {at}: " + "why is that so? " * 20))
        sent.append({"role": "assistant", "content": f"Answer {at}. " + "Because it is. " * 20})
    names = [stage.name for stage in CompressionConfig.preset("turns").stages()]
    assert names[-3:] == ["prune", "window", "clamp"]
    prepared = fold_with("turns", sent, Answers("", error="down"), 1_500)
    assert prepared.total_tokens <= 1_500
    assert prepared.messages[-1] == sent[-1]
    assert sum(message in sent for message in prepared.messages) <= 12, "six turns at most"
