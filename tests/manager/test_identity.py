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


def test_another_process_finds_a_trimmed_history_again(provider: ScriptedProvider, tmp_path: Path) -> None:
    chat = Chat(wrap(provider, tmp_path))
    for n in range(12):
        chat.say(f"Part {n}. {WORDS.format(n=n)}")
        chat.history = chat.history[-8:]
        chat.client.refold.manager.close()
        chat.client = wrap(provider, tmp_path)
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


def greet(request: RecordedRequest) -> ScriptedReply:
    """Answer everybody alike unless they tell a secret."""
    said = request.prompt[-60:]
    return ScriptedReply(f"Noted: {said}" if "secret" in said else "Hello! How can I help you?")


def recall_secrets(client: Any) -> list[set[str]]:
    """Return for each session whose secrets its recall finds."""
    found = []
    for one in list_sessions(client):
        text = " ".join(hit.text for hit in client.refold.named(one).recall("secret", 20))
        found.append({word for word in "ABCDEFGH" if f"secret of {word}" in text})
    return found


def test_recall_of_people_who_begin_alike_at_the_same_time_finds_nobody_elses_words(tmp_path: Path) -> None:
    with ScriptedProvider(greet) as provider:
        client = wrap(provider, tmp_path)

        def talk(name: str) -> None:
            chat = Chat(client)
            for text in ("Hi.", "Thanks.", f"The secret of {name}.", "Thanks.", f"Again, the secret of {name}."):
                chat.say(text)

        threads = [threading.Thread(target=talk, args=(name,)) for name in "ABCDEFGH"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(sorted, recall_secrets(client))) == [[name] for name in "ABCDEFGH"]
        client.refold.manager.close()


@pytest.mark.parametrize("is_first", [True, False], ids=["its session is newer", "its session is older"])
def test_a_nameless_client_that_starts_again_takes_nobody_elses_session(is_first: bool, tmp_path: Path) -> None:
    with ScriptedProvider(greet) as provider:
        people = {name: Chat(wrap(provider, tmp_path)) for name in ("AB" if is_first else "BA")}
        for chat in people.values():
            chat.say("Hi.")
        people["A"].client.refold.manager.close()
        people["A"].client = wrap(provider, tmp_path)
        for _ in range(2):
            for name in "AB":
                people[name].say(f"The secret of {name}.")
        assert sorted(map(sorted, filter(None, recall_secrets(people["A"].client)))) == [["A"], ["B"]]
        for chat in people.values():
            chat.client.refold.manager.close()


def test_an_edited_question_of_a_short_nameless_chat_may_be_another_persons(tmp_path: Path) -> None:
    with ScriptedProvider(greet) as provider:
        client = wrap(provider, tmp_path)
        ann, bob = Chat(client), Chat(client)
        ann.say("Hi.")
        bob.history = list(ann.history)  # The first request of the second person went to another machine.
        for _ in range(3):
            ann.say("The secret of A.")
            bob.say("The secret of B.")
        assert sorted(map(sorted, recall_secrets(client))) == [["A"], ["B"]]
        client.refold.manager.close()


def test_answers_of_parallel_branches_are_not_stored_in_each_others_place(tmp_path: Path) -> None:
    session, history = open_session(workspace=tmp_path, model="gpt-4o"), []
    for n in range(6):
        history += [{"role": "user", "content": f"Part {n}."}, {"role": "assistant", "content": f"Noted {n}."}]
        session.find(history[:-1]).prepare(history[:-1])
    found = {}
    for name in ("left", "right"):
        branch = [*history, {"role": "user", "content": f"To the {name}."}]
        found[name] = session.find(branch)
        found[name].prepare(branch)
    for name in ("left", "right"):
        found[name].commit({"role": "assistant", "content": f"You went {name}."})
    stored = [str(one.messages()) for one in found.values()]
    assert not any("You went left" in text and "To the right" in text for text in stored)
    for name in ("left", "right"):
        branch = [*history, {"role": "user", "content": f"To the {name}."}]
        branch += [{"role": "assistant", "content": f"You went {name}."}, {"role": "user", "content": "And now?"}]
        assert session.find(branch).prepare(branch).messages == branch
    session.manager.close()


def test_parallel_branches_of_a_named_session_do_not_mix(tmp_path: Path) -> None:
    is_open = threading.Event()

    def answer(request: RecordedRequest) -> ScriptedReply:
        if "left" in request.prompt:
            is_open.wait(20)
        return echo(request)

    with ScriptedProvider(answer) as provider:
        client = wrap(provider, tmp_path, session="s1")
        trunk = Chat(client)
        for n in range(6):
            trunk.say(f"Part {n}.")
        branches = {name: Chat(client) for name in ("left", "right")}
        for chat in branches.values():
            chat.history = list(trunk.history)
        thread = threading.Thread(target=branches["left"].say, args=("Go left.",))
        thread.start()
        while len(provider.requests) < 7:
            is_open.wait(0.01)
        branches["right"].say("Go right.")
        is_open.set()
        thread.join()
        for name, chat in branches.items():
            chat.say("What next?")
            assert [one for one in branches if f"Go {one}." in str(client.refold.messages())] == [name]
            assert str(client.refold.messages()).count(f"You said: Go {name}.") == 1
        assert list_sessions(client) == {"s1": ""}, "an answer that was cancelled looks the same"
        client.refold.manager.close()


def test_a_history_without_messages_is_the_providers_to_refuse(provider: ScriptedProvider, tmp_path: Path) -> None:
    client = wrap(provider, tmp_path)
    for n in range(2):
        with pytest.raises(openai.BadRequestError, match="at least one message"):
            Chat(client).client.chat.completions.create(model="gpt-4o", messages=[])
        Chat(client, f"You are {n}.").say(f"Hello from {n}.")
    stored = [str(client.refold.named(one).messages()) for one in list_sessions(client)]
    assert sorted(text.count("Hello from") for text in stored if text != "[]") == [2, 2]
    client.refold.manager.close()
