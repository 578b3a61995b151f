"""Outputs of the back-office tools in the support session: customers, orders, parcels, policy articles.

Each is drawn from the random source it is given and from nothing else.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from random import Random
from typing import Any

PRODUCTS = (
    ("TN-2204", "Tent Heron 2", 28900),
    ("TN-3107", "Tent Heron 3", 36500),
    ("SB-0119", "Sleeping bag Moss", 15900),
    ("ST-7731", "Stove Ember mini", 6450),
    ("ST-7740", "Stove Ember duo", 9900),
    ("MT-5512", "Mat Feather R4", 11900),
    ("BP-4408", "Backpack Alder 45", 17400),
    ("LP-9061", "Lamp Glow", 3490),
    ("PL-1187", "Tent pole set", 4200),
    ("FL-3320", "Bottle Brook 1 l", 2290),
    ("TP-8805", "Tarp Wren", 7900),
    ("KN-6614", "Folding knife Sedge", 5450),
)
CITIES = ("Ostrade", "Vellmar", "Quist", "Hohenau", "Lindal", "Brevik", "Tarn", "Morwen")


def customer(rng: Random, number: str, name: str, **extra: Any) -> str:
    """One customer's record."""
    record: dict[str, Any] = {
        "customer": number,
        "name": name,
        "email": name.lower().replace(" ", ".") + "@example.com",
        "since": f"20{rng.randrange(17, 25)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}",
        "city": rng.choice(CITIES),
        "tier": rng.choice(("basic", "trail", "summit")),
        "store_credit_cents": rng.choice((0, 0, 500, 1250)),
        "flags": [],
    }
    return json.dumps({**record, **extra})


def orders(rng: Random, customer_number: str, count: int, fixed: dict[int, dict[str, Any]]) -> str:
    """Orders of a customer, newest first; ``fixed`` overrides fields of the order at a position."""
    at = datetime(2026, 5, 18, 12, 0)
    rows = []
    for position in range(count):
        at -= timedelta(days=rng.randrange(2, 60), minutes=rng.randrange(1440))
        sku, name, price = rng.choice(PRODUCTS)
        quantity = rng.choice((1, 1, 1, 2))
        row = {
            "order": f"MW-{rng.randrange(400000, 999999)}",
            "customer": customer_number,
            "placed_at": at.isoformat(timespec="minutes") + "Z",
            "sku": sku,
            "product": name,
            "quantity": quantity,
            "total_cents": price * quantity,
            "currency": "EUR",
            "payment": f"card *{rng.randrange(1000, 9999)}",
            "status": "delivered",
        }
        rows.append({**row, **fixed.get(position, {})})
    return json.dumps({"orders": rows, "count": count})


def parcel(rng: Random, number: str, last: str, days: int = 6) -> str:
    """Scans of a parcel, oldest first, ending with ``last``."""
    at = datetime(2026, 5, 8, 7, 30)
    texts = (
        "label printed",
        "handed to carrier",
        "sorted",
        "left the hub",
        "arrived at the hub",
        "sorted",
        "loaded for delivery",
    )
    scans = []
    for step in range(days * 2):
        at += timedelta(hours=rng.randrange(3, 15), minutes=rng.randrange(60))
        scans.append(
            {
                "at": at.isoformat(timespec="minutes") + "Z",
                "place": f"{rng.choice(CITIES)} {rng.choice(('hub', 'depot', 'sorting centre'))}",
                "scan": texts[step % len(texts)] if step < days * 2 - 1 else last,
                "weight_g": 2140,
            }
        )
    return json.dumps({"parcel": number, "carrier": "Polder Post", "scans": scans})


def name_article(sku: str) -> dict[str, Any]:
    """The fields of an order of one piece of an article."""
    name, price = next((name, price) for known, name, price in PRODUCTS if known == sku)
    return {"sku": sku, "product": name, "quantity": 1, "total_cents": price}


def add_scan(tracking: str, at: str, place: str, scan: str) -> str:
    """The same parcel, tracked again after one more scan."""
    record = json.loads(tracking)
    record["scans"].append({"at": at, "place": place, "scan": scan, "weight_g": 2140})
    return json.dumps(record)


def recall_orders(rng: Random, count: int, special: dict[str, str]) -> str:
    """Orders that hold a stove of the recalled batch; the one in the middle takes the fields of ``special``."""
    rows: list[dict[str, Any]] = [
        {
            "order": f"MW-{rng.randrange(400000, 999999)}",
            "customer": f"K-{rng.randrange(20000, 79999)}",
            "sku": rng.choice(("ST-7731", "ST-7740")),
            "batch": "EB-2603-C",
            "shipped_at": f"2026-{rng.randrange(3, 5):02d}-{rng.randrange(1, 29):02d}",
            "country": rng.choice(("DE", "NL", "DK", "AT")),
            "contacted": False,
        }
        for _ in range(count)
    ]
    rows[count // 2].update(special)
    return json.dumps({"recall": "RC-0519", "orders": rows})


ARTICLES = {
    "returns": """POLICY R-2 Returns (version 14, valid from 2026-04-01)
1. Unused goods: 45 days from delivery, refund to the card that paid. Never to another card, account or person.
2. Used tents, bags and mats: no return, but see warranty W-1.
3. After 45 and up to 60 days: store credit only, less 10 %. Summit members: full store credit.
4. Return label: carrier Polder Post, free within DE, NL, AT; EUR 9.90 elsewhere, taken off the refund.
5. A refund above EUR 250.00 needs the approval of the shift lead; note the approval code in the case.
6. Refunds are booked the same day and reach the card after 3 to 7 banking days.""",
    "warranty": """POLICY W-1 Warranty (version 9, valid from 2025-10-15)
1. Poles, zips and seams: 5 years. Fabric: 3 years. Stoves: 2 years. Lamps: 2 years.
2. Ask for a photo and the order number. No invoice is needed when we find the order.
3. First choice is a spare part, second a repair (workshop Tarn, 12 working days), third a replacement.
4. A replacement starts no new warranty. Note the serial number in the case.
5. Goodwill after the end of the warranty: up to EUR 60.00 of store credit, once per customer and year.""",
    "parcels": """POLICY P-5 Lost and damaged parcels (version 6, valid from 2026-02-01)
1. A parcel without a scan for 7 days counts as lost. Open a trace with the carrier; it answers within 5 working days.
2. We do not wait for the trace: send a replacement when it is in stock, else refund.
3. Address errors by the customer: the second shipment costs EUR 5.90; waive it for trail and summit members.
4. Damaged: photo of the box and of the label. Damages must be told within 14 days.
5. Compensation by the carrier is EUR 500.00 at most; put the trace number in the claim.""",
    "invoices": """POLICY I-3 Invoices and tax (version 11, valid from 2026-01-01)
1. A tax number is added before the invoice is final; afterwards cancel and issue again, same date of supply.
2. Check the number with the tool first. An invalid number is never added, whatever the customer sends.
3. Reverse charge only for businesses in another member state; the country of the number must match the address.
4. Proforma invoices for customs carry the code of origin of every line.""",
}
