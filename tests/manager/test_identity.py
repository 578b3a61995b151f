"""Which session a history belongs to, by what users of ``refold.wrap`` and of a session object see."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import refold
from refold import CompressionConfig, ContextCompressionManager
from refold.errors import ConfigError
from refold.integrations import open_session
from refold.manager.status import read_parent
from refold.testing import RecordedRequest, ScriptedProvider, ScriptedReply, fail

WORDS = "The pump of hall {n} ran at {n}40 turns, and nobody heard a sound from the valve behind it. " * 8


class Chat:
    """A person's chat on a wrapped client; its history is all that it keeps."""

    def __init__(self, client: Any, system: str = "") -> None:
        self.client, self.history = client, [{"role": "system", "content": system}] if system else []

    def say(self, text: str) -> str:
        self.history.append({"role": "user", "content": text})
        answer = self.client.chat.completions.create(model="gpt-4o", messages=self.history, max_tokens=200)
        self.history.append(answer.choices[0].message)
        return str(answer.choices[0].message.content)


def echo(request: RecordedRequest) -> ScriptedReply:
    return ScriptedReply(f"You said: {request.prompt[-60:]}")


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(echo, window=6_000) as running:
        yield running


def wrap(provider: ScriptedProvider, workspace: Path, **options: Any) -> Any:
    client = openai.OpenAI(base_url=provider.openai_url, api_key="any", max_retries=0)
    return refold.wrap(client, workspace=workspace, window=6_000, reserve=600, **options)


def list_sessions(client: Any) -> dict[str, str]:
    """Return every session's parent."""
    return {row.id: read_parent(row) for row in client.refold.manager.ledger.list_sessions()}


def test_without_a_name_each_conversation_is_a_session_and_fits(provider: ScriptedProvider, tmp_path: Path) -> None:
    client = wrap(provider, tmp_path)
    chats = {name: Chat(client, "You are brief.") for name in ("red", "blue")}
    for n in range(30):
        for name, chat in chats.items():
            chat.say(f"The {name} side, part {n}: {WORDS.format(n=n)}")
    sessions = list_sessions(client)
    assert len(sessions) == 2
    texts = [str(client.refold.named(one).messages()) for one in sessions]
    assert sorted(("The red side" in text, "The blue side" in text) for text in texts) == [(False, True), (True, False)]
    assert [len(client.refold.named(one).messages()) for one in sessions] == [61, 61]
    assert any("⟦" in str(request.messages) for request in provider.requests)
    assert client.refold.id in sessions, "the session that was used last in this thread"
    assert "part 2" in client.refold.recall("part 2")[0].text
    client.refold.manager.close()


def test_another_process_finds_a_nameless_conversation_again(provider: ScriptedProvider, tmp_path: Path) -> None:
    chat = Chat(wrap(provider, tmp_path), "You are brief.")
    for n in range(3):
        chat.say(f"Part {n}.")
        chat.client.refold.manager.close()
        chat.client = wrap(provider, tmp_path)
    chat.say("And the end.")
    assert len(list_sessions(chat.client)) == 1
    chat.client.refold.manager.close()


def test_people_who_begin_with_the_same_words_do_not_share_a_session(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    client = wrap(provider, tmp_path)
    few = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    people = [Chat(client), Chat(client), Chat(client), Chat(client)]
    for person in people[2:]:
        person.history = list(few)  # Examples that every conversation of a program begins with.
    for n, person in enumerate(people):
        person.say("Hi." if n < 2 else f"My name is person {n}.")
    for n, person in enumerate(people):
        person.say(f"My secret is {n}{n}{n}.")
    stored = [str(client.refold.named(one).messages()) for one in list_sessions(client)]
    assert len(stored) == 4
    for n in range(4):
        assert sum(f"{n}{n}{n}" in text for text in stored) == 1
    client.refold.manager.close()


def test_people_whom_the_model_answers_alike_do_not_share_a_session(tmp_path: Path) -> None:
    session = open_session(workspace=tmp_path)
    answers = ("Hello! How can I help you today?", "You are welcome!", "Noted.")

    def chat(*asked: str) -> str:
        history = [{"role": "user", "content": asked[0]}]
        for text, answer in zip(asked[1:], answers, strict=False):
            session.prepare(history, "Be brief.", model="gpt-4o", window=100_000)
            history += [{"role": "assistant", "content": answer}, {"role": "user", "content": text}]
        return session.find(history, "Be brief.").id

    ann = chat("Hi.", "Thanks.", "My secret is ZEBRA-77.", "What else?")
    # Bob's first requests went elsewhere: only the history says whose it is.
    bob = [{"role": "user", "content": "Hey."}, {"role": "assistant", "content": answers[0]}]
    bob += [{"role": "user", "content": "Thanks."}, {"role": "assistant", "content": answers[1]}]
    found = session.find([*bob, {"role": "user", "content": "What is the secret?"}], "Be brief.")
    assert found.id != ann
    session.manager.close()


def test_under_a_name_what_does_not_continue_the_session_is_a_child_of_it(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    client = wrap(provider, tmp_path, session="s1")
    parent, sub = Chat(client, "You lead."), Chat(client, "You read.")
    parent.say("Report on the halls.")
    for n in range(12):
        sub.say(f"Hall {n}: {WORDS.format(n=n)}")
    parent.say("The reader is done.")
    sub.say("One more.")
    (child,) = set(sessions := list_sessions(client)) - {"s1"}
    assert sessions == {"s1": "", child: "s1"}
    assert "Hall 3" not in str(client.refold.root.messages())
    assert len(client.refold.root.messages()) == 5
    assert len(client.refold.named(child).messages()) == 27
    client.refold.manager.close()


def test_what_continues_a_named_session_stays_in_it(provider: ScriptedProvider, tmp_path: Path) -> None:
    client = wrap(provider, tmp_path, session="s1")
    chat = Chat(client, "You are brief.")
    for n in range(6):
        chat.say(f"Part {n}.")
    chat.history[0] = {"role": "system", "content": "You are brief. It is noon."}
    chat.say("A system prompt with the time in it.")
    del chat.history[-2:]
    chat.say("An edited question.")
    chat.history = [chat.history[0], *chat.history[5:]]
    chat.say("A client that trims its oldest messages.")
    chat.history[1:3] = [{"role": "user", "content": "Summary of what was said: parts."}]
    chat.say("A client that sums up.")
    chat.history = chat.history[:1]
    client.refold.root.truncate(0)
    chat.say("A session that was emptied.")
    assert list_sessions(client) == {"s1": ""}
    client.refold.manager.close()


def test_a_question_that_grows_is_one_conversation_under_a_name(provider: ScriptedProvider, tmp_path: Path) -> None:
    client = wrap(provider, tmp_path, session="s1")
    text = "Which hall is loud? Read all logs of every hall, then name it. " * 4
    for n in range(5):
        Chat(client, "You think.").say(text := f"{text}\nObservation {n}: {WORDS.format(n=n)}")
    assert list_sessions(client) == {"s1": ""}
    client.refold.manager.close()


def test_the_view_as_a_history_goes_on_in_its_session_named_or_not(tmp_path: Path) -> None:
    config = CompressionConfig(window=6_000, reserve=600, model="gpt-4o")
    for name in ("s1", ""):
        with ContextCompressionManager(config, tmp_path / (name or "none")) as manager:
            session, history = manager.session(name), []
            for n in range(40):
                history.append({"role": "user", "content": f"Part {n}: {WORDS.format(n=n)}"})
                view = session.prepare(history).messages
                history.append({"role": "assistant", "content": f"Noted {n}."})
                session.commit(history[-1])
            assert any("⟦" in str(message) for message in view)
            history = [*view, history[-1], {"role": "user", "content": "Go on."}]
            session.prepare(history)
            assert len(manager.ledger.list_sessions()) == 1
            assert "Part 0" in session.recall("Part 0")[0].text


def test_a_failed_request_and_its_repetition_are_one_session(tmp_path: Path) -> None:
    with ScriptedProvider([fail(500), "Fine."]) as provider:
        client = wrap(provider, tmp_path, session="s1")
        chat = Chat(client)
        with pytest.raises(openai.InternalServerError):
            chat.say("Hi.")
        del chat.history[-1]
        assert chat.say("Hi.") == "Fine."
        assert list_sessions(client) == {"s1": ""}
        client.refold.manager.close()


def test_equal_requests_side_by_side_under_one_name_do_not_mix(provider: ScriptedProvider, tmp_path: Path) -> None:
    client = wrap(provider, tmp_path, session="s1")
    chats = [Chat(client) for _ in range(4)]

    def talk(n: int) -> None:
        chats[n].say("Begin.")
        chats[n].say(f"I am worker {n}.")

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, chat in enumerate(chats):
        chat.say("What did I say?")
        found = str(client.refold.messages())
        assert [m for m in range(4) if f"I am worker {m}." in found] == [n]
    client.refold.manager.close()


def test_tools_and_status_of_several_nameless_conversations_ask_for_a_name(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    client = wrap(provider, tmp_path)
    for word in ("Hi.", "Hello."):
        Chat(client).say(word)
    seen: list[object] = []

    def look() -> None:
        try:
            seen.append(client.refold.status())
        except ConfigError as error:
            seen.append(str(error))

    thread = threading.Thread(target=look)  # Another thread: nobody can tell whose tool it runs.
    thread.start()
    thread.join()
    assert "pass session=" in str(seen[0])
    client.refold.manager.close()


@pytest.mark.parametrize("name", ["的会话", "n" * 256, "a/b c%"])
def test_any_name_may_have_children(provider: ScriptedProvider, tmp_path: Path, name: str) -> None:
    client = wrap(provider, tmp_path, session=name)
    for n in range(2):
        parent, sub = Chat(client, "You lead."), Chat(client, f"You read {n}.")
        parent.say("Report.")
        sub.say(f"Read {n}.")
        sub.say("More.")
    sessions = list_sessions(client)
    assert len(sessions) == 3
    assert sorted(sessions.values()) == ["", name, name]
    client.refold.manager.close()
