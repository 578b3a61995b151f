"""Recall through the gateway as a user has it, nothing configured: at the tail, the same bytes before it, reported."""

import json

import pytest

from tests.rigs.effort import each_once, first_of
from tests.rigs.server import PATHS, make_dialog

WINDOW = {"window": 8_000, "reserve": 1_000}
PARROT = "The captain's parrot sleeps in the galley, below the brass lantern."
QUESTION = "What did you say earlier about the captain's parrot?"
OPENING = "recalled from earlier in this conversation"
FIELD = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages"}


def talk():
    messages = make_dialog(30, end=False)
    messages[5] = {"role": "assistant", "content": f"{'We spoke of the sea. ' * 20}{PARROT}{' And of the wind.' * 20}"}
    return messages


def make_request(wire, messages, stream):
    """The messages last, so that all but the end of a request's bytes begin the next one."""
    limits = {"max_tokens": 100} if wire == "anthropic" else {}
    fields = {"model": "scripted-1", "stream": stream, **limits, FIELD[wire]: messages}
    return json.dumps(fields, separators=(",", ":")).encode()  # As the providers' own libraries write it.


def ask(rig, wire, messages, stream=False):
    answer = rig.post(wire, make_request(wire, messages, stream), x_refold_session="voyage")
    assert answer.status_code == 200, answer.text
    return answer, rig.provider.requests[-1].body


def read_tail(wire, body):
    content = json.loads(body)[FIELD[wire]][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


@pytest.mark.parametrize(("wire", "stream"), each_once(PATHS, (True, False), quick_max=1))
def test_by_default_recalled_text_is_at_the_tail_and_no_byte_before_it_changes(start, wire, stream):
    rig = start(config=WINDOW, window=8_000)
    history = [*talk(), {"role": "user", "content": "Please go on with the next file."}]
    _, before = ask(rig, wire, history, stream)
    history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": QUESTION}]
    answer, asked = ask(rig, wire, history, stream)
    tail = read_tail(wire, asked)
    assert tail.startswith(f"{QUESTION}\n\n")
    assert OPENING in tail
    assert PARROT in tail
    assert asked.startswith(before[:-2]), "the bytes before it are those of the request before"
    assert asked.count(OPENING.encode()) == 1
    if stream:
        assert answer.headers["content-type"].startswith("text/event-stream")
    # The next request has the same bytes, also while the client knows nothing of what was added.
    history += [{"role": "assistant", "content": "In the galley."}, {"role": "user", "content": "Thank you."}]
    _, after = ask(rig, wire, history, stream)
    assert after.startswith(asked[:-2])
    assert read_tail(wire, after) == "Thank you."
    assert rig.manager.verify() == []


@pytest.mark.parametrize("wire", first_of(reversed(PATHS), 1))
def test_recalled_text_is_reported_in_the_headers_the_log_and_the_view(start, wire):
    rig = start(config=WINDOW, window=8_000)
    history = [*talk(), {"role": "user", "content": "Please go on with the next file."}]
    plain, _ = ask(rig, wire, history)
    history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": QUESTION}]
    answer, body = ask(rig, wire, history)
    assert int(answer.headers["x-refold-edits"]) == int(plain.headers["x-refold-edits"]) + 1
    (event,) = [one for one in rig.manager.ledger.read_events("voyage") if one.kind == "recalled"]
    assert event.fields["handles"]
    assert all(handle in read_tail(wire, body) for handle in event.fields["handles"])
    last = rig.manager.read_view("voyage")[-1]
    assert [edit.stage for edit in last.edits] == ["recall"]
    tokens = int(answer.headers["x-refold-tokens"].split("->")[1])
    assert tokens == rig.manager.status("voyage").tokens


def test_the_clients_cache_marks_stay_where_it_set_them(start):
    rig = start(config=WINDOW, window=8_000)
    mark = {"type": "ephemeral"}

    def marked(words):
        return {"role": "user", "content": [{"type": "text", "text": words, "cache_control": mark}]}

    history = [*talk(), marked("Please go on with the next file.")]
    ask(rig, "anthropic", history)
    history = [*history[:-1], {"role": "user", "content": "Please go on with the next file."}]
    history += [{"role": "assistant", "content": "ok"}, marked(QUESTION)]
    _, asked = ask(rig, "anthropic", history)
    sent = json.loads(asked)["messages"]
    assert sent[-1]["content"][-1]["cache_control"] == mark
    assert PARROT in sent[-1]["content"][-1]["text"]
    assert json.dumps(sent[:-1]).count("cache_control") == 0


def test_thanks_news_and_opinions_bring_nothing(start):
    rig = start(config=WINDOW, window=8_000)
    history = [*talk(), {"role": "user", "content": "Please go on with the next file."}]
    ask(rig, "openai-chat", history)
    for words in ("Thank you, I decided to go on.", "What do you think about it?", "Go on, please."):
        history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": words}]
        _, body = ask(rig, "openai-chat", history)
        assert read_tail("openai-chat", body) == words
