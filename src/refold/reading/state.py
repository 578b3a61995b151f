"""State: what is true now in a conversation, as a plain value that ``advance`` folds from events.

Every entry quotes its source: the handle and the position of the message, and the verbatim text. Each section has a
bound; ``State.omitted`` counts the entries that a bound dropped, oldest first. Only a person's words are ever in
``task``, ``rules``, ``said`` or an open ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from refold.conversation.message import frozen
from refold.reading.events import Action, ChangeKind, FileChange, Status, Verb

BeliefKind = Literal["finding", "cause", "decision", "conclusion", "done"]
OpenKind = Literal[
    "ask",  # a person's request or question without an answer
    "question",  # the assistant's question to the person, not yet answered
    "plan",  # an item of the newest plan that is not done
    "next",  # the step that the assistant announced last
]
SaidKind = Literal["agreement", "preference", "fact"]


@frozen
class Quote:
    """Verbatim words with their place. ``position`` counts the messages of the conversation from 0.

    ``speaker`` is the role of the message, or the name of the person where the message carries one. ``cut`` is the
    number of characters that a bound removed from the middle of ``text``.
    """

    text: str
    handle: str = ""
    position: int = 0
    speaker: str = ""
    cut: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskText:
    """The message that states the work, whole; ``finish`` is the sentence or command that says how to finish it.

    ``later`` is what the person asked for since within the same work, newest last, whether done or not.
    """

    quote: Quote
    finish: Quote | None = None
    later: tuple[Quote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRule:
    """A person's rule that is in force. A newer rule on the same matter has struck the older one.

    ``about`` are the assistant's words that a short rule points at ("never do that again").
    """

    quote: Quote
    about: Quote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """Lines that a change removed from and added to a file, verbatim where they are short, else cut.

    ``lines_cut`` counts the lines left out. If neither is known, the command in ``quote`` stands for the change.
    """

    removed: str
    added: str
    quote: Quote
    lines_cut: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file that the work changed, as it is now.

    ``quote.text`` is the last change's call. ``edits`` are the newest changes that still hold, oldest first: a change
    that a later one rewrote or took back is left out. ``times`` counts all changes that took place.
    A file is scratch if the work created it and nobody asked for it (a reproduction script, a temporary copy).
    ``writes`` are the changes of other files that a script makes when it is run.
    """

    path: str
    kind: ChangeKind
    quote: Quote
    edits: tuple[FileEdit, ...] = ()
    source: str = ""
    times: int = 1
    is_scratch: bool = False
    writes: tuple[FileChange, ...] = ()

    @property
    def last(self) -> FileEdit | None:
        """The newest change whose text is known."""
        return next((edit for edit in reversed(self.edits) if edit.removed or edit.added), None)

    @property
    def removed(self) -> str:
        """What the last known change removed."""
        return self.last.removed if self.last else ""

    @property
    def added(self) -> str:
        """What the last known change added."""
        return self.last.added if self.last else ""

    @property
    def lines_cut(self) -> int:
        """How many lines of the last known change were left out."""
        return self.last.lines_cut if self.last else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The newest result of one test, build or lint command.

    ``command`` is as it was typed, ``quote`` the line that says how it went, ``failing`` what still fails.
    ``changes_after`` counts the changes of files since the run: a result of before an edit proves little.
    """

    command: str
    verb: Verb
    status: Status
    quote: Quote
    fields: tuple[tuple[str, str], ...] = ()
    failing: tuple[str, ...] = ()
    runs: int = 1
    changes_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalAct:
    """An act that cannot be undone, with its receipt: amounts, ids, hash, status, as the result writes them.

    ``quote`` is the call, ``result`` the line of the result that proves it. A failed act is in ``State.failed``.
    ``status`` is unknown while no result has come, or if the result does not say.
    """

    verb: Verb
    tool: str
    targets: tuple[str, ...]
    quote: Quote
    status: Status = "unknown"
    receipt: tuple[tuple[str, str], ...] = ()
    result: Quote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What the assistant holds to be true or has decided, with the list or code it introduces, not retracted since.

    ``lead`` is the sentence that introduces it, ``block`` the list or code that it introduces; both may be empty.
    ``is_last``: it was the last word of its message. ``about`` is the question that it answers.
    """

    kind: BeliefKind
    quote: Quote
    lead: str = ""
    block: str = ""
    is_last: bool = False
    about: Quote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTry:
    """An action that failed and did not succeed since. ``why`` is the error as the result writes it."""

    verb: Verb
    tool: str
    quote: Quote
    why: str = ""
    targets: tuple[str, ...] = ()
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenItem:
    """Something that waits: for an answer, for a person, or to be done. ``status`` is the plan's own word."""

    kind: OpenKind
    quote: Quote
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a person said: ``about`` is what an agreement approves, or the question that was answered.

    If the assistant's messages carry a name, two people talk with each other, and its words are a person's, too.
    """

    kind: SaidKind
    quote: Quote
    about: Quote | None = None


@frozen
class OwnedValue:
    """An exact value with its owner. ``used`` is the position of the newest message that has it."""

    text: str
    owner: str
    sort: str
    quote: Quote
    times: int = 1
    used: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """An entry that no longer holds, and the words or the call that struck it."""

    quote: Quote
    by: Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call whose result has not come yet. Results are paired by position, since call ids repeat."""

    action: Action
    quote: Quote
    changes: tuple[FileChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is true after ``messages`` messages. Entries are in the order in which they last changed."""

    messages: int = 0
    task: TaskText | None = None
    rules: tuple[StandingRule, ...] = ()
    files: tuple[FileState, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    acts: tuple[FinalAct, ...] = ()
    beliefs: tuple[Belief, ...] = ()
    failed: tuple[FailedTry, ...] = ()
    open: tuple[OpenItem, ...] = ()
    said: tuple[Said, ...] = ()
    values: tuple[OwnedValue, ...] = ()
    struck: tuple[Struck, ...] = ()
    pending: tuple[PendingCall, ...] = ()
    people: tuple[str, ...] = ()
    """The names of those who speak, in the order of their first words; empty where messages carry no names."""
    is_talk: bool = False
    """The assistant's messages carry a name: two people talk, and nobody states work."""
    has_text_results: bool = False
    """Results come as a user's text: then the commands in the assistant's words are calls."""
    found_files: tuple[str, ...] = ()
    """Files that were read before the work changed them: writing one of them whole does not create it."""
    acted: int = -1
    """The position of the newest call."""
    opening: Quote | None = None
    """The person's first message that may state the work: the task, once the assistant works with tools."""
    heard: Quote | None = None
    """The person's newest message."""
    proposal: Quote | None = None
    """The assistant's newest question or last words: what a person's "yes" approves."""
    omitted: tuple[tuple[str, int], ...] = ()
    """Entries that a bound dropped, by section."""

    @property
    def failing(self) -> tuple[CheckResult, ...]:
        """The checks whose newest result is a failure."""
        return tuple(check for check in self.checks if check.status == "failed")
