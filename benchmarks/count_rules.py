"""Counts how often each rule of ``reading/rules`` decides something in recorded sessions.

A sentence rule decides where it is the only one of its kind that fits a sentence, a rule for tools and commands where
it is the first that fits, a rule for lines where a line of an output fits it. A rule that never decides changes no
figure that is measured on these sessions.

    python benchmarks/count_rules.py [--sets swe_mini tau_airline] [--share 0.2]
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from bench_replay import DATA
from fit_weights import is_chosen, read_sessions

from refold.conversation.message import Message
from refold.reading.events import Action, ReadEvent, Statement, Utterance
from refold.reading.read import read_all
from refold.reading.rules import Side, load_rules, read_table
from refold.reading.shell import split_commands
from refold.reading.tools import find_command, find_tool
from refold.reading.tools import load_rules as load_tool_rules

SETS = ("tau_airline", "swe_mini", "agent_long", "agent_native_misc", "bfcl_long_replay", "long_dev", "locomo")
CHINESE = ("zh_dialogues", "zh_long_concat")
MESSAGES_MAX = 300


def name_rules() -> dict[object, str]:
    """Return a name for every rule: its file, its kind and its first example."""
    names: dict[object, str] = {}
    for rules in load_rules():
        for side, several in rules.rules.items():
            for rule in several:
                names[rule] = f"{rules.language}.toml {side} {rule.kind}: {rule.yes[0][:50]}"
    for kind in ("tool", "command"):
        for rule in load_tool_rules(kind):
            names[rule] = f"tools.toml {kind}: {rule.pattern.pattern[:60]}"
    for at, line in enumerate(read_table("rules/outputs.toml")["line"]):
        names["line", at] = f"outputs.toml {line['kind']}: {line['yes'][0][:50]!r}"
    for at, line in enumerate(read_table("rules/values.toml")["listing"]):
        names["listing", at] = f"values.toml listing: {line['yes'][0][:50]!r}"
    return names


def find_deciding(messages: Iterable[Message]) -> Iterator[object]:
    """Yield each rule that decides something, once for each time."""
    lines = [
        ((kind, at), re.compile(rule["is"] if rule.get("anywhere") else f"^(?:{rule['is']})", re.M))
        for kind, file in (("line", "outputs"), ("listing", "values"))
        for at, rule in enumerate(read_table(f"rules/{file}.toml")[kind])
    ]
    for message, events in zip(messages, read_all(messages), strict=True):
        yield from _find_in_words(events)
        for part in message.parts:
            if part.kind == "result" or message.role == "tool":
                yield from (name for name, pattern in lines if pattern.search(part.text[:20_000]))


def _find_in_words(events: Iterable[ReadEvent]) -> Iterator[object]:
    for event in events:
        if isinstance(event, Utterance | Statement):
            side: Side = "person" if isinstance(event, Utterance) else "assistant"
            for rules in load_rules():
                lowered = event.text.lower()
                fitting = [
                    rule
                    for rule in rules.rules[side]
                    if any(word in lowered for word in rule.words) and rule.fits(event.text[:400])
                ]
                kinds = Counter(rule.kind for rule in fitting)
                yield from (rule for rule in fitting if kinds[rule.kind] == 1)
        elif isinstance(event, Action):
            rule = find_tool(event.tool)
            yield rule
            if rule is None or rule.is_shell:
                yield from (find_command(command) for command in split_commands(event.text))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=(*SETS, *CHINESE))
    parser.add_argument("--share", type=float, default=1.0, help="share of the sessions of each set that is read")
    chosen = parser.parse_args()
    if not DATA.is_dir():
        print(f"skipped: no recorded sessions at {DATA}")
        return
    names = name_rules()
    found: Counter[object] = Counter()
    for name in chosen.sets:
        for session_id, messages in read_sessions(name):
            if is_chosen(session_id, chosen.share):
                found.update(find_deciding(messages[:MESSAGES_MAX]))
    print("| decides | rule |\n|---|---|")
    for rule, title in sorted(names.items(), key=lambda pair: (found[pair[0]], pair[1])):
        print(f"| {found[rule]} | `{title}` |")


if __name__ == "__main__":
    main()
