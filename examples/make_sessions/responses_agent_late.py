"""The afternoon in the back office: a recall, parcels that turn up, old cases that come back, the hand-over.

Called by ``responses_agent_cases``; it only adds items to the agent it is given.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from examples.make_sessions import marrowick_outputs as outputs
from examples.make_sessions.marrowick_outputs import ARTICLES

if TYPE_CHECKING:
    from examples.make_sessions.responses_agent import BackOffice

SMALL_CASES = (
    (
        "CS-20444",
        "K-23891",
        "Odile Brandt",
        "lamp Glow flickers after 14 months",
        "LP-9061",
        "W-1.1: lamps have 2 years. First choice is a spare part; for the Glow there is none, so a replacement.",
    ),
    (
        "CS-20446",
        "K-70215",
        "Jasper Quill",
        "mat Feather loses air, seam, 2 years old",
        "MT-5512",
        "W-1.1: seams have 5 years. The workshop in Tarn needs 12 working days; a replacement is in stock and quicker.",
    ),
    (
        "CS-20449",
        "K-38804",
        "Maren Holt",
        "sleeping bag arrived wet, photo of box and label are there",
        "SB-0119",
        "P-5.4: told within 14 days, with photos. Replacement first, as the rule of the day says.",
    ),
    (
        "CS-20452",
        "K-64177",
        "Tibor Lanz",
        "bottle Brook leaks at the lid from the first day",
        "FL-3320",
        "W-1.3: a new lid would do, but lids are not kept; a replacement is cheaper than the workshop.",
    ),
    (
        "CS-20455",
        "K-81930",
        "Amara Voss",
        "knife Sedge: the lock is loose, 8 months old",
        "KN-6614",
        "W-1.2 wants a photo and the order; both are there. A knife is not repaired, so a replacement.",
    ),
)


def tell_afternoon(office: BackOffice) -> None:
    """From the recall to the hand-over."""
    recall(office)
    small_cases(office)
    come_back(office)
    refuse_refunds(office)
    hand_over(office)


def recall(office: BackOffice) -> None:
    """A recalled batch of stoves."""
    office.user(
        "Urgent: recall RC-0519, stoves Ember, batch EB-2603-C, the valve may leak. Quality (Ansgar) wants to know how many "
        "orders, by country. Text for customers: stop using the stove, no label needed, we send a valve kit VK-88. Do NOT offer "
        "refunds for the recall, legal decides that until 2026-05-22."
    )
    office.remember("Which batch is recalled?", "EB-2603-C", "later cases must be checked against it")
    office.remember("Which kit do customers of the recall get?", "VK-88", "it replaces a refund until legal decides")
    office.remember("Until when does legal decide on refunds for the recall?", "2026-05-22", "no refund before")
    listing = outputs.recall_orders(
        office.rng, 96, {"order": "MW-688911", "customer": "K-40552", "sku": "ST-7740", "shipped_at": "2026-03-12"}
    )
    office.act(("list_recall", {"recall": "RC-0519"}, listing))
    countries = [row["country"] for row in json.loads(listing)["orders"]]
    counts = ", ".join(f"{name} {countries.count(name)}" for name in ("DE", "NL", "DK", "AT"))
    office.say(
        f"RC-0519 concerns {len(countries)} orders: {counts}. None has been contacted yet. I will not offer refunds."
    )
    office.user("Thanks, the mail goes out at 13:00. Now some small ones.")


def small_cases(office: BackOffice) -> None:
    """Five short warranty and damage cases in a row."""
    rng = office.rng
    for case, number, name, problem, sku, decision in SMALL_CASES:
        order = f"MW-{rng.randrange(500000, 900000)}"
        office.user(f"{case}: {number}, {problem}.")
        office.act(
            ("find_customer", {"customer": number}, outputs.customer(rng, number, name)),
            (
                "list_orders",
                {"customer": number},
                outputs.orders(rng, number, rng.randrange(8, 15), {2: {**outputs.name_article(sku), "order": order}}),
            ),
        )
        topic = "parcels" if "P-5" in decision else "warranty"
        stock = json.dumps({"sku": sku, "free": rng.randrange(4, 60), "next_delivery": None})
        office.act(("read_policy", {"topic": topic}, ARTICLES[topic]), ("check_stock", {"sku": sku}, stock))
        office.say(f"{decision} Order {order}. Shall I send it?")
        office.user(rng.choice(("Yes.", "Yes, please.", "Go ahead.", "Do it.", "Fine, send it.")))
        parcel = f"PP559{rng.randrange(10000, 99999)}"
        office.act(("ship", {"order": order, "sku": sku}, json.dumps({"parcel": parcel, "ready": "2026-05-19T09:00Z"})))
        office.act(
            (
                "note_case",
                {"case": case, "text": f"{decision} Sent as {parcel}."},
                json.dumps({"case": case, "ok": True}),
            )
        )
        office.say(f"{case}: sent as {parcel}. Closed.")


def come_back(office: BackOffice) -> None:
    """Earlier cases return; the answers lie far back."""
    rng = office.rng
    office.user(
        "It is 14:20. The tent of the very first case turned up: the carrier scanned PP55830917 today. The replacement has not "
        "left yet. What now?"
    )
    office.act(
        (
            "track_parcel",
            {"parcel": "PP55830917"},
            outputs.add_scan(office.tracking, "2026-05-18T11:47Z", "Quist depot", "loaded for delivery"),
        ),
        ("track_parcel", {"parcel": "PP55901226"}, outputs.parcel(rng, "PP55901226", "label printed", 1)),
        summary="The lost parcel is on its way again; the replacement can still be stopped.",
    )
    office.say(
        "PP55830917 is loaded for delivery, so the replacement PP55901226 can be stopped before 15:00. Then trace TR-118-4406 "
        "should be closed and MW-731846 is complete. Shall I?"
    )
    office.user("Yes. And K-61540 calls again: she cannot find her credit. Number and balance?")
    office.act(
        (
            "note_case",
            {"case": "CS-20418", "text": "PP55830917 found; PP55901226 stopped; trace TR-118-4406 closed."},
            '{"case": "CS-20418", "ok": true}',
        ),
        (
            "find_customer",
            {"customer": "K-61540"},
            outputs.customer(rng, "K-61540", "Ysolde Marrane", tier="basic", store_credit_cents=18650),
        ),
    )
    office.say("Stopped and noted. Her credit is SC-90442, balance EUR 186.50; it is used at the till by its number.")


def refuse_refunds(office: BackOffice) -> None:
    """Two refunds that have to wait."""
    rng = office.rng
    office.user(
        "Next, CS-20461: K-40552 bought a stove Ember duo in March, order MW-688911, wants EUR 99.00 back because of the mail."
    )
    office.act(
        ("find_customer", {"customer": "K-40552"}, outputs.customer(rng, "K-40552", "Falk Derrin")),
        (
            "list_orders",
            {"customer": "K-40552"},
            outputs.orders(
                rng,
                "K-40552",
                12,
                {3: {**outputs.name_article("ST-7740"), "order": "MW-688911"}},
            ),
        ),
    )
    office.say(
        "MW-688911 is in the list of RC-0519, batch EB-2603-C. No refund until legal has decided (2026-05-22). He gets the valve kit "
        "VK-88; I can note his wish for that day."
    )
    office.user(
        "Right, do that. Then CS-20463, a refund of EUR 310.00 for MW-540027, unused tent and mat, delivered 2026-05-02. Dagny's code is DG-1140."
    )
    office.remember("What is Dagny's approval code?", "DG-1140", "the refund above EUR 250 of the afternoon")
    office.act(
        ("ship", {"order": "MW-688911", "sku": "VK-88"}, '{"parcel": "PP55903318", "ready": "2026-05-19T09:00Z"}'),
        ("read_policy", {"topic": "returns"}, ARTICLES["returns"]),
        (
            "refund",
            {"order": "MW-540027", "cents": 31000, "approval": "DG-1140"},
            '{"error": "goods not yet received", "code": "RF-E21"}',
        ),
    )
    office.remember("Why was the refund of MW-540027 refused?", "goods not yet received", "it is open at the hand-over")
    office.say(
        "The kit leaves tomorrow (PP55903318). The refund of MW-540027 was refused: RF-E21, goods not yet received. It stays open; the approval DG-1140 is noted."
    )


def hand_over(office: BackOffice) -> None:
    """The list for the late shift."""
    office.user("My shift ends. The approvals of today with their codes, please, for the audit.")
    office.reason()
    office.say(
        "Two: LN-5582 (Lennart) for RF-33071, EUR 289.00, order MW-902771; DG-1140 (Dagny) for MW-540027, EUR 310.00, not booked yet "
        "because of RF-E21."
    )
    office.user(
        "And a hand-over for Henning, late shift: what is open, until when, and which rules of this morning still hold. Keep it "
        "short."
    )
