"""Source files of Quayline, the invented berth-booking service that the coding agent of the sample session works on.

Only text: nothing here is imported or run. The bug (a night is counted by elapsed hours) is in ``billing/nights.py``.
"""

NIGHTS = '''"""Count the nights of a stay."""

from __future__ import annotations

import math
from datetime import datetime
from zoneinfo import ZoneInfo

SECONDS_PER_NIGHT = 24 * 60 * 60


class StayTooLong(ValueError):
    """A stay over the harbour's limit; the API answers E4107."""


def nights_between(arrival: datetime, departure: datetime, tz: ZoneInfo) -> int:
    """Return the number of nights a berth is taken.

    A started night counts as a whole one.
    """
    if departure <= arrival:
        raise ValueError("departure must be after arrival")
    local_arrival = arrival.astimezone(tz)
    local_departure = departure.astimezone(tz)
    elapsed = local_departure.timestamp() - local_arrival.timestamp()
    return math.ceil(elapsed / SECONDS_PER_NIGHT)


def check_limit(nights: int, limit: int) -> None:
    if nights > limit:
        raise StayTooLong(f"stay of {nights} nights is over the limit of {limit}")


def split_by_season(arrival: datetime, departure: datetime, tz: ZoneInfo, seasons: list[tuple[int, int]]) -> list[int]:
    """Nights per season; a season is a pair of month numbers, both included."""
    total = nights_between(arrival, departure, tz)
    counts = [0] * len(seasons)
    day = arrival.astimezone(tz).date()
    for offset in range(total):
        month = (day.toordinal() + offset)
        current = day.fromordinal(month).month
        for index, (first, last) in enumerate(seasons):
            if first <= current <= last:
                counts[index] += 1
    return counts
'''

NIGHTS_FIXED = '''"""Count the nights of a stay."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo


class StayTooLong(ValueError):
    """A stay over the harbour's limit; the API answers E4107."""


def nights_between(arrival: datetime, departure: datetime, tz: ZoneInfo) -> int:
    """Return the number of calendar nights a berth is taken, in the harbour's own time zone.

    Nights are counted on the calendar, never by elapsed hours: the night of a clock change has 23 or 25 hours and
    is still one night. A stay within one day counts as one night.
    """
    if departure <= arrival:
        raise ValueError("departure must be after arrival")
    first = arrival.astimezone(tz).date()
    last = departure.astimezone(tz).date()
    return max(1, (last - first).days)


def nights_of(arrival: datetime, nights: int, tz: ZoneInfo) -> list[date]:
    """The local dates on whose evening a night starts."""
    first = arrival.astimezone(tz).date()
    return [first + timedelta(days=offset) for offset in range(nights)]


def check_limit(nights: int, limit: int) -> None:
    if nights > limit:
        raise StayTooLong(f"stay of {nights} nights is over the limit of {limit}")


def split_by_season(arrival: datetime, departure: datetime, tz: ZoneInfo, seasons: list[tuple[int, int]]) -> list[int]:
    """Nights per season; a season is a pair of month numbers, both included."""
    total = nights_between(arrival, departure, tz)
    counts = [0] * len(seasons)
    for night in nights_of(arrival, total, tz):
        for index, (first, last) in enumerate(seasons):
            if first <= night.month <= last:
                counts[index] += 1
    return counts
'''

INVOICE = '''"""Turn a stay into an invoice. Amounts are integers in the minor unit of the harbour's currency."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from zoneinfo import ZoneInfo

from quayline.billing.nights import check_limit, nights_between, split_by_season
from quayline.billing.tariffs import Tariff, pick_tariff
from quayline.storage.models import Booking, Harbour

MAX_NIGHTS_DEFAULT = 180


@dataclass(frozen=True)
class Line:
    label: str
    quantity: int
    unit_amount: int

    @property
    def amount(self) -> int:
        return self.quantity * self.unit_amount


@dataclass
class Invoice:
    number: str
    booking_id: str
    currency: str
    issued_at: datetime
    lines: list[Line] = field(default_factory=list)

    @property
    def net(self) -> int:
        return sum(line.amount for line in self.lines)

    def tax(self, rate: Decimal) -> int:
        exact = Decimal(self.net) * rate
        return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


def build_invoice(booking: Booking, harbour: Harbour, now: datetime, number: str) -> Invoice:
    """Build the invoice of a finished stay; the caller stores it."""
    tz = ZoneInfo(harbour.timezone)
    nights = nights_between(booking.arrival, booking.departure, tz)
    check_limit(nights, harbour.max_nights or MAX_NIGHTS_DEFAULT)
    invoice = Invoice(number=number, booking_id=booking.id, currency=harbour.currency, issued_at=now)
    per_season = split_by_season(booking.arrival, booking.departure, tz, harbour.seasons)
    for index, count in enumerate(per_season):
        if not count:
            continue
        tariff: Tariff = pick_tariff(harbour.tariffs, booking.length_cm, index)
        invoice.lines.append(Line(f"Berth {booking.berth}, season {index + 1}", count, tariff.per_night))
    if booking.shore_power:
        invoice.lines.append(Line("Shore power", nights, harbour.shore_power_per_night))
    if booking.crew > harbour.crew_included:
        extra = booking.crew - harbour.crew_included
        invoice.lines.append(Line("Additional crew", nights * extra, harbour.crew_per_night))
    return invoice


def credit_note(original: Invoice, corrected: Invoice, now: datetime, number: str) -> Invoice:
    """A credit note for the difference of two invoices of one booking; empty when they agree."""
    note = Invoice(number=number, booking_id=original.booking_id, currency=original.currency, issued_at=now)
    difference = original.net - corrected.net
    if difference > 0:
        note.lines.append(Line(f"Correction of {original.number}", 1, -difference))
    return note
'''

TARIFFS = '''"""Tariffs by length of vessel and season."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tariff:
    length_cm_max: int
    season: int
    per_night: int


class NoTariff(LookupError):
    """No tariff fits the vessel; the API answers E4112."""


def pick_tariff(tariffs: list[Tariff], length_cm: int, season: int) -> Tariff:
    """The smallest tariff that fits the vessel in that season."""
    fitting = [t for t in tariffs if t.season == season and t.length_cm_max >= length_cm]
    if not fitting:
        raise NoTariff(f"no tariff for {length_cm} cm in season {season}")
    return min(fitting, key=lambda t: t.length_cm_max)
'''

SENDER = '''"""Send webhooks to the systems of a tenant."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from typing import Any, Protocol

from quayline.webhooks.signing import sign_payload

log = logging.getLogger("quayline.webhooks")

TIMEOUT_S = 8.0
USER_AGENT = "quayline-webhooks/3.4"


class Transport(Protocol):
    def post(self, url: str, body: bytes, headers: dict[str, str], timeout: float) -> int: ...


@dataclass(frozen=True)
class Endpoint:
    id: str
    tenant_id: str
    url: str
    secret: str
    events: frozenset[str]
    active: bool = True


@dataclass(frozen=True)
class Event:
    id: str
    kind: str
    tenant_id: str
    payload: dict[str, Any]


class Sender:
    """Delivers an event to every endpoint of its tenant that wants it."""

    def __init__(self, transport: Transport, endpoints: list[Endpoint]) -> None:
        self._transport = transport
        self._endpoints = endpoints

    def deliver(self, event: Event) -> dict[str, bool]:
        results: dict[str, bool] = {}
        for endpoint in self._endpoints:
            if endpoint.tenant_id != event.tenant_id or event.kind not in endpoint.events:
                continue
            if not endpoint.active:
                continue
            results[endpoint.id] = self._post(endpoint, event)
        return results

    def _post(self, endpoint: Endpoint, event: Event) -> bool:
        body = json.dumps({"id": event.id, "type": event.kind, "data": event.payload}).encode()
        timestamp = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "Quayline-Event": event.kind,
            "Quayline-Signature": sign_payload(endpoint.secret, timestamp, body),
        }
        try:
            status = self._transport.post(endpoint.url, body, headers, TIMEOUT_S)
        except OSError as error:
            # TODO: a lost delivery is lost for good.
            log.warning("delivery of %s to %s failed: %s", event.id, endpoint.id, error)
            return False
        if status >= 300:
            log.warning("delivery of %s to %s answered %d", event.id, endpoint.id, status)
            return False
        return True
'''

RETRY = '''"""When to try a failed delivery again, and when to give up."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

ATTEMPTS_MAX = 7
FIRST_DELAY_S = 30
DELAY_MAX_S = 6 * 60 * 60
JITTER = 0.2
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Decision:
    """What to do with a delivery after an attempt."""

    again_at: datetime | None
    reason: str

    @property
    def is_dead(self) -> bool:
        return self.again_at is None


def decide(attempt: int, status: int | None, now: datetime, rng: random.Random) -> Decision:
    """Decide after the ``attempt``-th try (from 1); ``status`` is None when no answer came."""
    if status is not None and status not in RETRYABLE:
        return Decision(None, f"answer {status} is final")
    if attempt >= ATTEMPTS_MAX:
        return Decision(None, f"gave up after {attempt} attempts")
    delay = min(FIRST_DELAY_S * 2 ** (attempt - 1), DELAY_MAX_S)
    spread = delay * JITTER
    seconds = delay + rng.uniform(-spread, spread)
    cause = "no answer" if status is None else f"answer {status}"
    return Decision(now + timedelta(seconds=seconds), cause)
'''

SIGNING = '''"""Sign webhook payloads: HMAC-SHA256 over timestamp and body."""

from __future__ import annotations

import hashlib
import hmac

SCHEME = "v1"
TOLERANCE_S = 300


def sign_payload(secret: str, timestamp: int, body: bytes) -> str:
    """The value of the Quayline-Signature header."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},{SCHEME}={digest}"


def verify_signature(secret: str, header: str, body: bytes, now: int) -> bool:
    """True when the header was made by us within the tolerance."""
    fields = dict(item.split("=", 1) for item in header.split(",") if "=" in item)
    try:
        timestamp = int(fields["t"])
    except (KeyError, ValueError):
        return False
    if abs(now - timestamp) > TOLERANCE_S:
        return False
    expected = sign_payload(secret, timestamp, body)
    return hmac.compare_digest(expected, header)
'''

DELIVERIES = '''"""Deliveries of webhooks in the database."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

from quayline.storage.db import Connection

PAGE_MAX = 200


def insert_delivery(db: Connection, row: dict[str, Any]) -> None:
    db.execute(
        "INSERT INTO webhook_deliveries (id, tenant_id, endpoint_id, event_id, state, attempt, next_attempt_at)"
        " VALUES (:id, :tenant_id, :endpoint_id, :event_id, 'pending', 0, :now)",
        row,
    )


def claim_due(db: Connection, now: datetime, limit: int) -> list[dict[str, Any]]:
    """Lock deliveries that are due; another worker skips them."""
    return db.fetch_all(
        "SELECT * FROM webhook_deliveries WHERE state = 'pending' AND next_attempt_at <= :now"
        " ORDER BY next_attempt_at LIMIT :limit FOR UPDATE SKIP LOCKED",
        {"now": now, "limit": limit},
    )


def encode_cursor(created_at: datetime, delivery_id: str) -> str:
    raw = json.dumps([created_at.isoformat(), delivery_id]).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[str, str]:
    """Raises ValueError for a cursor that we did not make; the API answers E4220."""
    padded = cursor + "=" * (-len(cursor) % 4)
    created_at, delivery_id = json.loads(base64.urlsafe_b64decode(padded))
    return str(created_at), str(delivery_id)


def list_page(db: Connection, tenant_id: str, state: str | None, cursor: str | None, limit: int) -> list[dict[str, Any]]:
    """One page, newest first. Keyset pagination: offsets drift while deliveries arrive."""
    where = ["tenant_id = :tenant_id"]
    values: dict[str, Any] = {"tenant_id": tenant_id, "limit": min(limit, PAGE_MAX)}
    if state is not None:
        where.append("state = :state")
        values["state"] = state
    if cursor is not None:
        values["at"], values["id"] = decode_cursor(cursor)
        where.append("(created_at, id) < (:at, :id)")
    return db.fetch_all(
        f"SELECT * FROM webhook_deliveries WHERE {' AND '.join(where)} ORDER BY created_at DESC, id DESC LIMIT :limit",
        values,
    )
'''

ROUTES_WEBHOOKS = '''"""HTTP routes for webhook endpoints."""

from __future__ import annotations

from quayline.api.auth import Tenant, require_scope
from quayline.api.errors import ApiError
from quayline.api.router import Request, Response, Router
from quayline.storage import endpoints as store

router = Router(prefix="/v2/webhooks")

EVENTS = frozenset({
    "booking.created", "booking.changed", "booking.cancelled",
    "stay.started", "stay.finished",
    "invoice.issued", "invoice.paid", "invoice.credited",
})


@router.get("/endpoints")
@require_scope("webhooks:read")
def list_endpoints(request: Request, tenant: Tenant) -> Response:
    rows = store.list_for_tenant(request.db, tenant.id)
    return Response.json({"data": [store.public_view(row) for row in rows]})


@router.post("/endpoints")
@require_scope("webhooks:write")
def create_endpoint(request: Request, tenant: Tenant) -> Response:
    body = request.json()
    unknown = set(body.get("events", [])) - EVENTS
    if unknown:
        raise ApiError("E4203", f"unknown events: {', '.join(sorted(unknown))}")
    if not str(body.get("url", "")).startswith("https://"):
        raise ApiError("E4201", "url must use https")
    row = store.insert(request.db, tenant.id, body["url"], sorted(body["events"]))
    return Response.json(store.public_view(row), status=201)


@router.delete("/endpoints/{endpoint_id}")
@require_scope("webhooks:write")
def delete_endpoint(request: Request, tenant: Tenant, endpoint_id: str) -> Response:
    if not store.deactivate(request.db, tenant.id, endpoint_id):
        raise ApiError("E4204", "no such endpoint")
    return Response.empty()
'''

ROUTES_DELIVERIES = '''"""HTTP routes for deliveries: list them, and send a dead one again."""

from __future__ import annotations

from quayline.api.auth import Tenant, require_scope
from quayline.api.errors import ApiError
from quayline.api.router import Request, Response, Router
from quayline.storage import deliveries as store

router = Router(prefix="/v2/deliveries")

STATES = frozenset({"pending", "delivered", "dead"})
LIMIT_DEFAULT = 50


@router.get("")
@require_scope("webhooks:read")
def list_deliveries(request: Request, tenant: Tenant) -> Response:
    state = request.query.get("state")
    if state is not None and state not in STATES:
        raise ApiError("E4219", f"unknown state {state!r}")
    limit = int(request.query.get("limit", LIMIT_DEFAULT))
    try:
        rows = store.list_page(request.db, tenant.id, state, request.query.get("cursor"), limit + 1)
    except ValueError as error:
        raise ApiError("E4220", "cursor is not valid") from error
    page, more = rows[:limit], len(rows) > limit
    cursor = store.encode_cursor(page[-1]["created_at"], page[-1]["id"]) if more else None
    return Response.json({"data": page, "next_cursor": cursor})


@router.post("/{delivery_id}/resend")
@require_scope("webhooks:write")
def resend_delivery(request: Request, tenant: Tenant, delivery_id: str) -> Response:
    if not store.revive(request.db, tenant.id, delivery_id):
        raise ApiError("E4221", "only a dead delivery can be sent again")
    return Response.empty(status=202)
'''

SETTINGS = """# Development settings. Production reads the same keys from the secret store.
[server]
host = "127.0.0.1"
port = 8467
workers = 2

[database]
url = "postgresql://quayline@127.0.0.1:5493/quayline_dev"
pool_size = 12
statement_timeout_ms = 4500

[webhooks]
timeout_s = 8.0
concurrency = 16
# The egress proxy of staging and production; deliveries must leave through it.
proxy = "http://egress.internal.example.org:3199"

[billing]
issue_hour_local = 6
currency_default = "EUR"
rounding = "half_even"

[limits]
requests_per_minute = 240
max_nights = 180
"""

DOCS_WEBHOOKS = """# Webhooks

Quayline tells your systems what happens in your harbour. Register an endpoint, choose events, verify signatures.

## Register

    POST /v2/webhooks/endpoints
    {"url": "https://hooks.example.com/quayline", "events": ["booking.created", "invoice.issued"]}

The answer holds the secret once. Keep it; we cannot show it again.

## Verify

Each request has the header `Quayline-Signature: t=<unix seconds>,v1=<hex digest>`. The digest is HMAC-SHA256 over
`<t>.<body>` with your secret. Refuse requests older than 300 seconds.

## Delivery

Answer with any 2xx status within 8 seconds. Deliveries are sent once.

## Events

| event | sent when |
|---|---|
| booking.created | a booking is confirmed |
| booking.changed | dates, berth or vessel changed |
| booking.cancelled | a booking is cancelled by either side |
| stay.started | the harbour master checks the vessel in |
| stay.finished | the vessel has left |
| invoice.issued | an invoice is final |
| invoice.paid | a payment covers the invoice |
| invoice.credited | a credit note was issued |
"""

TEST_NIGHTS = """from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest

from quayline.billing.nights import StayTooLong, check_limit, nights_between, split_by_season

LISBON = ZoneInfo("Europe/Lisbon")
UTC = timezone.utc


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_one_night() -> None:
    assert nights_between(at("2025-06-10T14:00"), at("2025-06-11T10:00"), LISBON) == 1


def test_three_nights() -> None:
    assert nights_between(at("2025-06-10T14:00"), at("2025-06-13T10:00"), LISBON) == 3


def test_departure_before_arrival_is_refused() -> None:
    with pytest.raises(ValueError):
        nights_between(at("2025-06-10T14:00"), at("2025-06-10T13:00"), LISBON)


def test_limit() -> None:
    with pytest.raises(StayTooLong):
        check_limit(181, 180)


def test_split_over_two_seasons() -> None:
    seasons = [(1, 6), (7, 12)]
    assert split_by_season(at("2025-06-29T12:00"), at("2025-07-02T09:00"), LISBON, seasons) == [2, 1]
"""

PYPROJECT = """[project]
name = "quayline"
version = "3.4.2"
requires-python = ">=3.12"
dependencies = ["psycopg[binary]==3.2.9", "starling-http==1.18.0", "tzdata==2025.2"]

[project.optional-dependencies]
dev = ["pytest==8.4.2", "ruff==0.13.3", "mypy==1.18.2"]

[tool.ruff]
line-length = 120

[tool.pytest.ini_options]
testpaths = ["tests"]
addopts = "-q --strict-markers"
"""

CHANGELOG = """# Changelog

## 3.4.2 - 2025-10-09
- Invoices show the berth of the first night when a vessel moved.
- `GET /v2/invoices` accepts `issued_after`.

## 3.4.1 - 2025-09-18
- Webhook secrets are shown once, at creation.

## 3.4.0 - 2025-08-28
- Shore power per night.
- Crew above the included number is charged.
"""

WORKER_BEFORE = '''"""Send events from the outbox to the endpoints of their tenant, once each."""

from __future__ import annotations

import logging

from quayline.storage import outbox
from quayline.storage.db import Connection
from quayline.webhooks.sender import Sender

log = logging.getLogger("quayline.webhooks")


class Worker:
    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def run_once(self, db: Connection) -> int:
        events = outbox.take(db, limit=50)
        for event in events:
            results = self._sender.deliver(event)
            for endpoint_id, sent in results.items():
                if not sent:
                    log.error("event=%s lost endpoint=%s code=E5031", event.id, endpoint_id)
        return len(events)
'''

FILES = {
    "CHANGELOG.md": CHANGELOG,
    "config/settings.toml": SETTINGS,
    "docs/webhooks.md": DOCS_WEBHOOKS,
    "pyproject.toml": PYPROJECT,
    "quayline/api/routes_webhooks.py": ROUTES_WEBHOOKS,
    "quayline/billing/invoice.py": INVOICE,
    "quayline/billing/nights.py": NIGHTS,
    "quayline/billing/tariffs.py": TARIFFS,
    "quayline/storage/deliveries.py": DELIVERIES,
    "quayline/webhooks/sender.py": SENDER,
    "quayline/webhooks/signing.py": SIGNING,
    "quayline/webhooks/worker.py": WORKER_BEFORE,
    "tests/billing/test_nights.py": TEST_NIGHTS,
}
