"""Histories that are hard to attribute, for every face that finds sessions by content.

The model answers everybody alike, so that only the people's words distinguish their conversations, or each time in
other words. Each case asserts what a person would notice: the request has their newest words and nobody else's, and
recall finds nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from refold import ContextCompressionManager
from refold.errors import RefoldError
from refold.testing import ScriptedProvider, ScriptedReply

Raw = dict[str, Any]
ANSWER = "Noted. Is there anything else that I can do for you?"
NUMBERS = count()
ANSWERS: dict[str, Any] = {"alike": ANSWER, "apart": lambda _: ScriptedReply(f"Noted as number {next(NUMBERS)}.")}
WORDS = "The pump ran on, and nobody heard a sound from the valve behind it. " * 40
WINDOW, RESERVE = 6_000, 600
PEOPLE = ("ann", "bob", "cem")


@dataclass
class Face:
    """A way to send a history without naming its session. ``send`` returns the model's text."""

    send: Callable[[list[Raw]], str]
    provider: ScriptedProvider
    manager: ContextCompressionManager

    def list_stored(self) -> list[str]:
        """Return the text of each session."""
        rows = self.manager.ledger.list_sessions()
        return [str(self.manager.session(row.id).messages()) for row in rows]

    def check_recall(self) -> None:
        """Check that no session's recall finds the words of two people."""
        for row in self.manager.ledger.list_sessions():
            hits = " ".join(hit.text for hit in self.manager.recall(row.id, "password", 40))
            assert sum(f"password of {name}" in hits for name in PEOPLE) <= 1, hits


@dataclass
class Person:
    """Somebody whose client resends the whole history."""

    name: str
    face: Face
    history: list[Raw] = field(default_factory=list)

    def say(self, text: str, *, keep: bool = True) -> list[Raw]:
        """Send a message after the history, and return the messages that the model got."""
        asked = [*self.history, {"role": "user", "content": text}]
        answer = self.face.send(asked)
        if keep:
            self.history = [*asked, {"role": "assistant", "content": answer}]
        request = self.face.provider.requests[-1]
        assert text in str(request.messages[-1]), "the newest words are sent as they are"
        others = [name for name in PEOPLE if name != self.name and f"of {name}" in str(request.messages)]
        assert not others, f"{self.name} sees words of {others}"
        return request.messages

    def tell(self, n: int) -> list[Raw]:
        """Tell the model something that nobody else may see."""
        return self.say(f"Part {n}: the password of {self.name} is {self.name}{n}{n}. {WORDS}")


def two_people_begin_alike(face: Face) -> None:
    people = [Person(name, face) for name in PEOPLE]
    for person in people:
        person.say("Hello, I need help.")
    for n in range(12):
        for person in people:
            person.tell(n)
    assert any("⟦" in str(one.messages) for one in face.provider.requests), "nothing was folded"
    assert len(face.list_stored()) == 3
    face.check_recall()


def two_people_go_the_same_way_for_long(face: Face) -> None:
    people = [Person(name, face) for name in PEOPLE[:2]]
    for n in range(4):  # A form that everybody answers alike.
        for person in people:
            person.say(f"Answer {n}: yes.")
    for n in range(12):
        for person in people:
            person.tell(n)
    assert len(face.list_stored()) == 2
    face.check_recall()


def a_request_is_retried(face: Face) -> None:
    person = Person("ann", face)
    person.say("Hello.")
    for n in range(10):
        asked = f"Part {n}: the password of ann is {n}{n}. {WORDS}"
        views = [str(person.say(asked, keep=is_last)) for is_last in (False, False, True)]
        assert views[1] == views[2], "a retry sends the same bytes"
    (stored,) = face.list_stored()
    assert stored.count("Part 5:") == 1


def a_first_request_is_retried(face: Face) -> None:
    person = Person("ann", face)
    for is_last in (False, False, True):  # Nobody can say whether this is one person or three.
        person.say(f"The password of ann is violet. {WORDS}", keep=is_last)
    for n in range(10):
        person.tell(n)
    (stored,) = [text for text in face.list_stored() if "Part 9:" in text]
    assert all(f"Part {n}:" in stored for n in range(10))


def an_earlier_message_is_edited(face: Face) -> None:
    person = Person("ann", face)
    for n in range(14):
        person.tell(n)
    count = len(face.list_stored())
    person.history = person.history[:20]
    view = person.say("Instead: the password of ann is violet.")
    assert "ann1111" not in str(view), "what was taken back is not sent"
    for n in range(20, 24):
        view = person.tell(n)
        assert "ann1111" not in str(view)
        assert "ann1313" not in str(view)
    assert len(face.list_stored()) == count, "an edited question stays in its session"


def the_first_message_is_edited(face: Face) -> None:
    person = Person("ann", face)
    for n in range(6):
        person.tell(n)
    person.history[0] = {"role": "user", "content": "Part 0: there is no password."}
    for n in range(6, 10):
        assert "ann00" not in str(person.tell(n)), "what was taken back is not sent"


def a_conversation_forks(face: Face) -> None:
    trunk = Person("ann", face)
    for n in range(5):
        trunk.say(f"Part {n}. {WORDS}")
    branches = [Person(name, face, list(trunk.history)) for name in PEOPLE[1:]]
    for n in range(10):
        for branch in branches:
            branch.tell(n)
    for branch in branches:
        own = [text for text in face.list_stored() if f"password of {branch.name}" in text]
        assert any(all(f"{branch.name}{n}{n}" in text for n in range(10)) for text in own)


def a_client_trims_its_history(face: Face) -> None:
    person, other = Person("ann", face), Person("bob", face)
    for n in range(16):
        for one in (person, other):
            one.tell(n)
            one.history = one.history[-8:]
    stored = face.list_stored()
    assert len(stored) == 2
    face.check_recall()


def a_client_stamps_its_first_message(face: Face) -> None:
    people = [Person(name, face) for name in PEOPLE[:2]]
    for n in range(12):
        for person in people:
            stamp = f"It is 10:{n:02}, and {person.name} needs help."
            person.say(stamp) if n == 0 else person.tell(n)
            person.history[0] = {"role": "user", "content": stamp}
    # The first answers may be anybody's; from the third on it is one conversation.
    assert sum("Part 11:" in text for text in face.list_stored()) == 2
    assert len(face.list_stored()) <= 8
    face.check_recall()


def a_client_changes_its_last_message(face: Face) -> None:
    person = Person("ann", face)
    for _ in range(2):  # The first request is retried.
        person.say("Hello, I need help.", keep=False)
    person.say("Hello, I need help.")
    for n in range(14):
        person.say(f"Part {n}: the password of ann is ann{n}{n}. {WORDS} Answer in one sentence.")
        person.history[-2] = {"role": "user", "content": f"Part {n}: the password of ann is ann{n}{n}. {WORDS}"}
    # Without a name, short histories may be anybody's.
    (stored,) = [text for text in face.list_stored() if "Part 13:" in text]
    assert "Part 5:" in stored
    assert len(face.list_stored()) <= 8


def a_history_is_empty(face: Face) -> None:
    person = Person("ann", face)
    for n, empty in enumerate(([], [{"role": "system", "content": "Be brief."}], [])):
        try:
            face.send(empty)
        except RefoldError:
            raise
        except Exception as error:  # noqa: BLE001 - The framework or the provider refuses it, each in its own way.
            assert "refold" not in str(error).lower()
        person.tell(n)
    assert sum("password of ann" in text for text in face.list_stored()) == 1


CASES = (
    two_people_begin_alike,
    two_people_go_the_same_way_for_long,
    a_request_is_retried,
    a_first_request_is_retried,
    an_earlier_message_is_edited,
    the_first_message_is_edited,
    a_conversation_forks,
    a_client_trims_its_history,
    a_client_stamps_its_first_message,
    a_client_changes_its_last_message,
    a_history_is_empty,
)
