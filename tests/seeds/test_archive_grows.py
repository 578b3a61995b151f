"""The archive document in a conversation that grows turn by turn, with the document's own numbers.

Every test takes at least 300 messages of an ordinary size through a face that people use, and says at each request
whether it is compressed, what stays, and that this never stops.
"""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager, ContextCompressor, PreparedContext
from refold.config import load_config
from refold.testing import ScriptedProvider
from tests.rigs.cli import Shell
from tests.rigs.growing import grow, say
from tests.rigs.server import Rig, make_body, start_rig

ROUNDS, TOKENS, KEPT = 100, 4_000, 50
# Where the kept messages alone have 4,000 tokens, every request would archive a message: so many come in between.
SPACING = 10
DOCUMENT = CompressionConfig(threshold_rounds=ROUNDS, threshold_tokens=TOKENS, retention_count=KEPT)
X_AGENT = "compression:\n  threshold_rounds: 100\n  threshold_tokens: 4000\n  retention_count: 50\n"
OPENING = "[历史对话摘要]"


def check_view(messages: list[Any], history: list[Any], language: str) -> None:
    """Check a compressed view: one summary in the document's form, then the newest messages as they came."""
    head, *kept = messages
    assert head["role"] == "system"
    text = head["content"]
    assert text.startswith(OPENING)
    assert text.count(OPENING) == 1
    closing = "以上" if language == "zh" else "The above"
    *_, last_but_one, handle = text.splitlines()
    assert closing in last_but_one
    assert handle.startswith("⟨f:")
    assert len(kept) >= KEPT
    assert kept == history[-len(kept) :]


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("size", "language", "count"),
    [
        ("short", "zh", 320),
        ("mixed", "en", 90),
        pytest.param("short", "en", 320, marks=SLOW),
        pytest.param("long", "en", 320, marks=SLOW),
        pytest.param("long", "zh", 320, marks=SLOW),
        pytest.param("mixed", "en", 320, marks=SLOW),
        pytest.param("mixed", "zh", 320, marks=SLOW),
    ],
)
def test_s0_3_a_growing_chat_is_archived_whenever_a_threshold_is_reached(
    tmp_path: Path, size: str, language: str, count: int
) -> None:
    acted: list[int] = []
    in_view = 0
    with ContextCompressionManager(DOCUMENT, tmp_path) as manager:
        for history in grow(size, language, count):
            prepared = manager.prepare_context_sync("s1", history)
            report = prepared.report
            assert report is not None
            in_view += 1 if len(history) == 1 else 2
            is_due = in_view >= ROUNDS or report.tokens_before >= TOKENS
            spoken = in_view - bool(acted)
            is_apart = not acted or len(history) - acted[-1] >= SPACING
            acts = is_due and spoken > KEPT and is_apart
            if acts and not report.stages:
                assert not acted, "it stopped"
                assert spoken <= KEPT + SPACING // 2, "the first archive waits for a few messages that are worth it"
                acts = False
            assert bool(report.stages) is acts, f"at {len(history)} messages: {report.reason}"
            if report.stages:
                acted.append(len(history))
                check_view(prepared.messages, history, language)
                assert len(prepared.messages) == KEPT + 1
                in_view = KEPT + 1
            assert len(prepared.messages) == in_view
        assert not manager.status("s1").stopped
        handle = prepared.messages[0]["content"].splitlines()[-1]  # type: ignore[index]
        originals = prepared.expand(handle)
        assert all(say(at, size, language)["content"] in originals for at in range(0, acted[-1] - KEPT, 7))
        assert manager.verify() == []
    assert len(acted) >= 4
    assert acted[-1] > count - (ROUNDS if size == "short" else SPACING + 2), "it stopped"


def test_s0_3_having_nothing_to_archive_is_neither_an_attempt_nor_reported_as_one(tmp_path: Path) -> None:
    manager = ContextCompressionManager(DOCUMENT, tmp_path)
    for history in grow("long", "en", KEPT):
        prepared = manager.prepare_context_sync("s1", history)
        assert prepared.messages == history
        assert prepared.report is not None
        assert prepared.report.stages == ()
    status = manager.status("s1")
    assert status.tokens > TOKENS
    assert not status.stopped
    assert manager.ledger.read_events("s1") == []
    row = manager.ledger.read_session("s1")
    assert row is not None
    assert "brake" not in row.settings


STARTS = {
    "greetings": ("hi", "Hello! How can I help?", "just saying hello", "Nice to meet you."),
    "问候": ("你好", "你好！有什么可以帮您？", "随便聊聊", "好的，您说。"),
    "symbols": ("👍", "🙂", "...", "?!"),
    "thanks": ("谢谢", "不客气", "嗯嗯", "好的"),
    "numbers": ("1", "2", "3", "4"),
    "code": ("```py\nx = 1\n```", "```py\nx = 2\n```", "ok", "fine"),
    "a link": ("https://example.com/a", "I see the page.", "and https://example.com/b", "That one too."),
    "one word, again": ("continue", "done", "continue", "done"),
    "a long question": ("What should I plant in a bed with little sun? " * 8, "Ferns. " * 40, "Thanks", "Welcome."),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("size", "language"), [("long", "en"), ("mixed", "zh"), ("short", "zh")])
def test_s0_4_the_first_archive_says_something_and_makes_the_context_smaller(
    tmp_path: Path, start: str, size: str, language: str
) -> None:
    with ContextCompressionManager(DOCUMENT, tmp_path) as manager:
        for history in grow(size, language, 130):
            for message, words in zip(history, STARTS[start], strict=False):
                message["content"] = words
            prepared = manager.prepare_context_sync("s1", history)
            report = prepared.report
            assert report is not None
            assert report.tokens_after <= report.tokens_before
            if report.stages:
                break
        page = next((tmp_path / "memory").glob("*.md")).read_text(encoding="utf-8")
    assert len(history) <= ROUNDS + 1
    assert report.tokens_after < report.tokens_before
    assert prepared.summary
    assert re.search(r"\w", prepared.summary)
    assert prepared.summary.splitlines()[0] in page
    assert prepared.summary in prepared.messages[0]["content"]  # type: ignore[index]


ORDERS = {
    "zh": (
        "记住：1202 房间的老人有心脏病，这条千万别忘。",
        "这次的总预算是 8000 元，不能超。",
        "所有价格都用人民币报。",
        "我对花生过敏。",
    ),
    "en": (
        "Remember: the guest in room 1202 has a heart condition, never forget this.",
        "The total budget is 8,000 EUR, do not exceed it.",
        "Always quote prices in EUR.",
        "From now on answer in short sentences, no tables.",
    ),
}
ERRANDS = {
    "zh": ("请看一下{topic}，编号 {at}，不急。", "{topic}已经处理，编号 {at}，结果正常，已通知值班同事，请放心。"),
    "en": ("Please look into {topic}, number {at}, soon.", "Done: {topic} is handled, number {at}. I told everyone."),
}
TOPICS = {
    "zh": ("今天的早餐", "下午的讲座", "电梯维修", "花园的玫瑰", "三楼的空调", "周末的电影", "洗衣房的排班"),
    "en": ("the breakfast", "the lecture", "the lift", "the roses", "the heating", "the film", "the laundry"),
}


@pytest.mark.parametrize("language", ["zh", "en"])
def test_s0_6_standing_orders_stay_in_the_summary_while_the_chat_goes_on(tmp_path: Path, language: str) -> None:
    orders = dict(zip((4, 10, 16, 22), ORDERS[language], strict=True))
    history: list[dict[str, str]] = []
    folds = 0
    with ContextCompressionManager(DOCUMENT, tmp_path) as manager:
        for at in range(300):
            words = ERRANDS[language][at % 2].format(topic=TOPICS[language][at // 2 % 7], at=100 + at * 7 % 900)
            history.append({"role": ("user", "assistant")[at % 2], "content": orders.get(at, words * (1 + at % 3))})
            if at % 2:
                continue
            prepared = manager.prepare_context_sync("s1", history)
            assert prepared.report is not None
            folds += bool(prepared.report.stages)
            if folds:
                assert prepared.summary is not None
                assert [order for order in ORDERS[language] if order not in prepared.summary] == []
    assert folds >= 4


def test_s0_1_the_chat_lists_the_three_settings_of_the_document_s_file_first(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
    (tmp_path / ".git").mkdir()
    (tmp_path / "x-agent.yaml").write_text(X_AGENT)
    with ScriptedProvider("fine") as provider:
        ran = Shell(tmp_path).refold("chat", "-m", "gpt-4o", "--base-url", provider.openai_url, stdin=b"/config\n")
    named = re.findall(r"^\W*(\w+)\s+(?:100|4000|50)\b", ran.text, re.M)
    listed = re.findall(r"^\W*([a-z]+[_A-Z]\w+) ", ran.text, re.M)
    assert named == ["threshold_rounds", "threshold_tokens", "retention_count"]
    assert listed[:4] == [*named, "maxTurns"]


def test_s0_3_a_request_that_is_sent_again_does_not_archive_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(DOCUMENT, tmp_path)
    *_, history = grow("long", "en", 61)
    first = manager.prepare_context_sync("s1", history)
    assert first.report is not None
    assert first.report.stages
    for _ in range(5):
        again = manager.prepare_context_sync("s1", history)
        assert again.messages == first.messages
        assert again.report is not None
        assert again.report.stages == ()
    assert not manager.status("s1").stopped


@pytest.mark.parametrize(
    ("size", "language"),
    [("short", "zh"), pytest.param("long", "en", marks=SLOW), pytest.param("mixed", "zh", marks=SLOW)],
)
def test_s0_3_a_growing_chat_through_the_gateway_is_archived_for_ever(
    tmp_path: Path, empty_home: Path, size: str, language: str
) -> None:
    fields = {"threshold_rounds": ROUNDS, "threshold_tokens": TOKENS, "retention_count": KEPT}
    with start_rig(tmp_path, config=fields) as rig:
        sizes = [_send(rig, history, language) for history in grow(size, language)]
    assert sizes[:25] == list(range(1, 50, 2)), "nothing is archived while there are fewer messages than are kept"
    assert all(number < ROUNDS for number in sizes)
    most = ROUNDS - 1 if size == "short" else KEPT + SPACING
    assert all(KEPT < number <= most for number in sizes[-50:])


def _send(rig: Rig, history: list[dict[str, str]], language: str) -> int:
    """Send a history through the gateway; return how many messages the provider got."""
    response = rig.post("openai-chat", make_body("openai-chat", history))
    assert response.status_code == 200
    sent = json.loads(rig.provider.requests[-1].body)["messages"]
    if sent != history:
        check_view(sent, history, language)
    return len(sent)


class Recorder(ContextCompressor):
    """The compressor of the document, which notes what it was asked for."""

    def __init__(self, llm: Any = None) -> None:
        super().__init__(llm)
        self.calls: list[tuple[int, int]] = []

    async def compress(self, messages: Any, retention_count: int) -> Any:
        self.calls.append((len(messages), retention_count))
        return await super().compress(messages, retention_count)


class Writer:
    """A model that sums up in words of the conversation."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def complete(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        return SimpleNamespace(content="The seeds go into warm soil, and the garden needs water.")


def _prepare_now(manager: ContextCompressionManager, history: list[Any]) -> PreparedContext:
    return manager.prepare_context_sync("s1", history)


def _prepare_later(manager: ContextCompressionManager, history: list[Any]) -> PreparedContext:
    return asyncio.run(manager.prepare_context("s1", history))


@pytest.mark.parametrize("prepare", [_prepare_now, _prepare_later])
def test_s0_4_the_manager_has_its_compressor_write_the_summary(
    tmp_path: Path, prepare: Callable[[ContextCompressionManager, list[Any]], PreparedContext]
) -> None:
    model = Writer()
    manager = ContextCompressionManager(DOCUMENT, tmp_path)
    manager.compressor = recorder = Recorder(model)
    *_, history = grow("short", "en", 99)
    assert prepare(manager, history).summary is None
    assert recorder.calls == []
    history += [say(99, "short", "en"), say(100, "short", "en")]
    prepared = prepare(manager, history)
    assert recorder.calls == [(101, KEPT)]
    assert "The seeds go into warm soil, and the garden needs water." in (prepared.summary or "")
    check_view(prepared.messages, history, "en")


def test_s0_4_without_a_model_the_compressor_extracts_and_is_not_said_to_be_one(tmp_path: Path) -> None:
    manager = ContextCompressionManager(DOCUMENT, tmp_path)
    manager.compressor = recorder = Recorder()
    *_, history = grow("short", "en", 101)
    prepared = manager.prepare_context_sync("s1", history)
    assert recorder.calls == [(101, KEPT)]
    assert prepared.edits[0].fold is not None
    assert prepared.edits[0].fold.by == "extract"


def test_s0_4_a_compressor_that_fails_costs_no_request(tmp_path: Path) -> None:
    class Broken(ContextCompressor):
        async def compress(self, messages: Any, retention_count: int) -> Any:
            raise RuntimeError("out of order")

    manager = ContextCompressionManager(DOCUMENT, tmp_path)
    manager.compressor = Broken()
    *_, history = grow("short", "en", 101)
    prepared = manager.prepare_context_sync("s1", history)
    check_view(prepared.messages, history, "en")
    assert prepared.report is not None
    assert any("out of order" in str(stage.note) for stage in prepared.report.stages)


def test_s0_4_a_secret_does_not_reach_the_model_through_the_compressor(tmp_path: Path) -> None:
    model = Writer()
    key = "sk-proj-" + "a1B2c3D4" * 6
    manager = ContextCompressionManager(DOCUMENT, tmp_path, llm=model)
    *_, history = grow("short", "en", 101)
    history[3]["content"] += f" The key is {key}."
    manager.prepare_context_sync("s1", history)
    assert model.prompts
    assert not any(key in prompt for prompt in model.prompts)


@pytest.mark.parametrize("given", ["fields", "fields and a model", "x-agent.yaml", "x-agent.yaml with one of them"])
def test_s0_1_the_configuration_of_the_document_means_its_preset(tmp_path: Path, empty_home: Path, given: str) -> None:
    if given.startswith("fields"):
        extra = {"model": "gpt-4o"} if "model" in given else {}
        config = CompressionConfig(threshold_rounds=ROUNDS, threshold_tokens=TOKENS, retention_count=KEPT, **extra)
        place = "threshold_rounds"
    else:
        text = X_AGENT if given == "x-agent.yaml" else "compression: {threshold_rounds: 120}\nother: {a: 1}\n"
        (tmp_path / "x-agent.yaml").write_text(text)
        config = load_config(tmp_path, environ={})
        place = "x-agent.yaml"
    assert config.preset_name == "archive"
    assert config.fold.role == "system"
    assert config.fold.opening == OPENING
    source = config.source("preset")
    assert source is not None
    assert "implied" in source.place
    assert place in source.place
    # It stays so when another setting is changed later.
    assert config.replace(fold={"index_tokens_max": 100}).preset_name == "archive"
    assert config.replace(preset="hybrid").preset_name == "hybrid"


def test_s0_1_some_of_the_three_fields_or_more_than_them_are_settings_on_top_of_the_default() -> None:
    assert CompressionConfig(threshold_rounds=100).preset_name == "default"
    fields = {"threshold_rounds": ROUNDS, "threshold_tokens": TOKENS, "retention_count": KEPT}
    assert CompressionConfig(**fields, max_turns=20).preset_name == "default"
    assert CompressionConfig(**fields, preset="default").preset_name == "default"


@pytest.mark.slow
@pytest.mark.parametrize("size", ["short", "mixed"])
def test_s0_3_a_chat_with_the_document_s_file_is_archived_for_ever(tmp_path: Path, size: str) -> None:
    pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
    (tmp_path / ".git").mkdir()
    (tmp_path / "x-agent.yaml").write_text(X_AGENT + "  summariser: extract\n")
    lines = [say(2 * turn, size, "en")["content"] for turn in range(155)]
    answers = [say(2 * turn + 1, size, "en")["content"] for turn in range(155)]
    with ScriptedProvider(answers) as provider:
        stdin = "\n".join(lines).encode() + b"\n"
        ran = Shell(tmp_path).refold("chat", "-m", "gpt-4o", "--base-url", provider.openai_url, stdin=stdin)
        sent = [json.loads(request.body)["messages"] for request in provider.requests]
    assert ran.code == 0, ran.err
    assert len(sent) == 155
    summaries = [next((one for one in messages if str(one["content"]).startswith(OPENING)), None) for messages in sent]
    first = next(at for at, summary in enumerate(summaries) if summary is not None)
    assert first == (50 if size == "short" else 27), "at 101 messages, or after 51 with 4,000 tokens, tools included"
    assert all(summary is not None and summary["role"] == "system" for summary in summaries[first:])
    # The chat's own system prompt comes first; it is not a message of the conversation.
    spoken = [sum(one["role"] != "system" for one in messages) for messages in sent]
    assert all(KEPT <= count < ROUNDS for count in spoken[first:])
    assert len({str(summary) for summary in summaries[-50:]}) > 1, "it stopped"
    assert [one["content"] for one in sent[-1] if one["role"] == "user"][-1] == lines[-1]
