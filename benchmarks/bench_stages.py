"""Gain and cost of each stage on recorded sessions, and the values still in view after ``default``.

A probe is an exact value that a later tool call took from an earlier message; *strict* ones have one single earlier
copy, *far* ones are used more than 20 messages later. The messages before a step are compressed to 40% of the whole
session (never below what must always work), by one stage alone or by the ladder of ``default``; the values that this
step uses should still stand in the view. Only steps that are over this budget count, of each session a few, evenly
spread. The sample is the same in every run. Prints Markdown.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bench_honesty import measure as measure_lines
from refold.budget import flat_budget
from refold.config import CompressionConfig
from refold.conversation.view import Lens, View, apply
from refold.errors import BudgetTooSmall
from refold.formats import detect, parse_messages
from refold.ladder.plan import Plan, detect_view_language, order_stages, prepare
from refold.ladder.run import answer_nothing, drive, take_edits
from refold.stages import STAGES
from refold.stages.stage import Goal, Stage
from refold.tokens import counter_for

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
# How many sessions of each set; all that hash low enough, so that a longer list holds the shorter one.
SETS = {"tau_airline": 140, "swe_mini": 50, "agent_long": 17, "agent_native_misc": 12, "bfcl_long_replay": 60}
STEPS = 5
SHARE, FLOOR_TOKENS = 0.4, 1_500
FAR = 20


@dataclass(frozen=True)
class Moment:
    """One step of a session: what came before it, the budget, and the values that it uses."""

    view: View
    budget: int
    probes: Sequence[dict[str, Any]]


def read_sessions(name: str) -> list[dict[str, Any]]:
    """Return the sample of one data set."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        sessions = [session for line in lines if (session := json.loads(line)).get("probes")]
    return sorted(sessions, key=lambda session: hashlib.sha256(session["id"].encode()).digest())[: SETS[name]]


def read_moments(session: dict[str, Any]) -> Iterator[Moment]:
    """Yield some steps of a session that use values from before and are over budget, evenly spread."""
    form = detect(session["messages"], name="openai-chat")
    counter = counter_for("gpt-4o", None)
    lens = Lens(form, counter.count_parts, counter.count_text)
    messages = parse_messages(form, session["messages"])
    fixed = 2 + counter.count_tools(session.get("tools"))
    whole = apply(messages, (), lens, fixed_tokens=fixed)
    moments = []
    for step in sorted({probe["step"] for probe in session["probes"]}):
        items = whole.items[:step]
        system = sum(item.tokens for item in items if item.role == "system")
        users = [item.tokens for item in items if item.role == "user"]
        budget = max(int(whole.tokens * SHARE), fixed + system + (users[-1] if users else 0) + FLOOR_TOKENS)
        if fixed + sum(item.tokens for item in items) > budget:
            moments.append((step, budget))
    for number in range(1, min(STEPS, len(moments)) + 1):
        step, budget = moments[len(moments) * number // min(STEPS, len(moments)) - 1]
        view = apply(messages[:step], (), lens, fixed_tokens=fixed)
        yield Moment(view, budget, [probe for probe in session["probes"] if probe["step"] == step])


def show_text(view: View) -> str:
    """Return all that a model reads of a view."""
    return "\n".join(part.text for item in view.items for part in item.parts)


def count_probes(found: Counter[str], moment: Moment, view: View) -> None:
    """Count the probes of a moment, strict and far, and those that are still in view."""
    text = show_text(view)
    for probe in moment.probes:
        is_there = probe["value"] in text
        kinds = {
            "strict": probe["n_sources"] == 1 and not probe["in_assistant_text"],
            "far": probe["distance_in_messages"] > FAR,
        }
        for kind in (kind for kind, holds in kinds.items() if holds):
            found[kind] += 1
            found[f"{kind} there"] += is_there


def run_alone(found: Counter[str], stage: Stage, moment: Moment) -> None:
    """Run one stage on a moment that is over its budget, and count what it did."""
    view = moment.view
    goal = Goal(target=moment.budget, hard=moment.budget, language=detect_view_language(view))
    start = time.perf_counter()
    proposed = stage.propose(view, goal)
    edits = proposed if isinstance(proposed, list) else drive(proposed, answer_nothing)
    found["ns"] += int(1e9 * (time.perf_counter() - start))
    found["chars"] += sum(len(part.text) for item in view.items for part in item.parts)
    after, _ = take_edits(view, edits, stage.name, is_last=stage.name == "clamp", strict=True)
    found["before"] += view.tokens
    found["after"] += after.tokens
    found["fits"] += after.tokens <= moment.budget
    found["moments"] += 1
    count_probes(found, moment, after)


def run_ladder(found: Counter[str], stages: Sequence[Stage], moment: Moment) -> None:
    """Run a ladder on a moment and count what is still in view."""
    plan = Plan(budget=flat_budget(moment.budget), stages=order_stages(stages))
    found["moments"] += 1
    try:
        view = drive(prepare(moment.view, plan), answer_nothing).view
    except BudgetTooSmall:
        found["refused"] += 1
        return
    count_probes(found, moment, view)


def share(found: Counter[str], kind: str) -> str:
    """Return which share of the probes of a kind is still there, and of how many."""
    return f"{100 * found[f'{kind} there'] / found[kind]:.1f} ({found[kind]})" if found[kind] else "–"


def measure() -> tuple[dict[str, Counter[str]], dict[tuple[str, str], Counter[str]]]:
    """Return the sums per stage, and those of ``default`` per set with and without the index."""
    alone: dict[str, Counter[str]] = {name: Counter() for name in STAGES}
    ladders = {
        "yes": CompressionConfig().stages(),
        "no": CompressionConfig(fold={"index_tokens_max": 0}).stages(),
    }
    whole: dict[tuple[str, str], Counter[str]] = {}
    for name in SETS:
        for session in read_sessions(name):
            for moment in read_moments(session):
                for index, stages in ladders.items():
                    run_ladder(whole.setdefault((name, index), Counter()), stages, moment)
                for stage_name, stage in STAGES.items():
                    run_alone(alone[stage_name], stage(), moment)
            print(".", end="", file=sys.stderr, flush=True)
    return alone, whole


def main() -> None:
    """Print the tables."""
    print("## Stages (`benchmarks/bench_stages.py`)\n")
    if not DATA.is_dir():
        print("No recorded sessions at ../shared/data: not measured.")
        return
    alone, whole = measure()
    lines, _ = measure_lines(every=3)
    moments = next(iter(alone.values()))["moments"]
    print(f"Each stage alone with its own options, at {moments} steps of up to {sum(SETS.values())} sessions.")
    print("`must_keep`: every third recorded tool output. In brackets: of how many.\n")
    print("| stage | tokens saved | fits alone | strict probes in view % | far % | must_keep lines kept | ms per MB |")
    print("|---|---|---|---|---|---|---|")
    for name, found in alone.items():
        saved = 1 - found["after"] / max(1, found["before"])
        kept = f"{lines[name]['kept']} of {lines[name]['lines']}" if lines[name]["lines"] else "–"
        speed = found["ns"] / 1e6 / max(1e-9, found["chars"] / 1e6)
        print(
            f"| {name} | {saved:.0%} | {found['fits'] / max(1, found['moments']):.0%} | {share(found, 'strict')} "
            f"| {share(found, 'far')} | {kept} | {speed:.0f} |"
        )
    print("\n### Values in view after `default` at 40%\n")
    print("| sessions | steps | index | strict % | far % |\n|---|---|---|---|---|")
    for (name, index), found in whole.items():
        cells = f"{share(found, 'strict')} | {share(found, 'far')}"
        print(f"| {name} | {found['moments']} | {index} | {cells} |")


if __name__ == "__main__":
    main()
