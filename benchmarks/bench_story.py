"""Does a view still tell the story? Questions a successor would ask, answered from what was sent and nothing else.

Each session grows request by request, in a window of 40% and of 20% of its tokens (beside the system prompt, never
below the largest user message and 1,000 tokens). Questions are looked up in the text that was sent: a question is
answered if one of its patterns is there. *Clipped* is every message cut to its first characters, the same number for
all, at the size of the same view: the cheapest story there is. *Trimmed* is stronger: the task, the newest half of the
window, and head and tail of older words, without old results, in the whole window (``refold.replay``'s ``trim``).

The place of the last fold decides how large the view is, and one request more may move it. So a session is measured at
up to eight requests, evenly spaced over the last 40% of its requests and including the last one. That covers at least
one cycle from fold to fold in nearly every session, at the 20% window several. A question counts at a request if its
answer has been said by then, and neither the system prompt nor the newest messages alone, at the size of the window,
would answer it. With eight requests it counts an eighth at each of them, so a session weighs as much as it has
questions. *Coding* are the English sessions in which commands are run or files are changed.

The questions are in ``benchmarks/story``: over recorded sessions, which are not in this repository, and over the sample
sessions, so that anybody can repeat it. Each session belongs to one of two halves, by a hash of its name: the rules are
changed by looking at the *tune* half only; *held* shows whether the change is general. The other sets are over other
sessions and were written after the rules; docs/notebook.md says what has been looked at since. *With a
model* means a scripted, mediocre one that repeats the first sentence of each message.

    python benchmarks/bench_story.py                             all sets, all windows
    python benchmarks/bench_story.py --only zh-concat --missed   the questions of some sessions, and which are answered
    python benchmarks/bench_story.py --only zh-concat --print    their records
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import yaml
from figures import keep_figures

from refold.budget import Tariff, window_budget
from refold.config import CompressionConfig
from refold.conversation.message import Message
from refold.conversation.view import Item, Lens
from refold.formats.detect import make_format
from refold.readers.request_log import read_session
from refold.readers.session import Session
from refold.reading.events import FileChange, ReadEvent
from refold.reading.read import read_all
from refold.replay.policy import LadderPolicy, PolicyRoom, TrimWords
from refold.replay.run import Measured, measure_session
from refold.stages.stage import Ask, Reply
from refold.tokens import CacheRules, counter_for

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
STORY = Path(__file__).resolve().parent / "story"
SAMPLES = ROOT / "examples" / "sessions"
SETS = ("recorded", "fresh", "later", "blind", "unseen", "kept", "generated")
HALVES = ("tune", "held", "fresh", "later", "blind", "unseen", "kept")
SHARES = (0.4, 0.2)
FLOOR_TOKENS = 1_000
MOMENTS_MAX = 8
LAST_SHARE = 0.4
GAP_CHARS = 80
TARIFF = Tariff(CacheRules(read=0.1, write=1.25, lifetime_s=300), 5.0)
_DRESS = re.compile(r"[`*]")
_MESSAGE = re.compile(r"^(?:user|assistant): (.+)$", re.M)
_HEADINGS = re.compile(r"(?:in this order|按顺序)[^:：]*[:：]\s*([^.。]+)[.。]")
_SENTENCE = re.compile(r".{1,200}?(?:[.!?](?=\s|$)|[。！？]|$)")


@dataclass(frozen=True)
class Question:
    """What a successor asks about a session; ``pattern`` finds the answer."""

    kind: str
    text: str
    pattern: re.Pattern[str]

    @property
    def language(self) -> str:
        return "en" if self.text.isascii() else "zh"

    def is_answered(self, text: str) -> bool:
        """Tell whether a text that went through ``plain`` answers it."""
        return self.pattern.search(text) is not None


@dataclass(frozen=True)
class Story:
    """One session and its questions."""

    name: str
    session: Session
    questions: tuple[Question, ...]
    set: str

    @property
    def half(self) -> str:
        """The part that a session belongs to, for good: ``tune``, ``held`` or a later set as a whole."""
        if self.set in HALVES:
            return self.set
        return "held" if hashlib.sha256(self.name.encode()).digest()[0] % 2 else "tune"


def plain(text: str) -> str:
    """Return a text without its dress: marks of code and emphasis, breaks of lines, capitals."""
    return " ".join(_DRESS.sub("", text).replace("\\n", " ").replace('\\"', '"').split()).lower()


def make_pattern(patterns: Sequence[str]) -> re.Pattern[str]:
    gap = f".{{0,{GAP_CHARS}}}?"
    ways = (gap.join(re.escape(plain(piece)) for piece in str(one).split("…")) for one in patterns)
    return re.compile("|".join(ways))


def read_questions(name: str) -> dict[str, tuple[int, list[Question]]]:
    """Return the questions of each session, and how many of its messages they are about (0: all)."""
    listed: dict[str, tuple[int, list[Question]]] = {}
    questions: list[Question] = []
    for line in (STORY / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            session, _, most = line.strip("[]").partition(" ")
            questions = []
            listed[session] = (int(most or 0), questions)
        elif line and not line.startswith("#"):
            kind, text, *ways = (piece.strip() for piece in line.split(" | "))
            questions.append(Question(kind, text, make_pattern(ways)))
    return listed


def read_stories(name: str) -> Iterator[Story]:
    listed = read_questions(name)
    for session_name, row in chain(read_samples(list(listed)), read_recorded(set(listed))):
        most, questions = listed[session_name]
        if most:
            row = {**row, "messages": row["messages"][:most]}
        yield Story(session_name, read_session(row, session_name), tuple(questions), name)


def read_recorded(wanted: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(DATA.glob("*.jsonl.gz")):
        if path.name.startswith("tool_outputs"):
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if row.get("id") in wanted:
                    # Tools are left out, as in bench_replay.
                    row.pop("tools", None)
                    yield row["id"], row


def read_samples(names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in names:
        path = STORY / name if (STORY / name).exists() else SAMPLES / name
        if not path.exists():
            continue
        text = path.read_text("utf-8")
        if path.suffix == ".jsonl":
            yield name, {"messages": [json.loads(line) for line in text.splitlines() if line.strip()]}
        else:
            yield name, json.loads(text)


class Mediocre:
    """A stand-in for a model: the first sentence of each message of its prompt, under two of the headings asked for."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count

    def __call__(self, ask: Ask) -> Reply:
        said = [found[0] for line in _MESSAGE.findall(ask.prompt) if (found := _SENTENCE.match(line.strip()))]
        lines, room = [], ask.tokens_max * 5 // 6 - 40
        for sentence in reversed(said):
            room -= self._count(f"- {sentence}\n")
            if room < 0:
                break
            lines.append(f"- {sentence}")
        asked = _HEADINGS.search(ask.prompt)
        names = [name.strip() for name in re.split(r"[,，、]", asked[1])] if asked else ["Project Overview", "Status"]
        half = len(lines) // 2
        old, new = lines[half:][::-1] or ["- Nothing."], lines[:half][::-1] or ["- Nothing."]
        return Reply("\n".join([f"## {names[0]}", *old, f"## {names[1]}", *new]))


class ModelPolicy(LadderPolicy):
    """The ladder with a stand-in model."""

    def __init__(self, room: PolicyRoom, config: CompressionConfig) -> None:
        super().__init__(room, config)
        self._model = Mediocre(room.lens.count_text)

    def _answer(self, ask: Ask) -> Reply:
        return self._model(ask)


@dataclass(frozen=True)
class Moment:
    """A session at one request: what was sent, what clipping and trimming would send, what the newest messages say.

    The four texts went through ``plain``; ``at`` is the number of messages so far.
    """

    at: int
    sent: str
    tokens: int
    clipped: str
    trimmed: str
    tail: str
    folds: tuple[str, ...]


@dataclass(frozen=True)
class Played:
    """A session at some of its last requests. ``said`` says from which message on each question has an answer."""

    moments: tuple[Moment, ...]
    window: int
    said: tuple[int, ...]
    is_coding: bool


def play(story: Story, share: float, settings: dict[str, Any], *, with_model: bool) -> Played:
    """Grow a session request by request and return what was sent with some of the last ones."""
    session = story.session
    counter = counter_for("gpt-4o")
    lens = Lens(make_format(session.format), counter.count_parts, counter.count_text)
    measured = measure_session(session, counter, lens)
    config = CompressionConfig(preset="default", summariser="llm" if with_model else "extract", **settings)
    least = measured.system_tokens + measured.user_tokens_max + FLOOR_TOKENS
    window = max(measured.system_tokens + int((measured.tokens - measured.system_tokens) * share), least)
    budget = replace(window_budget(window, 0, config.tiers()), is_of_room=True)
    room = PolicyRoom(lens, measured.fixed_tokens, budget, TARIFF)
    policy = (ModelPolicy if with_model else LadderPolicy)(room, config)
    trim = TrimWords(room)
    messages = measured.messages
    requests = [at for at in range(1, len(messages)) if is_request(messages, at)] + [len(messages)]
    chosen = set(choose_requests(requests))
    moments = []
    seen = 0
    for at in requests:
        policy.see(messages[seen:at])
        trim.see(messages[seen:at])
        seen = at
        step = policy.prepare()
        if at in chosen:
            so_far = messages[:at]
            sent, trimmed = (join_items(one.items) for one in (step, trim.prepare()))
            folds = tuple(item.edits[0].text for item in step.items if item.is_fold)
            clipped = clip(so_far, measured, step.tokens, lens)
            tail = read_tail(so_far, window, measured, lens)
            moments.append(Moment(at, plain(sent), step.tokens, plain(clipped), plain(trimmed), plain(tail), folds))
    said = find_said(story.questions, messages)
    is_english = all(question.language == "en" for question in story.questions)
    is_coding = is_english and any(_does_coding(events) for events in read_all(messages))
    return Played(tuple(moments), window, said, is_coding)


def _does_coding(events: Sequence[ReadEvent]) -> bool:
    return any(isinstance(event, FileChange) for event in events)


def join_items(items: Sequence[Item]) -> str:
    return "\n".join(part.text for item in items for part in item.parts)


def choose_requests(requests: Sequence[int]) -> list[int]:
    """Return the requests at which a session is measured: evenly spaced over its last part, the last one included."""
    last = requests[-max(1, round(len(requests) * LAST_SHARE)) :]
    count = min(MOMENTS_MAX, len(last))
    return [last[len(last) * (number + 1) // count - 1] for number in range(count)]


def find_said(questions: Sequence[Question], messages: Sequence[Message]) -> tuple[int, ...]:
    """Return for each question after how many messages its answer has been said: at the latest after all."""
    texts = [plain(read_text(message)) for message in messages]
    ends = list(accumulate(len(text) + 1 for text in texts))
    whole = " ".join(texts)
    found = (question.pattern.search(whole) for question in questions)
    return tuple(bisect_left(ends, match.end()) + 1 if match else len(messages) for match in found)


def is_request(messages: Sequence[Message], at: int) -> bool:
    """Tell whether the assistant was asked before this message: it speaks here, or a person went on unanswered."""
    before, here = messages[at - 1].role, messages[at].role
    return (here == "assistant" and before != "assistant") or (here == before == "user")


def read_text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts)


def clip(messages: Sequence[Message], measured: Measured, tokens: int, lens: Lens) -> str:
    """Return every message cut to its first characters, as many for each as the size allows; system prompts whole."""
    texts = [read_text(message) for message in messages if message.role != "system"]
    room = tokens - measured.system_tokens - 4 * len(texts)

    def cut(chars: int) -> str:
        return "\n".join(text[:chars] for text in texts)

    low, high = 0, max(map(len, texts), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if lens.count_text(cut(middle)) <= room else (low, middle - 1)
    return cut(low)


def read_tail(messages: Sequence[Message], window: int, measured: Measured, lens: Lens) -> str:
    """Return the system prompts and the newest messages that fill the window by themselves."""
    room = window - measured.system_tokens
    tail: list[str] = []
    for message in reversed(messages):
        room -= lens.plain(message).tokens
        if room < 0:
            break
        tail.append(read_text(message))
    return "\n".join([*(read_text(one) for one in messages if one.role == "system"), *tail])


@dataclass
class Score:
    """Questions asked and answered, by kind and language; a question counts in parts, one for each request."""

    asked: Counter[str]
    found: Counter[str]
    clipped: Counter[str]
    trimmed: Counter[str]

    def add(self, keys: Sequence[str], part: float, *, found: bool, clipped: bool, trimmed: bool) -> None:
        for key in keys:
            self.asked[key] += part  # type: ignore[assignment]
            self.found[key] += part * found  # type: ignore[assignment]
            self.clipped[key] += part * clipped  # type: ignore[assignment]
            self.trimmed[key] += part * trimmed  # type: ignore[assignment]

    def cell(self, key: str, found: Counter[str]) -> str:
        return f"{100 * found[key] / self.asked[key]:.0f}" if self.asked[key] else "–"


# Answered by neither, by clipping alone, by the view alone, by both. A question that does not count has a dot.
MARKS = "-c+#"
KEYS = ("all", "en", "coding", "zh", "goal", "rule", "cause", "decision", "done", "failed", "open")


def measure(name: str, share: float, arguments: argparse.Namespace, *, with_model: bool) -> dict[str, Score]:
    """Return the scores of both halves."""
    scores = {half: Score(Counter(), Counter(), Counter(), Counter()) for half in arguments.halves}
    settings = dict(one.split("=", 1) for one in arguments.set)
    parsed = {key: yaml.safe_load(value) for key, value in settings.items()}
    for story in read_stories(name):
        score = scores.get(story.half)
        if score is None or (arguments.only and arguments.only not in story.name):
            continue
        played = play(story, share, parsed, with_model=with_model)
        before = score.found["all"], score.asked["all"]
        for question, said in zip(story.questions, played.said, strict=True):
            keys = ["all", question.kind, question.language, *(["coding"] if played.is_coding else [])]
            marks = ""
            for moment in played.moments:
                if moment.at < said or question.is_answered(moment.tail):
                    marks += "."
                    continue
                found = question.is_answered(moment.sent)
                clipped = question.is_answered(moment.clipped)
                trimmed = question.is_answered(moment.trimmed)
                score.add(keys, 1 / len(played.moments), found=found, clipped=clipped, trimmed=trimmed)
                marks += MARKS[2 * found + clipped]
            if arguments.missed and marks.strip("."):
                print(f"  {marks:8} {question.kind:8} {question.text} {question.pattern.pattern[:90]}")
        right, asked = score.found["all"] - before[0], score.asked["all"] - before[1]
        sent = sum(moment.tokens for moment in played.moments) // len(played.moments)
        line = f"{story.name[:50]:50} {share:.0%} window {played.window:6,} sent {sent:6,} {right:.1f}/{asked:.1f}"
        print(line, file=sys.stdout if arguments.missed else sys.stderr)
        if arguments.print:
            print("\n\n".join(played.moments[-1].folds), "\n")
    return scores


def add_up(rows: Sequence[tuple[str, str, float, str, Score, Counter[str]]]) -> dict[str, object]:
    """Return the % of questions answered over all sets: window → kind of session → who wrote the view."""
    asked: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    found: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for _, _, share, by, score, answered in rows:
        for key in KEYS:
            asked[f"{share:.0%}", key, by] += score.asked[key]
            found[f"{share:.0%}", key, by] += answered[key]
    return {" ".join(where): round(100 * found[where] / asked[where], 1) for where in asked if asked[where]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES)
    parser.add_argument("--halves", nargs="*", default=HALVES)
    parser.add_argument("--only", default="", metavar="NAME", help="sessions whose name has this")
    parser.add_argument("--missed", action="store_true", help="list the questions, with a sign for each request")
    parser.add_argument("--print", action="store_true", help="print the records of the last request")
    parser.add_argument("--no-model", action="store_true")
    parser.add_argument("--figures", type=Path, help="keep the sums in this file, which docs/make_figures.py reads")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, as in a config")
    arguments = parser.parse_args()
    print("## The story in view (`benchmarks/bench_story.py`)\n")
    rows = []
    for name in arguments.sets:
        if name in ("recorded", "fresh") and not DATA.is_dir():
            print(f"{name}: no recorded sessions at ../shared/data, not measured.\n")
            continue
        for share in arguments.shares:
            for half, score in measure(name, share, arguments, with_model=False).items():
                rows.append((name, half, share, "rules", score, score.found))
                rows.append((name, half, share, "clipped", score, score.clipped))
                rows.append((name, half, share, "trimmed", score, score.trimmed))
            if not arguments.no_model:
                for half, score in measure(name, share, arguments, with_model=True).items():
                    rows.append((name, half, share, "with a model", score, score.found))
    rows = [row for row in rows if row[4].asked]
    if arguments.figures:
        keep_figures(arguments.figures, {"story": add_up(rows)})
    rows.sort(key=lambda row: (SETS.index(row[0]), HALVES.index(row[1]), -row[2]))
    print("A cell is the % of questions that the view answers.\n")
    print(f"| sessions | half | window | written by | questions | {' | '.join(KEYS)} |")
    print("|" + "---|" * (5 + len(KEYS)))
    for name, half, share, by, score, found in rows:
        cells = [name, half, f"{share:.0%}", by, f"{score.asked['all']:.0f}", *(score.cell(key, found) for key in KEYS)]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
