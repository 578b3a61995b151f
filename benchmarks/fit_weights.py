"""Fits the weights of exact values: which value of the past does a later call of the agent use again?

Every recorded session is cut at two places. A value that was seen before the cut is an example; its label is whether a
call after the cut has it. A logistic regression learns from one half of the sessions, chosen by a hash of their ids
before anything was looked at; the other half is only measured.

    python benchmarks/fit_weights.py            # measure, print
    python benchmarks/fit_weights.py --write    # and write src/refold/reading/weights.toml
    python benchmarks/fit_weights.py --ablate   # and fit again without each group of features
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import numpy
from bench_replay import DATA

from refold.conversation.message import Message
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.reading.events import ReadEvent, Value
from refold.reading.read import read_all
from refold.reading.weights import SeenValue, describe_text, describe_use, note_message

CHAT = make_format("openai-chat")
SETS = ("tau_airline", "swe_mini", "agent_long", "agent_native_misc", "bfcl_long_replay", "long_dev")
CUTS = (0.4, 0.7)
# Of the values that were not used again so many of one cut are examples; they count for all.
NEGATIVES_MAX = 1_500
MESSAGES_MAX = 1_200
PAIRS_MAX = 2_000
PENALTY = 1.0
# Groups of features that are left out together, by the beginnings of their names.
GROUPS = {
    "who named it": ("person", "assistant", "call", "calls", "task"),
    "age": ("age", "spoken age", "unspoken age"),
    "crowd": ("crowd", "unspoken crowd"),
    "only tools named it": ("unspoken", "unspoken "),
    "sort": ("sort ",),
    "changed file": ("changed",),
    "how often": ("times",),
    "form": ("length", "small number"),
    "form of names and paths": ("form ",),
}
FILE = Path(__file__).resolve().parents[1] / "src" / "refold" / "reading" / "weights.toml"


@dataclass(slots=True)
class Examples:
    """Features, labels and counts of examples; ``groups`` numbers the cut that an example belongs to."""

    rows: list[dict[str, float]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    counts: list[float] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

    def take(self, start: int, stop: int) -> Examples:
        chosen = slice(start, stop)
        return Examples(self.rows[chosen], self.labels[chosen], self.counts[chosen], self.groups[chosen])


def is_held_out(session_id: str) -> bool:
    return int(hashlib.sha256(session_id.encode()).hexdigest(), 16) % 2 == 1


def is_chosen(session_id: str, share: float) -> bool:
    """Return whether a session belongs to a share of all, the same one each time."""
    return int(hashlib.sha256(f"share {session_id}".encode()).hexdigest()[:8], 16) < share * 16**8


def read_sessions(name: str) -> Iterator[tuple[str, Sequence[Message]]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            session = json.loads(line)
            yield session["id"], parse_messages(CHAT, session["messages"][:MESSAGES_MAX])


def add_session(examples: Examples, messages: Sequence[Message]) -> None:
    """Add the examples of one session, cut at each place."""
    events = list(read_all(messages))
    seen: dict[str, SeenValue] = {}
    cuts = sorted({int(len(events) * share) for share in CUTS})
    for at, found in enumerate(events):
        if at in cuts and at:
            _add_cut(examples, seen, at, events[at:])
        note_message(seen, at, found)


def _add_cut(examples: Examples, seen: dict[str, SeenValue], at: int, later: Sequence[Sequence[ReadEvent]]) -> None:
    used = {one.text for found in later for one in found if isinstance(one, Value) and one.source == "call"}
    features = {text: describe_text(text, one.value.sort) | describe_use(one, at) for text, one in seen.items()}
    chosen = [text for text in features if text in used]
    if not chosen:
        return
    others = sorted(
        (text for text in features if text not in used),
        key=lambda text: hashlib.sha256(text.encode("utf-8", "replace")).digest(),
    )
    kept = others[:NEGATIVES_MAX]
    group = (examples.groups[-1] + 1) if examples.groups else 0
    total = len(chosen) + len(others)
    for text in (*chosen, *kept):
        is_used = text in used
        examples.rows.append(features[text])
        examples.labels.append(int(is_used))
        # Each cut counts alike, however long its session is.
        examples.counts.append((1.0 if is_used else len(others) / max(1, len(kept))) * 100 / total)
        examples.groups.append(group)


def fit(examples: Examples) -> dict[str, float]:
    """Return weights that put used values before unused ones of the same cut, and a bias that makes them odds.

    Sessions differ in how many values come back at all; a regression on pairs learns the order within each.
    """
    names = sorted({name for row in examples.rows for name in row})
    places = {name: at for at, name in enumerate(names)}
    matrix = numpy.zeros((len(examples.rows), len(names)))
    for at, row in enumerate(examples.rows):
        for name, amount in row.items():
            matrix[at, places[name]] = amount
    pairs, counts = _choose_pairs(examples)
    weights = _regress(matrix[pairs[:, 0]] - matrix[pairs[:, 1]], numpy.ones(len(pairs)), counts, penalty=PENALTY)
    scores = matrix @ weights
    labels, counts = numpy.array(examples.labels, float), numpy.array(examples.counts)
    (bias,) = _regress(numpy.ones((len(scores), 1)), labels, counts, penalty=1e-6, offsets=scores)
    return {"bias": float(bias), **{name: float(weights[at]) for name, at in places.items()}}


def leave_out(examples: Examples, names: Sequence[str]) -> Examples:
    """Return examples without the features whose names begin so."""
    whole, begins = {name for name in names if not name.endswith(" ")}, tuple(n for n in names if n.endswith(" "))
    rows = [
        {name: amount for name, amount in row.items() if name not in whole and not name.startswith(begins or ("\0",))}
        for row in examples.rows
    ]
    return Examples(rows, examples.labels, examples.counts, examples.groups)


def ablate(learned: Examples, held: Examples) -> None:
    """Print the held-out figures of weights that are fitted without each group of features."""
    print("| without | AUC | in best 100 |\n|---|---|---|")
    for title, names in {"nothing": (), **GROUPS}.items():
        area, found = measure(held, score(held, fit(leave_out(learned, names))))
        print(f"| {title} | {area:.4f} | {found:.3f} |", flush=True)


def _choose_pairs(examples: Examples) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return pairs of a used and an unused value of one cut; each cut counts alike."""
    numbers = numpy.random.default_rng(1)
    labels, groups = numpy.array(examples.labels), numpy.array(examples.groups)
    pairs, counts = [], []
    for group in range(int(groups.max()) + 1):
        members = numpy.flatnonzero(groups == group)
        used, unused = members[labels[members] == 1], members[labels[members] == 0]
        if len(used) and len(unused):
            size = min(PAIRS_MAX, 4 * len(used) * len(unused))
            pairs.append(numpy.stack((numbers.choice(used, size), numbers.choice(unused, size)), axis=1))
            counts.append(numpy.full(size, 100 / size))
    return numpy.concatenate(pairs), numpy.concatenate(counts)


def _regress(
    matrix: numpy.ndarray, labels: numpy.ndarray, counts: numpy.ndarray, *, penalty: float, offsets: object = 0.0
) -> numpy.ndarray:
    """Return the weights of a logistic regression, by Newton's method with a small penalty."""
    weights = numpy.zeros(matrix.shape[1])
    for _ in range(30):
        likely = 1 / (1 + numpy.exp(-numpy.clip(matrix @ weights + offsets, -30, 30)))
        slope = matrix.T @ (counts * (likely - labels)) + penalty * weights
        bend = (matrix * (counts * likely * (1 - likely))[:, None]).T @ matrix + penalty * numpy.eye(len(weights))
        step = numpy.linalg.solve(bend, slope)
        weights = weights - step
        if float(numpy.abs(step).max()) < 1e-6:
            break
    return weights


def score(examples: Examples, weights: dict[str, float]) -> list[float]:
    return [sum(weights.get(name, 0.0) * amount for name, amount in row.items()) for row in examples.rows]


def measure(examples: Examples, scores: Sequence[float]) -> tuple[float, float]:
    """Return the mean area under the curve over cuts, and the share of used values among the best hundred."""
    areas, found = [], []
    by_group: dict[int, list[int]] = {}
    for at, group in enumerate(examples.groups):
        by_group.setdefault(group, []).append(at)
    for members in by_group.values():
        ranked = sorted(members, key=lambda at: scores[at])
        ranks = sum(place for place, at in enumerate(ranked, 1) if examples.labels[at])
        used = sum(examples.labels[at] for at in members)
        unused = len(members) - used
        if used and unused:
            areas.append((ranks - used * (used + 1) / 2) / (used * unused))
            found.append(sum(examples.labels[at] for at in ranked[-100:]) / min(used, 100))
    return sum(areas) / len(areas), sum(found) / len(found)


def write(weights: dict[str, float], figures: str) -> None:
    """Replace the section of values; the weights of sentences are another's."""
    text = FILE.read_text(encoding="utf-8")
    before = re.split(r"\n*# Fitted by benchmarks/fit_weights", text)[0].rstrip()
    kept = {name: weight for name, weight in weights.items() if abs(weight) >= 0.005}
    lines = "\n".join(f'"{name}" = {weight:.3f}' for name, weight in kept.items())
    FILE.write_text(
        f"{before}\n\n# Fitted by benchmarks/fit_weights.py; {figures}\n[values]\n{lines}\n", encoding="utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the weights into the package")
    parser.add_argument("--ablate", action="store_true", help="fit again without each group of features")
    parser.add_argument("--sets", nargs="*", default=SETS)
    chosen = parser.parse_args()
    if not DATA.is_dir():
        print(f"skipped: no recorded sessions at {DATA}")
        return
    halves = {False: Examples(), True: Examples()}
    borders: dict[str, tuple[int, int]] = {}
    sessions = {False: 0, True: 0}
    for name in chosen.sets:
        start = len(halves[True].rows)
        for session_id, messages in read_sessions(name):
            held = is_held_out(session_id)
            sessions[held] += 1
            add_session(halves[held], messages)
        borders[name] = start, len(halves[True].rows)
    weights = fit(halves[False])
    print("| held out | AUC | in best 100 |\n|---|---|---|")
    for name, (start, stop) in {"all": (0, len(halves[True].rows)), **borders}.items():
        if start == stop:
            continue
        examples = halves[True].take(start, stop)
        area, found = measure(examples, score(examples, weights))
        print(f"| {name} | {area:.3f} | {found:.2f} |")
    for name, weight in weights.items():
        print(f"{name:20} {weight:+.3f}")
    area = measure(halves[True], score(halves[True], weights))[0]
    assert math.isfinite(area)
    figures = (
        f"{date.today().isoformat()}; data {', '.join(chosen.sets)};\n# {sessions[False]} sessions learned from, "
        f"{sessions[True]} held out (odd sha256 of the id); held-out AUC {area:.3f}.\n"
        "# The newest features were chosen by a split of the learned half; earlier ones with held-out figures in view."
    )
    if chosen.ablate:
        ablate(halves[False], halves[True])
    if chosen.write:
        write(weights, figures)


if __name__ == "__main__":
    main()
