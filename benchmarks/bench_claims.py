"""How many false sentences of a model's note are caught, and how many true ones are kept, by kind.

The files of ``claims/`` have sentences about recorded sessions, each with the messages that it cites, written before
the check that judges them. Each is judged alone, as one line of a note. All files but ``kept.toml`` are open: they were
seen while the check was built. ``kept.toml`` (with ``--kept``) is counted when a change of the check is done, and its
sentences are never printed. Prints Markdown.
"""

from __future__ import annotations

import gzip
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from refold.conversation.message import Message
from refold.conversation.reason import Reason
from refold.formats import detect, parse_messages
from refold.stages.claims import find_fault
from refold.stages.ground import Ground

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CLAIMS = Path(__file__).parent / "claims"
OPEN, KEPT = ("sentences", "more", "work", "work_kept"), ("kept", "last")
FILES = ("agent_native_misc", "tau_airline", "swe_mini", "agent_long", "bfcl_long_replay", "zh_dialogues", "long_dev")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence about a session: what it cites, whether it is true, and the set that it is of."""

    session: str
    text: str
    kind: str
    cites: tuple[int, ...]
    is_true: bool
    file: str

    @property
    def is_open(self) -> bool:
        """Whether the sentence was seen while the check was built."""
        return self.file in OPEN


def list_files() -> tuple[str, ...]:
    """Return the open sets; with ``--kept`` also those that are kept back."""
    return (*OPEN, *(KEPT if "--kept" in sys.argv else ()))


def read_sentences() -> list[Sentence]:
    """Return the sentences of the open sets; with ``--kept`` also of the set that is kept back."""
    return [
        Sentence(session, text, kind, tuple(cites), side == "true", name)
        for name in list_files()
        for session, sides in tomllib.loads((CLAIMS / f"{name}.toml").read_text("utf-8")).items()
        for side in ("true", "false")
        for kind, cites, text in sides[side]
    ]


@cache
def read_sessions() -> dict[str, list[Message]]:
    """Return the messages of every session that a sentence is about."""
    wanted = {one.session for one in read_sentences()}
    found = {}
    for name in FILES:
        with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                if record["id"] in wanted:
                    found[record["id"]] = parse_messages(detect(record["messages"]), record["messages"])
    return found


@cache
def read_ground(session: str) -> Ground:
    """Return what the sentences about a session are checked against; they count messages from 0."""
    messages = read_sessions()[session]
    return Ground(messages, numbers=range(len(messages)))


def is_kept(sentence: Sentence) -> bool:
    """Return whether the check keeps a sentence as a line of a note."""
    return not find_why(sentence)


def find_why(sentence: Sentence) -> Reason:
    """Return why the check drops a sentence; no reason if it keeps it."""
    ground = read_ground(sentence.session)
    return find_fault(sentence.text, ground.scope(sentence.cites))


def score(judge: Callable[[Sentence], bool]) -> Iterator[tuple[Sentence, bool]]:
    """Yield every sentence with whether the check was right about it."""
    for sentence in read_sentences():
        yield sentence, judge(sentence) == sentence.is_true


def main() -> None:
    """Print the table, and the sentences that were judged wrongly."""
    print("## Sentences of a note (`benchmarks/bench_claims.py`)\n")
    if not DATA.is_dir():
        print("No recorded sessions at ../shared/data: not measured.")
        return
    judged = list(score(is_kept))
    columns = [OPEN, *((name,) for name in list_files())]
    print(f"| | kind | open | {' | '.join(list_files())} |\n|---|---|{'---|' * len(columns)}")
    for is_true in (True, False):
        rows = [(one, right) for one, right in judged if one.is_true == is_true]
        for kind in ["all", *dict.fromkeys(one.kind for one, _ in rows)]:
            cells = []
            for files in columns:
                hits = [right for one, right in rows if one.file in files and kind in ("all", one.kind)]
                cells.append(f"{sum(hits)} of {len(hits)} ({sum(hits) / max(1, len(hits)):.0%})")
            print(f"| {'true, kept' if is_true else 'false, caught'} | {kind} | {' | '.join(cells)} |")
    for one, right in judged:
        if not right and one.is_open:
            print(
                f"- {'dropped' if one.is_true else 'missed'} ({one.kind}) {list(one.cites)} {one.text} {find_why(one)}"
            )


if __name__ == "__main__":
    main()
