"""How many of the lines that must stay do stay, per stage, over recorded tool outputs; and that every line is honest.

Each output stands alone as the old result of a conversation and is given to one stage at a time, at half and at a tenth
of its tokens where the stage goes by a budget. ``must_keep`` lines come with the records: failing tests, changed files,
exit statuses. Prints Markdown.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.laws.honesty import find_dishonest, make_cases, read_outputs, run_stage

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def measure(every: int = 1) -> tuple[dict[str, Counter[str]], int]:
    """Return the sums per stage over every n-th output, and how many outputs were read."""
    sums: dict[str, Counter[str]] = {}
    records = read_outputs(DATA)[::every]
    for record in records:
        for name, stage, view, goal in make_cases(record["content"]):
            after, edits = run_stage(stage, view, goal)
            found = sums.setdefault(name, Counter())
            found["edits"] += len(edits)
            found["dishonest"] += sum(len(find_dishonest(edit, view)) for edit in edits)
            if not edits:
                continue
            found["before"] += view.tokens
            found["after"] += after.tokens
            text = "\n".join(part.text for item in after.items for part in item.parts)
            found["kept"] += sum(line in text for line in record.get("must_keep") or ())
            found["lines"] += len(record.get("must_keep") or ())
        print(".", end="", file=sys.stderr, flush=True)
    return sums, len(records)


def main() -> None:
    """Print the table."""
    print("## Honesty (`benchmarks/bench_honesty.py`)\n")
    if not DATA.is_dir():
        print("No recorded sessions at ../shared/data: not measured.")
        return
    sums, count = measure()
    print(f"{count} recorded tool outputs, each alone in a conversation; only where the stage had something to do.\n")
    print("| stage | edits | lines neither verbatim nor marked | tokens saved | must_keep lines still in view |")
    print("|---|---|---|---|---|")
    for name, found in sums.items():
        saved = 1 - found["after"] / found["before"] if found["before"] else 0.0
        kept = f"{found['kept']} of {found['lines']} ({found['kept'] / found['lines']:.0%})" if found["lines"] else "–"
        print(f"| {name} | {found['edits']} | {found['dishonest']} | {saved:.0%} | {kept} |")


if __name__ == "__main__":
    main()
