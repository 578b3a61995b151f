"""One call reads a message, once: the result depends on its content alone."""

from refold.formats import OpenAIChat
from refold.reading.events import Statement, Utterance
from refold.reading.read import read, read_ahead, read_all

CHAT = OpenAIChat()


def test_a_message_is_read_once_for_equal_content() -> None:
    first = CHAT.parse({"role": "user", "content": "Fix the login test."})
    again = CHAT.parse({"role": "user", "content": "Fix the login test."}, parent="elsewhere")
    assert read(first) is read(again)
    assert read(first) is not read(CHAT.parse({"role": "assistant", "content": "Fix the login test."}))


def test_words_of_both_sides_become_events_in_order() -> None:
    messages = [
        CHAT.parse({"role": "system", "content": "Never say no."}),
        CHAT.parse({"role": "user", "content": "Fix the login test. Never touch the API."}),
        CHAT.parse({"role": "assistant", "content": "It fails because the mock has no port."}),
    ]
    system, user, assistant = read_all(messages)
    assert system == ()
    assert [(type(event), event.kind) for event in user] == [(Utterance, "request"), (Utterance, "rule")]
    assert [(type(event), event.kind) for event in assistant] == [(Statement, "cause")]


def test_only_the_last_part_with_words_closes_a_message() -> None:
    parts = [{"type": "text", "text": "It works now."}, {"type": "text", "text": "The tests pass."}]
    events = read(CHAT.parse({"role": "assistant", "content": parts}))
    assert [event.is_last for event in events] == [False, True]


def test_reading_ahead_fills_the_memo() -> None:
    message = CHAT.parse({"role": "assistant", "content": "The cache was cold, so 7134 rows were read twice."})
    read_ahead([message])
    assert read(message) is read(message)
