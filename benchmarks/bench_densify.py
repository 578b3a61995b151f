"""densify: which share of the tokens of tool outputs it saves in recorded sessions, by kind of output.

Prints Markdown. Tokens are o200k; an output that densify leaves alone counts as it is. Every block is read back.

    python benchmarks/bench_densify.py [--share 0.3]
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench_replay import DATA
from fit_weights import is_chosen

from refold.stages.densify import densify_text, dump, expand_text, parse
from refold.tokens import TokenCounter

HANDLE = "m:4f2a91c3"
COUNTER = TokenCounter("o200k_base")
SETS = ("tau_airline", "swe_mini", "agent_long", "agent_native_misc", "bfcl_long_replay", "long_dev")
MESSAGES_MAX = 600
CHARS_MAX = 400_000


@dataclass
class Sum:
    """Outputs of one kind, and their tokens before and after."""

    outputs: int = 0
    changed: int = 0
    exact: int = 0
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    chars: int = 0
    seconds: float = 0.0

    def add(self, text: str) -> None:
        started = time.process_time()
        made = densify_text(text, HANDLE)
        self.seconds += time.process_time() - started
        self.outputs += 1
        self.changed += made is not None
        self.exact += made is not None and reads_back(text, made)
        self.chars += len(text)
        self.tokens[0] += COUNTER.count_text(text)
        self.tokens[1] += COUNTER.count_text(text if made is None else made)

    def row(self, name: str) -> str:
        saved = 1 - self.tokens[1] / max(1, self.tokens[0])
        speed = 1e9 * self.seconds / max(1, self.chars)
        return (
            f"| {name} | {self.outputs:,} | {self.tokens[0]:,} | {self.changed} | {saved:.1%} | "
            f"{self.exact} of {self.changed} | {speed:,.0f} |"
        )


def reads_back(text: str, made: str) -> bool:
    """Return whether the text comes back: equal as JSON, or with all of its own lines around the blocks."""
    try:
        return dump(parse(expand_text(made))) == dump(parse(text))
    except ValueError:
        return all(line in text for line in expand_text(made).split("\n") if line[:1] not in "{[")


def find_kind(text: str) -> str:
    try:
        return "JSON" if isinstance(json.loads(text), dict | list) else "other text"
    except ValueError:
        has_json = any(line[:1] in ("{", "[") and len(line) > 300 for line in text.split("\n"))
        return "text with a line of JSON" if has_json else "other text"


def read_outputs(name: str, share: float) -> Iterator[str]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for session in map(json.loads, lines):
            if is_chosen(session["id"], share):
                for message in session["messages"][:MESSAGES_MAX]:
                    content = message["content"]
                    if message["role"] == "tool" and isinstance(content, str) and len(content) <= CHARS_MAX:
                        yield content


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="share of the sessions of each set that is read")
    chosen = parser.parse_args()
    print("## densify: JSON in fewer tokens\n")
    if not DATA.is_dir():
        print(f"skipped: no recorded sessions at {DATA}")
        return
    sums: dict[str, Sum] = {}
    for name in SETS:
        for text in read_outputs(name, chosen.share):
            kind = find_kind(text)
            for group in (f"{name}, {kind}", f"**{kind}**", "**all outputs**"):
                sums.setdefault(group, Sum()).add(text)
    print("`python benchmarks/bench_densify.py`, tool outputs of recorded sessions, o200k tokens.\n")
    print("| outputs | count | tokens | made dense | tokens saved | read back | CPU ms per MB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    print("\n".join(sums[name].row(name) for name in sorted(sums)))


if __name__ == "__main__":
    main()
