"""Anthropic's cache marks: the client's own unless configured otherwise, at most four, where the prefix is stable."""

import json

import pytest

from refold.server.wires import LOOKBACK_BLOCKS, choose_places, move_marks
from tests.rigs.server import make_body, make_dialog

SMALL = {"window": 8_000, "reserve": 1_000}
MARK = {"type": "ephemeral", "ttl": "1h"}


def text(words, mark=None):
    return {"type": "text", "text": words, **({"cache_control": mark} if mark else {})}


def mark_last(messages, count=2):
    marked = [dict(message) for message in messages]
    for message in marked[-count:]:
        message["content"] = [text(message["content"], MARK)]
    return marked


def find_marks(messages):
    return [
        (at, index)
        for at, message in enumerate(messages)
        for index, block in enumerate(message["content"] if isinstance(message["content"], list) else [])
        if "cache_control" in block
    ]


def test_marks_go_to_the_end_of_what_was_folded_and_to_the_newest_block():
    given = mark_last(make_dialog(4, words=2))
    folded = [{"role": "user", "content": "summary"}, *given[4:]]
    body = move_marks({"messages": given}, folded)
    assert find_marks(body["messages"]) == [(0, 0), (len(folded) - 1, 0)]
    assert body["messages"][0]["content"][0]["cache_control"] == MARK, "the client's own lifetime"


def test_nothing_is_marked_for_a_client_that_marks_nothing():
    given = make_dialog(4, words=2)
    folded = [{"role": "user", "content": "summary"}, *given[4:]]
    assert move_marks({"messages": given}, folded)["messages"] == folded


@pytest.mark.parametrize("taken", range(5))
def test_there_are_never_more_than_four_marks(taken):
    given = mark_last(make_dialog(60, words=2), 4)
    system = [text("x", MARK) for _ in range(taken)]
    folded = [{"role": "user", "content": "summary"}, *given[4:]]
    body = move_marks({"messages": given, "system": system}, folded)
    assert len(find_marks(body["messages"])) <= 4 - taken
    assert body["system"] == system


def test_a_mark_is_set_between_two_that_are_further_apart_than_a_look_back():
    messages = make_dialog(40, words=2)
    places = choose_places(messages, 0, 4)
    assert places[0] == (0, 0)
    assert places[-1] == (len(messages) - 1, 0)
    assert places[-1][0] - places[-2][0] == LOOKBACK_BLOCKS


def test_thinking_and_empty_text_are_never_marked():
    blocks = [text("words"), {"type": "thinking", "thinking": "hm", "signature": "s"}, text("")]
    assert choose_places([{"role": "assistant", "content": blocks}], -1, 4) == [(0, 0)]
    assert choose_places([], -1, 4) == []


def test_by_default_the_clients_marks_stay_where_it_set_them(start):
    rig = start(config=SMALL, window=8_000)
    answer = rig.post("anthropic", make_body("anthropic", mark_last(make_dialog(30))))
    assert int(answer.headers["x-refold-edits"]) > 0
    sent = json.loads(rig.provider.requests[-1].body)["messages"]
    assert {at for at, _ in find_marks(sent)} == {len(sent) - 2, len(sent) - 1}


def test_with_auto_they_move_to_the_stable_prefix_and_stay_there(start):
    rig = start(config=SMALL, window=8_000, settings={"cache_marks": "auto"})
    messages = make_dialog(30)
    rig.post("anthropic", make_body("anthropic", mark_last(messages)))
    first = json.loads(rig.provider.requests[-1].body)["messages"]
    stable = find_marks(first)[0]
    assert find_marks(first)[-1][0] == len(first) - 1
    messages += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    answer = rig.post("anthropic", make_body("anthropic", mark_last(messages)))
    assert answer.headers["x-refold-reason"] == "kept"
    second = json.loads(rig.provider.requests[-1].body)["messages"]
    assert find_marks(second)[0] == stable
    assert find_marks(second)[-1][0] == len(second) - 1
    assert len(find_marks(second)) <= 4


def test_what_needs_no_compression_keeps_its_bytes_also_with_auto(start):
    rig = start(settings={"cache_marks": "auto"})
    body = json.dumps(make_body("anthropic", mark_last(make_dialog(1)))).encode()
    rig.post("anthropic", body)
    assert rig.provider.requests[-1].body == body


def test_reminders_in_the_clients_system_messages_stand_once_and_old_ones_have_no_mark(start):
    """Claude Code sends one after each step, with newer models, and marks the newest message."""
    rig = start(config=SMALL, window=8_000)
    messages = [{"role": "user", "content": "Check every module."}]
    for number in range(36):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"make check-{number}"}}
        output = "\n".join(f"module {number} line {line}: fine" for line in range(30))
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": output}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        said = f"<total_tokens>{900_000 - 500 * number} tokens left</total_tokens>"
        said = f"{'abcdef'[number]} is a module that was generated." if number < 6 else said
        newest = {"role": "system", "content": [text(said, MARK)]}
        answer = rig.post("anthropic", make_body("anthropic", [*messages, newest]))
        assert answer.status_code == 200, answer.text
        sent = json.loads(rig.provider.requests[-1].body)["messages"]
        assert len(find_marks(sent)) <= 1
        messages.append({"role": "system", "content": said})
    assert rig.manager.ledger.list_sessions()[0].compression_count > 1
    steps = sum(message["role"] == "assistant" for message in sent)
    assert steps <= json.dumps(sent).count("tokens left") <= steps + 1, "one for each step that stands whole"
    assert json.dumps(sent).count("was generated") == 6, "what is said once stays"
