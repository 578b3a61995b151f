"""Are exact values still in view when the agent needs them? The fold alone, with and without its index.

A probe is a value that a later tool call took from an earlier message. At each probe's step the messages before it are
folded to 40% of the whole session (never below system prompt, newest user message and 1,500 tokens), and the value
must stand verbatim in what is left. Sessions are split in two by a hash of their id: options were chosen on the
``tune`` half, the ``held`` half is what is reported. Replay folds as a running agent would: the window
is the system prompt and 40% of the rest, a fold comes when it is full and goes down to 35% of that room, and each
fold takes the earlier one in.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refold.conversation.view import Lens, View, amend, apply
from refold.formats import detect, parse_messages
from refold.ladder.plan import detect_view_language
from refold.stages.fold import Fold
from refold.stages.stage import Goal
from refold.tokens import counter_for

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SETS = ("tau_airline", "swe_mini", "agent_long", "bfcl_long_replay")
SHARE, FLOOR_TOKENS = 0.4, 1_500
REPLAY_TARGET = 0.35


def read_sessions(name: str, half: str, most: int) -> Iterator[dict[str, Any]]:
    taken = 0
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            session = json.loads(line)
            side = "tune" if hashlib.sha256(session["id"].encode()).digest()[0] % 2 else "held"
            if half in (side, "all") and session.get("probes") and taken < most:
                taken += 1
                yield session


def show_text(view: View) -> str:
    return "\n".join(part.text for item in view.items for part in item.parts)


def count_system(view: View) -> int:
    return view.fixed_tokens + sum(item.tokens for item in view.items if item.role == "system")


def find_goal(view: View, whole: View, *, replay: bool) -> Goal:
    """Return the window and what to come down to: once for each probe, or late and deep."""
    system = count_system(view)
    language = detect_view_language(view)
    if replay:
        room = int((whole.tokens - system) * SHARE)
        return Goal(target=system + int(room * REPLAY_TARGET), hard=system + room, language=language)
    users = [item.tokens for item in view.items if item.role == "user"]
    window = max(int(whole.tokens * SHARE), system + (users[-1] if users else 0) + FLOOR_TOKENS)
    return Goal(target=window, hard=window, language=language)


def fold_view(view: View, stage: Fold, goal: Goal) -> View:
    proposed = stage.propose(view, goal)
    assert isinstance(proposed, list)
    return amend(view, proposed) if proposed else view


def measure_session(session: dict[str, Any], stage: Fold, *, replay: bool) -> Counter[str]:
    """Count probes asked and found, all, strict and far, and what the folds cost."""
    raws = session["messages"]
    form = detect(raws, system=None, tools=None, name="openai-chat")
    counter = counter_for("gpt-4o", None)
    lens = Lens(form, counter.count_parts, counter.count_text)
    messages = parse_messages(form, raws)
    whole = apply(messages, (), lens)
    steps = sorted({probe["step"] for probe in session["probes"]})
    seen: Counter[str] = Counter()
    edits: tuple[Any, ...] = ()
    for step in range(1, len(messages) + 1) if replay else steps:
        view = apply(messages[:step], edits, lens)
        goal = find_goal(view, whole, replay=replay)
        if view.tokens > goal.hard:
            begun = time.perf_counter()
            view = fold_view(view, stage, goal)
            seen["ms"] += int(1000 * (time.perf_counter() - begun))
            seen["folds"] += 1
            seen["over"] += view.tokens > goal.hard
            if replay:
                edits = view.edits
        if step in steps:
            text = show_text(view)
            for probe in (probe for probe in session["probes"] if probe["step"] == step):
                count_probe(seen, probe, probe["value"] in text)
    return seen


def count_probe(seen: Counter[str], probe: dict[str, Any], is_found: bool) -> None:
    kinds = ["all"]
    if probe["n_sources"] == 1 and not probe["in_assistant_text"]:
        kinds.append("strict")
    if probe["distance_in_messages"] > 20:
        kinds.append("far")
    for kind in kinds:
        seen[kind] += 1
        seen[f"{kind} found"] += is_found


def show_share(seen: Counter[str], kind: str) -> str:
    return f"{100 * seen[f'{kind} found'] / seen[kind]:.1f} ({seen[kind]})" if seen[kind] else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("tune", "held", "all"), default="held")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--replay", action="store_true")
    arguments = parser.parse_args()
    if not DATA.is_dir():
        print("## Values in view\n\nNo recorded sessions at ../shared/data: not measured.")
        return
    print("## Values in view after the fold alone (`benchmarks/bench_retention.py`)\n")
    print(
        f"Sessions: the {arguments.half} half. A cell is the % of probes still verbatim in view (how many were asked); "
        "*strict*: one single earlier copy; *far*: more than 20 messages back. Over the window: folds after which a "
        "later stage (window, clamp) would have to act, because what may not be folded alone is too large.\n"
    )
    print("| sessions | mode | index | all | strict | far | folds | over the window | ms per fold |")
    print("|---|---|---|---|---|---|---|---|---|")
    modes = (True,) if arguments.replay else (False, True)
    for name in arguments.sets:
        for replay in modes:
            for stage in (Fold(), Fold(index_tokens_max=0)):
                total: Counter[str] = Counter()
                for session in read_sessions(name, arguments.half, arguments.sessions):
                    total += measure_session(session, stage, replay=replay)
                    print(".", end="", file=sys.stderr, flush=True)
                cells = [show_share(total, kind) for kind in ("all", "strict", "far")]
                mode = "replay" if replay else "at each probe"
                cells = [name, mode, "yes" if stage.index_tokens_max else "no", *cells, str(total["folds"])]
                cells += [str(total["over"]), f"{total['ms'] / max(1, total['folds']):.0f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
