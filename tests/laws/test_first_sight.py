"""L11: content that fits is sent whole at least once before anything removes or shortens it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refold
from refold.budget import Budget, Tariff, Trigger, window_budget
from refold.config import CompressionConfig
from refold.conversation import Lens
from refold.conversation.message import Message
from refold.conversation.turn import find_units, newest_step
from refold.errors import LawBroken
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.ladder.plan import REST_SHARE, REST_TOKENS_MAX, Plan, prepare
from refold.ladder.run import answer_nothing, drive
from refold.replay.policy import LadderPolicy, PolicyRoom, Step
from refold.stages.fold import Fold
from refold.tokens import CacheRules, counter_for
from tests.laws.test_growth import PRESETS, convert, grow_session, make_session
from tests.rigs.effort import each_once, up_to
from tests.rigs.recorded import read_records
from tests.rigs.strategies import Talk, talks

WIRES = ("openai-chat", "anthropic", "openai-responses")
COUNTED = ("archive", "importance", "hybrid", "turns", "offload")
PRICES = Tariff(CacheRules(read=0.1, write=1.25, lifetime_s=300))
# A record of what was folded, and its frame: less than this never decides whether new content fits.
RECORD_TOKENS = 400


class Walk:
    """A session that grows request by request under a preset, checked after each request."""

    def __init__(self, wire: str, preset: str, budget: Budget, fixed_tokens: int = 0) -> None:
        counter = counter_for(None)
        self.lens = Lens(make_format(wire), counter.count_parts, counter.count_text)
        self.budget = budget
        self.fixed_tokens = fixed_tokens
        self.preset = preset
        self.config = CompressionConfig(preset=preset, **({"economic": True} if preset == "default" else {}))
        self.policy = LadderPolicy(PolicyRoom(self.lens, fixed_tokens, budget, PRICES), self.config)
        self.messages: list[Message] = []
        self.folded = 0

    def send(self, new: Sequence[Message]) -> None:
        self.messages += new
        self.policy.see(new)
        step = self.policy.prepare()
        self.folded += bool(step.stages)
        if step.problem:
            assert self.count_needed(new) > self.budget.hard, f"it fits, but {step.problem}"
            return
        self.check(step, new)

    def check(self, step: Step, new: Sequence[Message]) -> None:
        sent = {id(item.raw) for item in step.items}
        whole = self.fixed_tokens + sum(self.lens.plain(message).tokens for message in self.messages)
        touched = [message for message in new if id(message.raw) not in sent]
        if self.preset in COUNTED:
            newest = newest_step(self.messages)
            step_ids = {m.id for m in self.messages[newest.start : newest.stop]} if newest else set()
            touched = [message for message in touched if message.id in step_ids]
        if not touched:
            return
        assert whole > self.budget.hard, f"{touched[0].role} message was never sent whole, though all of it fits"
        assert self.count_needed(new) > self.budget.hard, "older content could have made room for it"

    def count_needed(self, new: Sequence[Message]) -> int:
        """Return the tokens that nothing can take away, with the new messages whole and all else in a record."""
        kept = {message.id: message for message in (*new, *(m for m in self.messages if m.role == "system"))}
        users = [message for message in self.messages if message.starts_turn]
        newest = newest_step(self.messages)
        for message in (*users[-1:], *(self.messages[newest.start : newest.stop] if newest else ())):
            kept[message.id] = message
        rest = max(RECORD_TOKENS, min(self.budget.hard // REST_SHARE, REST_TOKENS_MAX))
        return self.fixed_tokens + rest + sum(self.lens.plain(one).tokens for one in kept.values())


def requests_of(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Split a session where the assistant is about to speak: each piece is what is new with one request."""
    start = 0
    for at, message in enumerate(messages):
        if at > start and message.role == "assistant" and messages[at - 1].role != "assistant":
            yield list(messages[start:at])
            start = at
    yield list(messages[start:])


def window(tokens: int) -> Budget:
    return window_budget(tokens, 0, CompressionConfig().tiers())


@pytest.mark.parametrize("preset", PRESETS)
@given(talk=talks(), room=st.sampled_from([800, 3_000, 12_000, 60_000]))
@settings(max_examples=up_to(15))
def test_generated_sessions_are_sent_whole_first(preset: str, talk: Talk, room: int) -> None:
    walk = Walk(talk.wire, preset, window(room))
    for new in requests_of(parse_messages(walk.lens.format, talk.messages)):
        walk.send(new)


@pytest.mark.parametrize(("wire", "preset"), each_once(WIRES, PRESETS))
def test_a_long_session_is_sent_whole_first_in_every_format_and_preset(wire: str, preset: str) -> None:
    sent, _ = convert(wire, make_session(4))
    walk = Walk(wire, preset, window(3_000))
    for new in requests_of(parse_messages(walk.lens.format, sent)):
        walk.send(new)
    assert walk.folded, "a session that is never compressed proves nothing"


# Half a pixel is enough: a picture is counted by its size, which is unknown here.
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def mixed_session() -> list[dict[str, Any]]:
    """A session with three calls at once, pictures between words, and tool results that are sent as user text."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find out why orders are late."}]
    for n in range(40):
        rows = [f"{n:02}:{m:02} order {n * 991 + m} left berth {m} after {m * 13} minutes" for m in range(12)]
        if n % 4 == 1:
            messages.append({"role": "assistant", "content": f"```bash\ncat day_{n}.log\n```"})
            messages.append({"role": "user", "content": "Observation: " + "\n".join(rows)})
            continue
        if n % 4 == 2:
            picture = {"type": "image_url", "image_url": {"url": PICTURE}}
            messages.append({"role": "assistant", "content": f"Show me chart {n}, please."})
            messages.append({"role": "user", "content": [{"type": "text", "text": "\n".join(rows[:6])}, picture]})
            continue
        calls = [
            {"id": f"c{n}_{m}", "type": "function", "function": {"name": "run", "arguments": f'{{"day": {m}}}'}}
            for m in range(3)
        ]
        messages.append({"role": "assistant", "content": f"Three days at once, {n}.", "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": f"c{n}_{m}", "content": "\n".join(rows[m * 4 : m * 4 + 4])}
            for m in range(3)
        ]
    return messages


@pytest.mark.parametrize(("wire", "preset"), each_once(WIRES, PRESETS))
def test_calls_at_once_pictures_and_results_as_user_text_are_sent_whole_first(wire: str, preset: str) -> None:
    sent, _ = convert(wire, mixed_session())
    walk = Walk(wire, preset, window(3_000))
    for new in requests_of(parse_messages(walk.lens.format, sent)):
        walk.send(new)
    assert walk.folded, "a session that is never compressed proves nothing"


RECORDED = ("tau_airline", "swe_mini", "agent_native_misc", "bfcl_long_replay", "agent_long", "zh_dialogues")


@pytest.mark.parametrize(("name", "wire", "preset", "share"), list(product(RECORDED, WIRES, PRESETS, (0.4, 3.0))))
def test_recorded_sessions_are_sent_whole_first(
    name: str, wire: str, preset: str, share: float, shared_data: Path
) -> None:
    for record in list(read_records(shared_data, name, every=23))[:4]:
        sent, _ = convert(wire, record["messages"][:200])
        probe = Walk(wire, preset, window(1_000_000))
        messages = parse_messages(probe.lens.format, sent)
        tokens = sum(probe.lens.plain(message).tokens for message in messages)
        walk = Walk(wire, preset, window(max(2_000, int(tokens * share))))
        for new in requests_of(messages):
            walk.send(new)


# Reported before this law existed: the first request of a session lost the file it was about.

DOCUMENT = "\n".join(
    f"{n}: def handler_{n}(order, customer): return order.total * {n} + customer.rebate" for n in range(900)
)


def document_requests(count: int) -> list[dict[str, Any]]:
    """An editor's first request: files in user messages that the client itself answered with 'ok', then the task."""
    messages: list[dict[str, Any]] = []
    for n in range(count):
        messages.append({"role": "user", "content": f"Here is file src/orders_{n}.py:\n{DOCUMENT}"})
        messages.append({"role": "assistant", "content": "Ok."})
    return [*messages, {"role": "user", "content": "Rename handler_7 to settle_order in src/orders_0.py."}]


@pytest.mark.parametrize(("model", "files"), [("gpt-4o", 2), ("claude-sonnet-4-5", 5), ("gpt-5", 3)])
def test_the_first_request_of_a_session_is_sent_whole(model: str, files: int, tmp_path: Path) -> None:
    messages = document_requests(files)
    manager = refold.ContextCompressionManager(CompressionConfig(), tmp_path)
    prepared = manager.prepare_context_sync("editor", messages, model=model)
    assert prepared.messages == messages
    assert prepared.total_tokens > 30_000


def test_what_the_second_request_adds_is_sent_whole_too(tmp_path: Path) -> None:
    messages = document_requests(4)
    manager = refold.ContextCompressionManager(CompressionConfig(), tmp_path)
    manager.prepare_context_sync("editor", messages, model="gpt-4o")
    messages += [
        {"role": "assistant", "content": "Which of the callers?"},
        {"role": "user", "content": f"All. This is the last file:\n{DOCUMENT}"},
    ]
    assert manager.prepare_context_sync("editor", messages, model="gpt-4o").messages[-1] == messages[-1]


def test_a_large_tool_output_that_fits_is_sent_whole_before_it_is_shortened(tmp_path: Path) -> None:
    history = make_session(1_000)[:4]
    history[-1]["content"] = "\n".join(f"{n} src/app/module_{n}.py: ok" for n in range(5_000))
    manager = refold.ContextCompressionManager(CompressionConfig(), tmp_path)
    assert manager.prepare_context_sync("s", history, model="gpt-4o").messages == history


def test_what_is_appended_without_a_request_counts_as_new(tmp_path: Path) -> None:
    manager = refold.ContextCompressionManager(CompressionConfig(window=20_000, reserve=0), tmp_path)
    messages = document_requests(1)[:1]
    for message in [*messages, {"role": "assistant", "content": "Ok."}, {"role": "user", "content": "And now?"}]:
        manager.append("s", [message])
        messages = [*messages, message] if message not in messages else messages
    assert manager.prepare_context_sync("s").messages == messages


def test_new_content_makes_older_content_give_way_and_is_whole_itself(tmp_path: Path) -> None:
    manager = refold.ContextCompressionManager(CompressionConfig(window=30_000, reserve=0), tmp_path)
    messages = make_session(1_000)[:40]
    manager.prepare_context_sync("s", messages)
    messages.append({"role": "user", "content": f"Look at this:\n{DOCUMENT}"})
    prepared = manager.prepare_context_sync("s", messages)
    messages += [{"role": "assistant", "content": "I see."}, {"role": "user", "content": f"And this:\n{DOCUMENT}!"}]
    prepared = manager.prepare_context_sync("s", messages)
    assert prepared.edits, "both documents do not fit"
    assert prepared.messages[-1] == messages[-1]


def test_content_that_cannot_fit_is_shortened_no_further_than_the_limit(tmp_path: Path) -> None:
    manager = refold.ContextCompressionManager(CompressionConfig(window=60_000, reserve=0), tmp_path)
    messages = document_requests(4)
    prepared = manager.prepare_context_sync("s", messages)
    assert 36_000 < prepared.total_tokens <= 60_000, "as much as fits is sent whole"


def test_a_compression_to_save_money_leaves_the_newest_three_steps_alone() -> None:
    counter = counter_for(None)
    form = make_format("openai-chat")
    lens = Lens(form, counter.count_parts, counter.count_text)
    messages = parse_messages(form, make_session(1_000)[:42])
    view = refold.conversation.apply(messages, (), lens)
    budget = Budget(hard=200_000, soft=190_000, warn=180_000, target=500, window=200_000)
    plan = Plan(budget, (Fold(),), trigger=Trigger("soft", "a test", is_economic=True), strict=True)
    outcome = drive(prepare(view, plan), answer_nothing)
    assert outcome.edits
    steps = [unit for unit in find_units(view.items) if view.items[unit.start].role == "assistant"][-3:]
    assert [item.raw for item in view.items[steps[0].start :]] == [item.raw for item in outcome.view.items[-6:]]


def test_a_stage_that_breaks_it_is_caught() -> None:
    from refold.conversation import Edit

    class Careless:
        name, when = "careless", "batch"

        def propose(self, view: Any, goal: Any) -> list[Edit]:
            big = max((item for item in view.items if item.message.id in view.held), key=lambda item: item.tokens)
            return [Edit("replace", "careless", (big.message.id,), 0, "gone")]

    counter = counter_for(None)
    form = make_format("openai-chat")
    lens = Lens(form, counter.count_parts, counter.count_text)
    messages = parse_messages(form, make_session(1_000)[:12])
    view = refold.conversation.apply(messages, (), lens)
    budget = Budget(hard=200_000, soft=100, warn=100, target=50, window=200_000)
    trigger = Trigger("soft", "a test")
    plan = Plan(budget, (Careless(),), trigger=trigger, strict=True, unsent=frozenset(m.id for m in messages[6:]))
    with pytest.raises(LawBroken, match="L11"):
        drive(prepare(view, plan), answer_nothing)


SHORT = [("claude-sonnet-4-5", "max_tokens", 140_000), ("gpt-4o", "max_completion_tokens", 112_000)]


@pytest.mark.parametrize(("model", "limit", "usual"), SHORT)
def test_a_body_that_asks_for_a_short_answer_is_sent_whole_beyond_the_usual_reserve(
    model: str, limit: str, usual: int, tmp_path: Path
) -> None:
    messages = document_requests(6)
    messages[-1]["content"] += DOCUMENT[: len(DOCUMENT) // 2]
    body = {"model": model, limit: 1_000, "messages": messages}
    manager = refold.ContextCompressionManager(CompressionConfig(), tmp_path)
    for prepared in (manager.prepare_context_sync("editor", body), refold.compress(body)):
        assert prepared.messages == messages
        assert prepared.total_tokens > usual
    assert manager.status("editor").hard > usual, "the gauge has the limit that held for the request"
    assert refold.compress({**body, limit: 60_000}).total_tokens < usual, "a long answer needs its room"


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-5"])
def test_a_session_that_grows_to_sixty_thousand_tokens_in_a_large_window_is_never_compressed(
    model: str, tmp_path: Path
) -> None:
    manager = refold.ContextCompressionManager(CompressionConfig(window=200_000), tmp_path)
    tokens = 0
    for history in grow_session(90):
        prepared = manager.prepare_context_sync("agent", history, model=model)
        if prepared.total_tokens > 60_000:
            break
        tokens = prepared.total_tokens
        assert prepared.messages == history, f"compressed at {tokens:,} tokens"
    assert 57_000 < tokens <= 60_000
