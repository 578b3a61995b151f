"""Requests that also ask the provider to edit the context: refold compresses them unless the provider does the same."""

import json

import pytest

from tests.rigs.server import make_body, make_dialog

SMALL = {"window": 8_000, "reserve": 1_000}
CLEARING = [
    {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]},
    {"edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 30_000}}]},
    {"edits": []},
    {"edits": [{"type": "an_edit_of_next_year"}]},
]


@pytest.mark.parametrize("management", CLEARING)
def test_a_request_that_asks_the_provider_to_clear_things_is_stored_and_compressed(start, management):
    rig = start(config=SMALL, window=8_000)
    messages = make_dialog(30)
    answer = rig.post("anthropic", make_body("anthropic", messages, context_management=management))
    assert answer.status_code == 200, answer.text
    before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert after < 7_000 < before
    sent = json.loads(rig.provider.requests[-1].body)
    assert sent["context_management"] == management
    stored = rig.manager.ledger.read_messages(answer.headers["x-refold-session"])
    assert [json.loads(one.raw) for one in stored] == messages


@pytest.mark.parametrize("management", [{"edits": "all"}, {"edits": [None, 3]}, "clear", [1], {"edits": {"a": 1}}, 7])
def test_context_management_that_makes_no_sense_is_left_to_the_provider_to_refuse(start, management):
    rig = start(config=SMALL)
    answer = rig.post("anthropic", make_body("anthropic", make_dialog(1), context_management=management))
    assert answer.status_code == 200
    assert json.loads(rig.provider.requests[-1].body)["context_management"] == management


@pytest.mark.parametrize(
    ("wire", "management"),
    [
        ("anthropic", {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "compact_20260112"}]}),
        ("openai-responses", [{"type": "compaction", "compact_threshold": 200_000}]),
    ],
)
def test_where_the_provider_is_asked_to_compact_it_does_and_the_answer_says_so(start, wire, management):
    rig = start(config=SMALL)
    body = make_body(wire, make_dialog(30), context_management=management)
    answer = rig.post(wire, body)
    assert answer.headers["x-refold-reason"] == "provider-compaction"
    assert json.loads(rig.provider.requests[-1].body) == body
    name = answer.headers["x-refold-session"]
    stored = rig.manager.ledger.read_messages(name)
    assert [json.loads(one.raw) for one in stored] == make_dialog(30)
    assert rig.manager.ledger.read_session(name).compression_count == 0


@pytest.mark.parametrize(
    ("wire", "management"),
    [
        ("anthropic", {"edits": [{"type": "compact_20260112"}]}),
        pytest.param(
            "openai-responses", [{"type": "compaction", "compact_threshold": 200_000}], marks=pytest.mark.slow
        ),
    ],
)
def test_where_the_provider_was_asked_to_compact_and_refuses_all_the_same_refold_takes_over(start, wire, management):
    rig = start(config=SMALL, window=8_000)
    messages = []
    for turn in make_dialog(16, end=False):
        messages.append(turn)
        if turn["role"] == "user":
            answer = rig.post(wire, make_body(wire, messages, context_management=management))
            assert answer.status_code == 200, answer.text
    before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert after < 7_500 < before
    assert len(rig.provider.requests) == 17  # One refusal; later requests are compressed at once.
    assert json.loads(rig.provider.requests[-1].body)["context_management"] == management
