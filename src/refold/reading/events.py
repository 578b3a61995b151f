"""Events: what one message says and does, each with its place and its verbatim text.

An event knows nothing of the conversation around it: it is read from one message (a result: together with the call
that it answers), so it can be cached by content. Whether an ask is open, a finding still holds or a file was reverted
is decided by ``state``, which sees the events in order.

Whose words an event has follows from its kind, never from the role of the message: only a person's words are an
``Utterance``; whatever a tool prints is a ``CallOutcome``, a ``FileChange`` or a ``Value``, and text that a harness
sends with the role of a user is a ``HarnessNote``.
"""

from __future__ import annotations

from typing import Literal

from refold.conversation.message import frozen

UtteranceKind = Literal["request", "rule", "correction", "approval", "question", "remark"]
NoteKind = Literal["reminder", "complaint", "environment", "continue", "command", "repeated"]
StatementKind = Literal[
    "finding",  # what is the case
    "cause",  # why it is
    "decision",  # what was chosen, with its reason
    "conclusion",  # the last word of a train of thought
    "done",  # a claim that something was done
    "intent",  # the announced next step
    "guess",  # a hypothesis: never a finding
    "question",  # asked of the person
    "remark",  # everything else
]
# The most telling first: of the commands of one call the first of these says what the call does.
Verb = Literal[
    "finish",
    "deploy",
    "commit",
    "send",
    "test",
    "build",
    "install",
    "run",
    "revert",
    "edit",
    "create",
    "move",
    "delete",
    "fetch",
    "search",
    "read",
    "book",
    "pay",
    "cancel",
    "update",
    "ask",
    "plan",
    "think",
    "other",
]
Status = Literal["ok", "failed", "unknown"]
ValueSource = Literal["person", "assistant", "call", "result"]
ChangeKind = Literal["created", "edited", "deleted", "moved", "reverted", "restored"]


@frozen
class ReadEvent:
    """Something that one part of a message says or does. ``text`` is verbatim: ``part.text[start:stop]``.

    Where a part is JSON (the arguments of a call), ``text`` is the decoded value and the place is the whole part.
    """

    part: int = 0
    start: int = 0
    stop: int = 0
    text: str = ""


@frozen
class Utterance(ReadEvent):
    """A person's words: a sentence. ``lead`` and ``block`` are as in a statement.

    ``is_fact``: it says something about people or things, such as a name, a place, a date or a number.
    """

    kind: UtteranceKind = "remark"
    is_fact: bool = False
    lead: str = ""
    block: str = ""
    in_block: bool = False


@frozen
class HarnessNote(ReadEvent):
    """The harness speaking with the role of a user, or inside a tool's result: never a wish, never an outcome."""

    kind: NoteKind = "reminder"


@frozen
class Statement(ReadEvent):
    """A sentence of the assistant. ``lead`` is the heading or sentence that introduces it, ``block`` the list or code.

    In a recorded chat, ``lead`` is the time and the name before the message. ``in_block``: the sentence is an item of
    the list in the ``block`` of a sentence before it, so whoever writes that block must not write it again.
    ``retracts``: it takes back what was said just before it ("wait, no"). ``is_last``: it closes its message.
    """

    kind: StatementKind = "remark"
    lead: str = ""
    block: str = ""
    in_block: bool = False
    retracts: bool = False
    is_last: bool = False


@frozen
class Action(ReadEvent):
    """A call: what it does, and to what. ``text`` is the command of a shell, else the arguments in a few words.

    ``targets`` are paths, names or ids. ``is_final``: it cannot be undone (paid, sent, booked, committed, deployed).
    """

    call_id: str = ""
    tool: str = ""
    verb: Verb = "other"
    targets: tuple[str, ...] = ()
    is_final: bool = False


@frozen
class CallOutcome(ReadEvent):
    """What came of a call. ``text`` is the line that says so; ``fields`` are the pairs that prove it.

    ``fields`` name exit status, counts of tests, status, amounts, ids and hashes as the result writes them, in its
    order. ``failing`` are the names of failing tests or the places of errors.
    """

    call_id: str = ""
    status: Status = "unknown"
    fields: tuple[tuple[str, str], ...] = ()
    error: str = ""
    failing: tuple[str, ...] = ()


@frozen
class FileChange(ReadEvent):
    """A file's change by a call: ``removed`` and ``added`` are verbatim, in the order of the file; both may be long.

    A moved file has its new path in ``path`` and its old one in ``source``. The path ``.`` is the whole working tree,
    as ``git stash`` and ``git reset --hard`` revert it and ``git stash pop`` restores it. Whether it took place is
    decided by the outcome of its call.
    """

    call_id: str = ""
    path: str = ""
    kind: ChangeKind = "edited"
    removed: str = ""
    added: str = ""
    source: str = ""


@frozen
class PlanItem:
    """One item of a plan, with its status as the agent writes it."""

    text: str
    status: str = ""


@frozen
class WorkPlan(ReadEvent):
    """A plan or to-do list, whole: it replaces the plan before it."""

    items: tuple[PlanItem, ...] = ()


@frozen
class Value(ReadEvent):
    """An exact value that a later step must spell letter for letter, with its owner.

    ``text`` is the value. ``owner`` is the field, noun, person or subject that it belongs to, verbatim: empty only if
    the value explains itself (a path, a name of code). ``sort`` is its kind, ``times`` how often the part has it,
    ``source`` who wrote it: only a person's and an assistant's words are spoken.
    """

    sort: str = ""
    source: ValueSource = "result"
    owner: str = ""
    times: int = 1
