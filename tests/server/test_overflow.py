"""Requests that an upstream refuses as too long: what is sent instead, and what is learned from it."""

import asyncio
import json

import pytest

from refold.agent.events import WindowLowered
from refold.errors import ContextOverflow
from refold.ledger.codec import load_json
from refold.server import body as server_body
from refold.server.overflow import NO_LIMITS, LearnedLimits, LimitKey, Limits
from refold.testing import fail, say
from refold.testing.provider_rules import count_input
from tests.rigs.agent import make_agent, make_manager, pick, run_all
from tests.rigs.effort import first_of
from tests.rigs.server import make_body, make_dialog

KEY = LimitKey("", "anthropic", "m")


def make_tools(words):
    """Return tools as large as those of a coding agent: nothing can make them smaller."""
    text = " ".join(f"detail{number}" for number in range(words))
    return [{"name": "edit", "description": text, "input_schema": {"type": "object", "properties": {}}}]


def grow(rig, wire, turns, words=200, **fields):
    """Send a conversation turn by turn, as a client does; return the answers."""
    messages, answers = [], []
    for turn in make_dialog(turns, words, end=False):
        messages.append(turn)
        if turn["role"] == "user":
            answers.append(rig.post(wire, make_body(wire, messages, **fields)))
    return answers


def test_a_client_that_asks_for_a_long_answer_is_retried_with_less_room_for_it(start):
    # Claude Code asks for 64,000 tokens; tools and system prompt alone take more than what is left beside them.
    rig = start(config={"window": 200_000}, window=80_000)
    body = make_body("anthropic", make_dialog(60), max_tokens=64_000, tools=make_tools(12_000))
    answer = rig.post("anthropic", body)
    assert answer.status_code == 200, answer.text
    sent = json.loads(rig.provider.requests[-1].body)
    wanted, given = map(int, answer.headers["x-refold-max-tokens"].split("->"))
    assert (wanted, given) == (64_000, sent["max_tokens"])
    assert 1_024 <= given < 64_000
    assert answer.headers["x-refold-reason"] == "overflow-retried"


def test_a_client_that_asks_for_a_long_answer_is_refused_once_and_keeps_most_of_its_history(start):
    rig = start(config={"window": 200_000}, window=60_000)
    answers = grow(rig, "anthropic", 4, max_tokens=32_000, tools=make_tools(8_000))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len(rig.provider.requests) <= 4 + 2
    before, after = map(int, answers[-1].headers["x-refold-tokens"].split("->"))
    assert after > before * 0.7


def test_thinking_stays_within_an_answer_that_had_to_be_shortened(start):
    rig = start(config={"window": 200_000}, window=80_000)
    thinking = {"type": "enabled", "budget_tokens": 60_000}
    body = make_body("anthropic", make_dialog(60), max_tokens=64_000, tools=make_tools(12_000), thinking=thinking)
    assert rig.post("anthropic", body).status_code == 200
    sent = json.loads(rig.provider.requests[-1].body)
    assert 1_024 <= sent["thinking"]["budget_tokens"] < sent["max_tokens"]


def test_the_room_for_the_answer_is_left_alone_where_a_smaller_context_helps(start):
    rig = start(config={"window": 200_000}, window=80_000)
    answer = rig.post("anthropic", make_body("anthropic", make_dialog(80), max_tokens=64_000))
    assert answer.status_code == 200, answer.text
    assert json.loads(rig.provider.requests[-1].body)["max_tokens"] == 64_000
    assert "x-refold-max-tokens" not in answer.headers


def test_a_refused_request_whose_history_cannot_be_read_again_is_sent_cut(start, monkeypatch):
    rig = start(config={"window": 400_000}, window=12_000)
    messages = make_dialog(6)
    assert rig.post("openai-chat", make_body("openai-chat", messages)).status_code == 200
    messages += [{"role": "assistant", "content": "Done."}, *make_dialog(8)]
    # The new messages are within the limit, and all of them together are not.
    monkeypatch.setattr(server_body, "VALUES_MAX", 300)
    answer = rig.post("openai-chat", make_body("openai-chat", messages))
    assert answer.status_code == 200, answer.text
    assert len(rig.provider.requests) > 2, "it was refused first"
    assert answer.headers["x-refold-reason"].startswith("trimmed"), answer.headers


@pytest.mark.slow  # The tests below show each refusal of it by itself.
@pytest.mark.parametrize("wire", ["openai-responses", "anthropic", "openai-chat"])
def test_a_growing_session_is_refused_at_most_twice_and_no_request_goes_out_whole_after_that(start, wire):
    """The scripted Responses interface states no limit, the others do."""
    rig = start(config={"window": 400_000}, window=12_000)
    answers = grow(rig, wire, 40)
    assert [answer.status_code for answer in answers] == [200] * 40
    refused = len(rig.provider.requests) - 40
    assert refused <= 3, refused
    # Tokens, not bytes: a record in plain words has more bytes for each of its tokens than the made-up words it covers.
    sizes = [count_input(request.wire, json.loads(request.body)) for request in rig.provider.requests]
    at = next(at for at, size in enumerate(sizes) if size > 12_000)
    assert len(sizes[at + 1 :]) > 30
    assert max(sizes[at + 1 :]) < sizes[at]


def test_a_limit_that_stood_in_the_request_is_not_learned(start):
    rig = start(config={"window": 400_000})
    words = "This model's maximum context length is 3000 tokens."
    wrong = {"role": f"user {words}", "content": "hi"}
    answer = rig.post("openai-chat", make_body("openai-chat", [wrong, *make_dialog(1)]))
    assert answer.status_code == 400
    assert "3000" in answer.text
    big = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)))
    before, after = map(int, big.headers["x-refold-tokens"].split("->"))
    assert before == after > 20_000


def test_one_tenant_does_not_change_the_window_of_another(start):
    rig = start(config={"window": 400_000}, window=12_000)
    keys = rig.application.keys
    alice, bob = keys.add("alice")[1], keys.add("bob")[1]
    body = make_body("openai-chat", make_dialog(30))
    assert rig.post("openai-chat", body, x_refold_key=alice).status_code == 200
    learned = rig.application.limits
    assert learned.find(LimitKey("alice", "openai", "scripted-1")) != NO_LIMITS
    assert learned.find(LimitKey("bob", "openai", "scripted-1")) == NO_LIMITS
    assert learned.find(LimitKey("alice", "anthropic", "scripted-1")) == NO_LIMITS
    asked = len(rig.provider.requests)
    assert rig.post("openai-chat", body, x_refold_key=bob).status_code == 200
    assert len(rig.provider.requests) == asked + 2


def test_a_limit_is_never_learned_below_what_was_accepted_nor_above_what_was_refused():
    limits = LearnedLimits()
    limits.note_accepted(KEY, 50_000)
    limits.note_refused(KEY, 60_000, ContextOverflow("", tokens_max=8_000))
    assert limits.find(KEY).window > 50_000
    limits.note_refused(KEY, 90_000, ContextOverflow("", tokens_max=2_000_000))
    assert limits.find(KEY).window <= 90_000


@pytest.mark.parametrize(("refused", "stated"), [(30_000, 200_000), (120_000, 200_000), (160_000, 155_000)])
@pytest.mark.parametrize("is_accepted_first", [True, False])
def test_no_order_of_refusals_and_accepted_requests_leaves_a_limit_below_an_accepted_size(
    refused, stated, is_accepted_first
):
    limits = LearnedLimits()
    for is_accepted in (is_accepted_first, not is_accepted_first):
        if is_accepted:
            limits.note_accepted(KEY, 150_000)
        else:
            limits.note_refused(KEY, refused, ContextOverflow("", tokens_max=stated))
    found = limits.find(KEY)
    assert found == NO_LIMITS or found.window - found.reserve >= 150_000


def test_a_request_with_a_document_that_cannot_be_counted_sets_no_limit_for_others(start):
    def refuse(request):
        if b"application/pdf" in request.body:
            return fail(400, "prompt is too long: 250000 tokens > 200000 maximum")
        return say("ok")

    rig = start(refuse)
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQ="}
    document = [{"type": "document", "source": source}, {"type": "text", "text": "Sum it up."}]
    rig.post("anthropic", make_body("anthropic", [{"role": "user", "content": document}], "claude-sonnet-4-5"))
    other = rig.post("anthropic", make_body("anthropic", make_dialog(30), "claude-sonnet-4-5"))
    before, after = map(int, other.headers["x-refold-tokens"].split("->"))
    assert before == after > 20_000


def test_sizes_that_were_accepted_and_refused_narrow_a_limit_that_nobody_states():
    limits, silent, real = LearnedLimits(), ContextOverflow(""), 33_000
    limits.note_accepted(KEY, 10_000)
    size, refusals = 100_000, 0
    for _ in range(20):
        if size > real:
            limits.note_refused(KEY, size, silent)
            refusals += 1
        else:
            limits.note_accepted(KEY, size)
        size = limits.find(KEY).window - 2
    assert refusals <= 6
    assert real * 0.9 < size <= real


def test_a_refusal_of_less_than_was_accepted_teaches_nothing():
    limits = LearnedLimits()
    limits.note_accepted(KEY, 50_000)
    limits.note_refused(KEY, 40_000, ContextOverflow(""))
    assert limits.find(KEY) == Limits()


def test_a_refusal_whose_words_stood_in_the_request_teaches_nothing():
    limits = LearnedLimits()
    assert not limits.note_refused(KEY, 40_000, ContextOverflow("", tokens_max=9_000, is_quoted=True))
    assert limits.find(KEY) == NO_LIMITS


def test_a_refusal_that_quotes_the_request_does_not_shrink_what_was_accepted_before(start):
    quoted = "This model's maximum context length is 1200 tokens. However, your messages resulted in 6000 tokens"

    def answer(request):
        said = request.json.get("user")
        return fail(400, f"Invalid value: '{said}'.") if said else say("ok")

    rig = start(answer)
    body = make_body("openai-chat", make_dialog(20))
    assert rig.post("openai-chat", body).status_code == 200
    refused = rig.post("openai-chat", {**body, "user": quoted})
    assert (refused.status_code, len(rig.provider.requests)) == (400, 2)
    again = rig.post("openai-chat", body)
    assert again.headers["x-refold-reason"] == "unchanged"
    assert rig.provider.requests[-1].json["messages"] == body["messages"]


def test_the_number_of_limits_is_bounded(monkeypatch):
    monkeypatch.setattr("refold.server.overflow.ENTRIES_MAX", 10)
    limits = LearnedLimits()
    for number in range(100):
        limits.note_refused(LimitKey("", "openai", f"m{number}"), 9_000, ContextOverflow("", tokens_max=8_000))
    assert limits.find(LimitKey("", "openai", "m0")) == NO_LIMITS
    assert limits.find(LimitKey("", "openai", "m99")).window == 8_000


@pytest.mark.parametrize("window", first_of([7_000, 13_000], 1))
def test_a_refusal_without_a_stated_limit_is_answered_by_one_retry_that_keeps_what_fits(start, window):
    rig = start(config={"window": 400_000}, window=window)
    answers = grow(rig, "openai-responses", 9)
    assert [answer.status_code for answer in answers] == [200] * 9
    sizes = [count_input(request.wire, json.loads(request.body)) for request in rig.provider.requests]
    refused = [at for at, size in enumerate(sizes) if size > window]
    assert len(refused) == 1
    at = refused[0]
    assert sizes[at + 1] > 0.35 * max(sizes[:at])


def test_where_the_answer_asked_for_is_larger_than_the_window_only_the_answer_gets_smaller(start):
    rig = start(window=20_000)
    messages = make_dialog(6)
    answer = rig.post("anthropic", make_body("anthropic", messages, max_tokens=64_000))
    assert answer.status_code == 200
    assert answer.headers["x-refold-edits"] == "0"
    wanted, lowered = map(int, answer.headers["x-refold-max-tokens"].split("->"))
    assert (wanted, lowered > 1_000) == (64_000, True)
    assert [len(request.messages) for request in rig.provider.requests] == [13, 13]


def test_a_window_that_the_agent_or_the_gateway_learned_holds_for_both(start, tmp_path):
    pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
    rig = start(config={"window": 24_000, "economic": False}, window=8_000)
    history, other = make_dialog(16), make_dialog(16, words=110)

    def ask_agent(session):
        with make_manager(tmp_path / "work", window=24_000, economic=False) as manager:
            events = asyncio.run(run_all(make_agent(rig.provider, manager, session_id=session), "And now?"))
            assert manager.status(session).window == 8_000
        return pick(events, WindowLowered)

    def ask_gateway(messages, session):
        answer = rig.post("openai-chat", make_body("openai-chat", messages, "gpt-4o"), x_refold_session=session)
        assert answer.status_code == 200, answer.text
        assert rig.manager.status(session).window == 8_000
        return answer.headers["x-refold-reason"]

    rig.manager.append("by-agent", history[:-1], format="openai-chat")
    assert [one.window_after for one in ask_agent("by-agent")] == [8_000]
    stored = [load_json(one.raw) for one in rig.manager.ledger.read_messages("by-agent")]
    sent = len(rig.provider.requests)
    assert ask_gateway([*stored, *other], "by-agent") != "overflow-retried"
    assert len(rig.provider.requests) == sent + 1
    assert ask_gateway(other, "by-gateway") == "overflow-retried"
    sent = len(rig.provider.requests)
    assert ask_agent("by-gateway") == []
    assert len(rig.provider.requests) == sent + 1


def test_a_stated_window_below_a_size_that_was_accepted_is_not_stored_with_the_session(start):
    """One of several backends behind an upstream may be smaller than the others."""
    sent = []

    def answer(request):
        sent.append(request)
        return fail(400, "prompt is too long: 9000 tokens > 3000 maximum") if len(sent) == 6 else say("ok")

    rig = start(answer, config={"window": 60_000, "economic": False})
    answers = []
    for count in range(1, 8):
        body = make_body("openai-chat", make_dialog(count), "gpt-4o")
        answers.append(rig.post("openai-chat", body, x_refold_session="routed"))
    assert [one.status_code for one in answers] == [200] * 7
    assert answers[5].headers["x-refold-reason"] == "overflow-retried"
    assert rig.manager.find_window("routed", "gpt-4o") is None


def test_what_an_account_may_send_in_a_minute_does_not_become_the_window_of_a_session(start):
    script = [fail(429, "Request too large for gpt-4o on tokens per min (TPM): Limit 3000, Requested 9000.")]
    rig = start(lambda _: script.pop() if script else say("fine"))
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30), "gpt-4o"), x_refold_session="s")
    assert (answer.status_code, answer.headers["x-refold-reason"]) == (200, "overflow-retried")
    assert len(rig.provider.requests) == 2
    assert rig.manager.find_window("s", "gpt-4o") is None
