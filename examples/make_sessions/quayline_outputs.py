"""Outputs of commands and of the API in the coding session: listings, test logs, a server log, records of invoices.

Each is drawn from the random source it is given and from nothing else.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from random import Random
from typing import Any

AREAS = {
    "quayline/api": "app auth errors pagination rate_limit router routes_berths routes_bookings routes_invoices "
    "routes_tenants routes_vessels routes_webhooks schemas",
    "quayline/billing": "credit invoice nights numbering payments reminders tariffs tax",
    "quayline/berths": "allocation conflicts layout moorings tides",
    "quayline/storage": "bookings db deliveries endpoints harbours invoices models outbox tenants vessels",
    "quayline/webhooks": "events sender signing worker",
    "quayline/cli": "audit backfill main seed",
    "tests/api": "test_auth test_errors test_pagination test_rate_limit test_routes_bookings test_routes_invoices "
    "test_routes_webhooks",
    "tests/billing": "conftest test_credit test_invoice test_nights test_numbering test_reminders test_tariffs test_tax",
    "tests/berths": "test_allocation test_conflicts test_layout test_tides",
    "tests/storage": "test_bookings test_deliveries test_endpoints test_outbox",
    "tests/webhooks": "test_sender test_signing test_worker",
}
MIGRATIONS = [
    "tenants",
    "harbours",
    "vessels",
    "berths",
    "bookings",
    "tariffs",
    "seasons",
    "invoices",
    "invoice_lines",
    "payments",
    "outbox",
    "endpoints",
    "audit",
    "crew",
    "shore_power",
    "credit_notes",
    "deliveries",
    "delivery_index",
    "numbering",
    "retention",
]
CASES = [
    "accepts_the_smallest_vessel",
    "refuses_a_closed_berth",
    "keeps_the_order_of_arrival",
    "rounds_half_to_even",
    "ignores_cancelled_bookings",
    "answers_404_for_another_tenant",
    "sorts_newest_first",
    "is_idempotent",
    "survives_an_empty_harbour",
    "honours_the_limit",
    "uses_the_harbour_time_zone",
    "writes_one_row",
    "rejects_a_bad_cursor",
    "needs_the_write_scope",
    "handles_unicode_names",
    "prefers_the_longer_berth",
]


def list_files(rng: Random) -> str:
    """What ``ls -lR`` style listings look like: size, date, path."""
    rows = []
    for area, names in AREAS.items():
        for name in names.split():
            day = datetime(2025, 3, 3) + timedelta(days=rng.randrange(240), minutes=rng.randrange(1440))
            rows.append(f"-rw-r--r-- 1 dev dev {rng.randrange(612, 14800):>6} {day:%b %d %H:%M} {area}/{name}.py")
    for number, name in enumerate(MIGRATIONS, 22):
        day = datetime(2024, 5, 6) + timedelta(days=number * 11, minutes=rng.randrange(1440))
        size = rng.randrange(240, 2900)
        rows.append(f"-rw-r--r-- 1 dev dev {size:>6} {day:%b %d %H:%M} migrations/{number:04d}_{name}.sql")
    return "\n".join(rows)


def run_tests(rng: Random, failures: dict[str, str], new_cases: tuple[str, ...] = ()) -> str:
    """A verbose pytest log over the whole suite; ``failures`` maps a test id to its traceback."""
    tests = []
    for area, names in AREAS.items():
        if not area.startswith("tests/"):
            continue
        for name in names.split():
            if name != "conftest":
                tests += [f"{area}/{name}.py::test_{case}" for case in sorted(rng.sample(CASES, rng.randrange(3, 7)))]
    tests += [test for test in (*new_cases, *failures) if test not in tests]
    tests.sort()
    head = [
        "============================= test session starts ==============================",
        "platform linux -- Python 3.12.11, pytest-8.4.2, pluggy-1.6.0",
        "rootdir: /home/dev/quayline",
        "configfile: pyproject.toml",
        f"collected {len(tests)} items",
        "",
    ]
    lines = []
    for number, test in enumerate(tests, 1):
        verdict = "FAILED" if test in failures else "PASSED"
        lines.append(f"{test} {verdict:<8} [{number * 100 // len(tests):>3}%]")
    tail = []
    if failures:
        tail.append("\n=================================== FAILURES ===================================")
        for test, trace in failures.items():
            tail.append(f"{('_ ' + test.split('::')[1] + ' _'):_^80}\n\n{trace}")
        tail.append("=========================== short test summary info ============================")
        tail += [f"FAILED {test}" for test in failures]
    seconds = rng.randrange(900, 3900) / 100
    passed = len(tests) - len(failures)
    verdict = f"{len(failures)} failed, {passed} passed" if failures else f"{passed} passed"
    return "\n".join([*head, *lines, *tail, f"========== {verdict} in {seconds:.2f}s =========="])


def list_invoices(rng: Random, tenant: str, doubled: int, count: int = 24) -> tuple[str, list[str]]:
    """An API page of invoices around the clock change; ``doubled`` of them charge a night too many."""
    rows: list[dict[str, Any]] = []
    wrong = []
    for number in range(count):
        is_doubled = number in range(3, 3 + doubled)
        nights = rng.randrange(1, 5)
        per_night = rng.choice((2850, 3400, 4125, 5200, 6790))
        arrival = datetime(2025, 10, 25 if is_doubled else rng.randrange(2, 23), rng.randrange(12, 18))
        charged = nights + 1 if is_doubled else nights
        name = f"INV-2025-{rng.randrange(10000, 99999)}"
        if is_doubled:
            wrong.append(name)
        rows.append(
            {
                "number": name,
                "booking_id": f"bkg_{''.join(rng.choice('abcdefghjkmnpqrstvwxyz0123456789') for _ in range(10))}",
                "tenant_id": tenant,
                "berth": f"{rng.choice('ABCDEF')}{rng.randrange(1, 48)}",
                "arrival": arrival.isoformat() + "Z",
                "departure": (arrival + timedelta(days=nights, hours=-4)).isoformat() + "Z",
                "nights_charged": charged,
                "per_night": per_night,
                "net": charged * per_night,
                "currency": "EUR",
                "status": rng.choice(("issued", "paid", "paid", "paid")),
            }
        )
    return json.dumps({"data": rows, "next_cursor": None}, indent=2), wrong


def list_deliveries(rng: Random, tenant: str, dead: tuple[str, ...], count: int = 30) -> str:
    """An API page of deliveries, newest first, with the given dead ones among them."""
    at = datetime(2025, 11, 12, 16, 40)
    rows = []
    for number in range(count):
        at -= timedelta(seconds=rng.randrange(20, 400))
        is_dead = 5 <= number < 5 + len(dead)
        identity = dead[number - 5] if is_dead else "dlv_" + "".join(rng.choice("0123456789abcdef") for _ in range(12))
        rows.append(
            {
                "id": identity,
                "tenant_id": tenant,
                "endpoint_id": "whe_5c81d2",
                "event_id": "evt_" + "".join(rng.choice("0123456789abcdef") for _ in range(12)),
                "state": "dead" if is_dead else "delivered",
                "attempt": 7 if is_dead else rng.choice((1, 1, 1, 2)),
                "last_status": 503 if is_dead else 204,
                "created_at": at.isoformat() + "Z",
            }
        )
    return json.dumps({"data": rows, "next_cursor": None})


TRACE = """Traceback (most recent call last):
  File "/srv/quayline/quayline/webhooks/worker.py", line 22, in run_once
    results = self._sender.deliver(event)
  File "/srv/quayline/quayline/webhooks/sender.py", line 54, in deliver
    results[endpoint.id] = self._post(endpoint, event)
  File "/srv/quayline/quayline/webhooks/sender.py", line 67, in _post
    status = self._transport.post(endpoint.url, body, headers, TIMEOUT_S)
ConnectionResetError: [Errno 104] Connection reset by peer"""


def server_log(rng: Random, bytes_min: int) -> str:
    """A log of staging, mostly requests, with the few lines that matter deep inside."""
    at = datetime(2025, 11, 11, 2, 0)
    routes = ("/v2/bookings", "/v2/invoices", "/v2/berths", "/v2/vessels", "/v2/webhooks/endpoints", "/healthz")
    lines: list[str] = []
    size = 0
    marks = {220: "pool", 330: "trace", 331: "lost", 470: "trace", 540: "deploy"}
    while size < bytes_min:
        at += timedelta(milliseconds=rng.randrange(300, 19000))
        stamp = at.isoformat(timespec="milliseconds")
        mark = marks.get(len(lines))
        if mark == "trace":
            line = f"{stamp}Z ERROR quayline.webhooks worker=3 unhandled in run_once\n{TRACE}"
        elif mark == "lost":
            line = f"{stamp}Z ERROR quayline.webhooks event=evt_9b04e7c1d25a lost endpoint=whe_5c81d2 code=E5031"
        elif mark == "pool":
            line = f"{stamp}Z WARN  quayline.storage pool exhausted waiters=31 size=12 waited_ms=4512"
        elif mark == "deploy":
            line = f"{stamp}Z INFO  quayline.app release 3.4.2 build 20251109.3 started pid=21877"
        else:
            status = rng.choice((200, 200, 200, 200, 201, 304, 404, 429))
            line = (
                f"{stamp}Z INFO  quayline.api tenant=tnt_{rng.choice(('7f3kq9', 'b2m8xd', 'q0w4hz', 'k91tva'))} "
                f"req={rng.randrange(16**8):08x} {rng.choice(('GET', 'GET', 'GET', 'POST'))} {rng.choice(routes)} "
                f"{status} {rng.randrange(2, 480)}ms"
            )
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)
