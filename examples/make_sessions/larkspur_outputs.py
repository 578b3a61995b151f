"""Outputs of the tools in the incident session: time series, log searches, tables, deploys, a dashboard picture.

Each is drawn from the random source it is given and from nothing else.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from datetime import datetime, timedelta
from random import Random

START = datetime(2026, 2, 9, 18, 0)
ONSET_MINUTE = 42


def series(rng: Random, metric: str, normal: float, broken: float, minutes: int = 90, until: int = 10_000) -> str:
    """One metric per minute as JSON; broken between the onset and minute ``until``."""
    points = []
    for minute in range(minutes):
        level = broken if ONSET_MINUTE <= minute < until else normal
        value = round(level * (0.9 + rng.random() * 0.2), 2)
        points.append({"t": (START + timedelta(minutes=minute)).isoformat() + "Z", "v": value})
    return json.dumps({"metric": metric, "unit": "ms" if "latency" in metric else "1", "points": points})


def pods(rng: Random, service: str, version: str, count: int) -> str:
    """A table of pods."""
    rows = ["NAME                               READY   STATUS    RESTARTS   AGE    NODE          VERSION"]
    for _ in range(count):
        name = f"{service}-{rng.randrange(16**9):09x}-{''.join(rng.choice('bcdfghjklmnpqrstvwxz2456789') for _ in range(5))}"
        restarts = rng.choice((0, 0, 0, 1, 4))
        rows.append(
            f"{name:<34} 1/1     Running   {restarts:<10} {rng.randrange(2, 47)}h    node-{rng.randrange(11, 38)}       {version}"
        )
    return "\n".join(rows)


def log_lines(rng: Random, service: str, count: int, marks: dict[int, str]) -> str:
    """Log lines of one service; ``marks`` puts a given line at a given place."""
    at = START + timedelta(minutes=ONSET_MINUTE - 2)
    texts = (
        "priced basket items={a} coupons={b} took={c}ms",
        "coupon lookup miss key=cpn:{a}:{b} took={c}ms",
        "acquire connection pool=pricing waited={c}ms in_use=40/40",
        "slow query fingerprint=9c{a}e took={c}ms rows={b}",
        "request timed out upstream=coupon-store after=5000ms attempt={b}",
    )
    lines = []
    for number in range(count):
        at += timedelta(milliseconds=rng.randrange(90, 4200))
        text = marks.get(number) or rng.choice(texts).format(
            a=rng.randrange(1, 900), b=rng.randrange(0, 9), c=rng.randrange(40, 5200)
        )
        level = "ERROR" if "timed out" in text or number in marks else rng.choice(("INFO", "INFO", "WARN"))
        trace = f"{rng.randrange(16**16):016x}"
        lines.append(f"{at.isoformat(timespec='milliseconds')}Z {level:<5} {service} trace={trace} {text}")
    return "\n".join(lines)


def deploys(rng: Random) -> str:
    """Changes of the day, newest first."""
    services = ("storefront", "basket-pricing", "slot-planner", "payment-gateway", "picker-app", "ledger", "search")
    people = ("t.okoro", "m.velde", "s.ishii", "r.castell", "a.nyqvist")
    at = datetime(2026, 2, 9, 18, 58)
    rows = []
    for number in range(26):
        at -= timedelta(minutes=4 if number < 5 else rng.randrange(4, 39))
        rows.append(
            {
                "change": f"CHG-{88217 - number}",
                "service": rng.choice(services),
                "kind": rng.choice(("deploy", "deploy", "config", "scale")),
                "version": f"{rng.randrange(1, 5)}.{rng.randrange(0, 40)}.{rng.randrange(0, 9)}",
                "by": rng.choice(people),
                "at": at.isoformat() + "Z",
                "status": "done",
            }
        )
    rows[4] = {**rows[4], "change": "CHG-88213", "service": "basket-pricing", "kind": "config", "by": "m.velde"}
    rows[4]["version"] = "2.19.0"
    rows[4]["at"] = "2026-02-09T18:39:51Z"
    return json.dumps(rows, indent=1)


def double_captures(rng: Random, count: int, first: str) -> str:
    """CSV of orders that were captured twice."""
    rows = ["order_id,customer_id,capture_1,capture_2,amount_eur,seconds_apart,card_network,slot"]
    at = START + timedelta(minutes=ONSET_MINUTE)
    for number in range(count):
        at += timedelta(seconds=rng.randrange(3, 70))
        order = first if number == 0 else f"LK-{rng.randrange(3_100_000, 3_999_999)}"
        gap = rng.randrange(5, 31)
        rows.append(
            f"{order},C{rng.randrange(100000, 999999)},{at:%H:%M:%S},{at + timedelta(seconds=gap):%H:%M:%S},"
            f"{rng.randrange(1900, 18900) / 100:.2f},{gap},{rng.choice(('north', 'delta', 'meridian'))},"
            f"2026-02-{rng.randrange(10, 13)} {rng.randrange(8, 20):02d}:00"
        )
    return "\n".join(rows)


def dashboard_png(rng: Random) -> str:
    """A tiny picture of a latency curve, as base64 of a valid PNG (stored, not deflated: the same on every machine)."""
    width, height = 48, 24
    rows = [bytearray([245] * width) for _ in range(height)]
    for x in range(width):
        y = 4 + rng.randrange(3) if x > 26 else 18 + rng.randrange(3)
        rows[y][x] = 20
    raw = b"".join(b"\x00" + bytes(row) for row in rows)
    stored = (
        b"\x78\x01\x01" + struct.pack("<HH", len(raw), len(raw) ^ 0xFFFF) + raw + struct.pack(">I", zlib.adler32(raw))
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", stored) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


RUNBOOK = """RUNBOOK PAY-7: payments are captured twice
Owner: payments team, Imke Sandvoort. Last change 2026-01-15.

1. Establish the window. A double capture is two rows in ledger.captures with the same order_id and a different
   idempotency_key within 60 seconds. Count them; do not estimate.
2. Stop the source. If storefront retries are the cause, set storefront.checkout_retry to "off" (flag, takes 20 s).
   Do not drain the payment gateway: authorisations in flight would expire and customers lose their slot.
3. Never restart ledger pods while captures are in flight. The write-ahead buffer holds up to 90 seconds of captures.
   A restart needs the word of the owner, in writing, in the incident channel.
4. Reverse through the batch tool: `refunds batch create --reason PAY7-DUP --file orders.csv`. A batch holds at most
   500 orders. Two people approve a batch above EUR 10,000. The second capture is reversed, never the first.
5. Tell the customers. Template mail-cx-31 in the language of the account. Bank statements show the reversal after
   3 to 5 banking days; say so.
6. Report to the acquirer if more than 1,000 orders are concerned: form AQ-12 within 24 hours, contact
   duty@acquirer.example.org, merchant number 70-4418-22.
7. Close. The incident stays open until the daily reconciliation (04:15 UTC) shows a difference of 0.00.

Appendix A: error codes. PAY-504 the gateway got no answer in 5 s. PAY-409 same idempotency key, other amount.
PAY-423 the order is locked by a picker. Appendix B: flags. storefront.checkout_retry (on, off),
pricing.coupon_cache_ttl_s (seconds; 0 disables the cache, default 300), gateway.shadow_mode (on, off)."""

CONFIG = """# basket-pricing, production, rendered 2026-02-09T18:39:51Z by CHG-88213
pricing:
  pool: {size: 40, acquire_timeout_ms: 5000}
  coupon_store: coupon-store.svc.example.org:7411
  coupon_cache_ttl_s: 0        # was 300
  rounding: half_even
  max_items: 240
tracing: {sample: 0.05}
limits: {rps_per_pod: 180}"""
