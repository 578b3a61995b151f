"""How often an agent copies from an old message again, by what the message holds and how old it is.

For every message of the recorded sessions, and every later request at least three requests after it: was it the first
source of ten words in a row that an assistant message wrote within the next 20 requests? The shares are the table of
``refold.ladder.rereads``, by which the economic trigger estimates what a fold would cost.

    python benchmarks/bench_rereads.py
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

from bench_replay import DATA, read_lines

from refold.budget.economics import TABLE_REQUESTS
from refold.conversation import Lens
from refold.conversation.message import Message
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.ladder.rereads import AGES, TABLE, ItemKinds, Kind
from refold.readers.request_log import read_session
from refold.replay.record import CopyIndex
from refold.tokens import counter_for

SETS = ("tau_airline", "swe_mini", "agent_long", "agent_native_misc", "bfcl_long_replay")
SESSIONS_MAX = 40
# The newest steps are never folded to save money, and the last requests of a session say little about later ones.
AGE_MIN, REST_MIN = 3, 5

Cell = tuple[Kind, int]


def count_session(messages: Sequence[Message], lens: Lens, seen: Counter[Cell], copied: Counter[Cell]) -> None:
    """Add one session to the counts: by kind and column of age, how often a message was seen, and copied from later."""
    index, kinds = CopyIndex(messages), ItemKinds().update([lens.plain(message) for message in messages])
    number, numbers = 0, []
    for message in messages:
        number += message.role == "assistant"
        numbers.append(number)
    uses: dict[int, list[int]] = defaultdict(list)
    for at, message in enumerate(messages):
        if message.role == "assistant":
            for source in index.find_copied(at, at + 1, ()).sources:
                uses[source].append(numbers[at])
    for at, kind in enumerate(kinds):
        if kind is None:
            continue
        for now in range(numbers[at] + AGE_MIN, number - REST_MIN + 1):
            age = now - numbers[at]
            cell = kind, next((column for column, limit in enumerate(AGES) if age <= limit), len(AGES))
            seen[cell] += 1
            copied[cell] += any(now < used <= now + TABLE_REQUESTS for used in uses[at])


def main() -> None:
    print("## Copied again (`benchmarks/bench_rereads.py`)\n")
    if not DATA.is_dir():
        print("No recorded sessions at ../shared/data: not measured.")
        return
    counter, form = counter_for("gpt-4o"), make_format("openai-chat")
    seen: Counter[Cell] = Counter()
    copied: Counter[Cell] = Counter()
    for name in SETS:
        for line in read_lines(name, "all", SESSIONS_MAX):
            session = read_session(json.loads(line), "recorded")
            lens = Lens(form, counter.count_parts, counter.count_text)
            count_session(tuple(parse_messages(form, session.messages)), lens, seen, copied)
    heads = [*(f"≤ {limit}" for limit in AGES), "older"]
    print(f"Percent copied from within {TABLE_REQUESTS} requests, by age in requests; in brackets the table in use.\n")
    print(f"| kind | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for kind, chances in TABLE.items():
        cells = []
        for column, chance in enumerate(chances):
            cell = kind, column
            cells.append(f"{100 * copied[cell] / seen[cell]:.0f} ({100 * chance:.0f})" if seen[cell] else "–")
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
