"""densify on JSON: tokens saved, whether all of it reads back, and the time it takes.

Recorded outputs where ../shared/data is there, and generated records of the shapes that APIs and databases return.
Prints Markdown. Tokens are o200k; a document that densify leaves alone counts as it is. "Values alone" is what dropping
every key, ids used as keys included, would save: a lossy mark to compare with, not a floor where values repeat.
"""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refold.stages.densify import densify_text, expand_text
from refold.stages.densify.cells import dump, parse
from refold.tokens import TokenCounter

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
HANDLE = "m:4f2a91c3"
COUNTER = TokenCounter("o200k_base")
ROWS = 120
WORDS = ["alpha", "river", "stone", "cloud", "maple", "amber", "delta", "north", "quiet", "silver", "orbit", "lemon"]


@dataclass
class Sum:
    """Characters and tokens before and after, over a group of documents."""

    documents: int = 0
    changed: int = 0
    exact: int = 0
    chars: list[int] = field(default_factory=lambda: [0, 0])
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    values: int = 0
    seconds: float = 0.0

    def add(self, text: str) -> None:
        started = time.process_time()
        made = densify_text(text, HANDLE)
        self.seconds += time.process_time() - started
        shown = text if made is None else made
        self.documents += 1
        self.changed += made is not None
        self.exact += made is None or dump(parse(expand_text(made))) == dump(parse(text))
        for at, each in enumerate((text, shown)):
            self.chars[at] += len(each)
            self.tokens[at] += COUNTER.count_text(each)
        self.values += COUNTER.count_text("|".join(list_values(json.loads(text))))

    def row(self, name: str) -> str:
        if not self.documents:
            return f"| {name} | 0 | | | | | | |"
        saved = [1 - after / before for before, after in (self.tokens, self.chars)]
        floor = 1 - self.values / self.tokens[0]
        ms_per_mb = 1e3 * self.seconds / (self.chars[0] / 1e6)
        return (
            f"| {name} | {self.documents} | {self.changed} | {saved[0]:.1%} | {saved[1]:.1%} | {floor:.1%} | "
            f"{self.exact} of {self.documents} | {ms_per_mb:,.0f} |"
        )


def list_values(value: Any) -> Iterator[str]:
    """All plain values of a document without any key: what is left if every name were dropped, lossy."""
    if isinstance(value, dict | list):
        for row in value.values() if isinstance(value, dict) else value:
            yield from list_values(row)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


def count_tabular(value: Any) -> int:
    """Characters of a document that lie in lists, or in objects by id, of three or more records with like keys."""
    if isinstance(value, dict | list):
        rows = list(value.values()) if isinstance(value, dict) else value
        records = [row for row in rows if isinstance(row, dict) and row]
        if len(rows) >= 3 and len(records) == len(rows):
            keys = {key for row in records for key in row}
            if sum(map(len, records)) >= 0.5 * len(records) * len(keys):
                return len(json.dumps(value))
        return sum(count_tabular(row) for row in rows)
    return 0


def is_tabular(text: str) -> bool:
    value = json.loads(text)
    return count_tabular(value) >= 0.5 * len(json.dumps(value))


def read_records(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def read_recorded() -> dict[str, list[str]]:
    outputs = [record["content"] for record in read_records("tool_outputs.jsonl.gz")]
    replies = [
        message["content"]
        for session in read_records("bfcl_long_replay.jsonl.gz")
        for message in session["messages"]
        if message["role"] == "tool" and isinstance(message["content"], str)
    ]
    return {"tool_outputs": list(filter(is_json, outputs)), "bfcl_long_replay": list(filter(is_json, replies))}


def make_orders(dice: random.Random) -> Any:
    """Rows of a database query."""
    return [
        {
            "order_id": 100_000 + at,
            "customer_id": dice.randint(1_000, 9_999),
            "order_status": dice.choice(["pending", "shipped", "delivered", "cancelled"]),
            "currency": "EUR",
            "total_amount": round(dice.uniform(5, 900), 2),
            "discount_amount": 0.0,
            "shipping_method": dice.choice(["standard", "express"]),
            "warehouse_code": dice.choice(["BER1", "CGN2"]),
            "is_gift": dice.random() < 0.1,
            "gift_message": None,
            "created_at": f"2026-0{dice.randint(1, 9)}-1{dice.randint(0, 9)}T0{dice.randint(0, 9)}:15:00Z",
        }
        for at in range(ROWS)
    ]


def make_users(dice: random.Random) -> Any:
    """A page of an API whose records carry addresses made from one name."""
    rows = []
    for at in range(ROWS):
        login = f"{dice.choice(WORDS)}-{dice.choice(WORDS)}{at}"
        base = f"https://api.example.com/users/{login}"
        rows.append(
            {
                "login": login,
                "id": dice.randint(10_000, 99_999_999),
                "avatar_url": f"https://avatars.example.com/u/{dice.randint(10_000, 99_999)}?v=4",
                "url": base,
                "followers_url": f"{base}/followers",
                "repos_url": f"{base}/repos",
                "events_url": f"{base}/events",
                "type": "User",
                "site_admin": False,
                "contributions": dice.randint(1, 900),
            }
        )
    return {"total_count": ROWS, "incomplete_results": False, "items": rows}


def make_nested(dice: random.Random) -> Any:
    """Records with objects and lists of records inside, some keys missing."""
    rows = []
    for at in range(ROWS // 3):
        row: dict[str, Any] = {
            "invoice_number": f"INV-{20_000 + at}",
            "customer": {
                "first_name": dice.choice(WORDS).title(),
                "last_name": dice.choice(WORDS).title(),
                "tier": "gold",
            },
            "billing_address": {
                "city": dice.choice(["Berlin", "Hamburg"]),
                "country": "DE",
                "postal_code": f"{dice.randint(1, 99999):05}",
            },
            "line_items": [
                {
                    "sku": f"SKU-{dice.randint(100, 999)}",
                    "quantity": dice.randint(1, 5),
                    "unit_price": round(dice.uniform(1, 99), 2),
                }
                for _ in range(dice.randint(1, 4))
            ],
            "paid": dice.random() < 0.8,
        }
        if dice.random() < 0.3:
            row["notes"] = " ".join(dice.choices(WORDS, k=6))
        rows.append(row)
    return {"data": rows, "pagination": {"page": 1, "page_size": ROWS // 3, "next": None}}


def make_events(dice: random.Random) -> Any:
    """Structured log events of a service."""
    agents = ["Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/132.0", "python-requests/2.32.3"]
    return [
        {
            "timestamp": f"2026-05-01T12:{at // 60:02}:{at % 60:02}.{dice.randint(0, 999):03}Z",
            "level": dice.choice(["INFO", "INFO", "INFO", "WARN", "ERROR"]),
            "service": "checkout-api",
            "environment": "production",
            "http_method": dice.choice(["GET", "POST"]),
            "http_path": dice.choice(["/v1/cart", "/v1/pay", "/v1/items"]),
            "http_status": dice.choice([200, 200, 201, 404, 500]),
            "duration_ms": round(dice.uniform(1, 400), 1),
            "user_agent": dice.choice(agents),
            "trace_id": f"{dice.getrandbits(64):016x}",
        }
        for at in range(ROWS)
    ]


def make_metrics(dice: random.Random) -> Any:
    """Points of a time series with labels."""
    return [
        {
            "metric_name": "container_cpu_usage",
            "labels": {"namespace": "prod", "pod": f"web-{at % 6}", "container": "app"},
            "sample_time": 1_760_000_000 + 15 * at,
            "sample_value": round(dice.uniform(0, 4), 3),
            "is_stale": False,
        }
        for at in range(ROWS)
    ]


SHAPES: dict[str, Callable[[random.Random], Any]] = {
    "rows of a query": make_orders,
    "page of an API": make_users,
    "nested invoices": make_nested,
    "log events": make_events,
    "metric points": make_metrics,
}


def print_table(rows: list[str]) -> None:
    print("| JSON | documents | made dense | tokens saved | characters saved | values alone | exact | CPU ms per MB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    print("\n".join(rows))
    print()


def main() -> None:
    print(
        "## densify: JSON in fewer tokens\n\n`python benchmarks/bench_densify.py`, o200k tokens. *Values alone* is what"
    )
    print("dropping every key (ids used as keys included) would save: lossy, to compare with.\n")
    everything = Sum()
    rows = []
    for name, make in SHAPES.items():
        for style, indent in (("one line", None), ("indented", 2)):
            group = Sum()
            for seed in range(5):
                text = json.dumps(make(random.Random(seed)), indent=indent)
                group.add(text)
                everything.add(text)
            rows.append(group.row(f"{name}, {style}"))
    print(f"Generated tabular JSON, seeded ({ROWS} rows):\n")
    print_table([*rows, everything.row("**all generated**")])
    if not DATA.is_dir():
        print("No recorded outputs at ../shared/data: only generated ones were measured.")
        return
    print("Recorded tool outputs (tabular: at least half of the text lies in lists of like records):\n")
    rows = []
    tabular, whole = Sum(), Sum()
    for name, texts in read_recorded().items():
        own_tabular, own = Sum(), Sum()
        for text in texts:
            groups = (own_tabular, own, tabular, whole) if is_tabular(text) else (own, whole)
            for group in groups:
                group.add(text)
        rows += [own_tabular.row(f"{name}, tabular"), own.row(f"{name}, all JSON")]
    print_table([*rows, tabular.row("**both, tabular**"), whole.row("**both, all JSON**")])


if __name__ == "__main__":
    main()
