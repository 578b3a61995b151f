"""The cases of one day in the back office: parcels, warranty, returns, tax numbers, a recall, and the hand-over.

Called by ``responses_agent``; it only adds items to the agent it is given. Late cases come back to early ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from examples.make_sessions import marrowick_outputs as outputs
from examples.make_sessions.marrowick_outputs import ARTICLES
from examples.make_sessions.responses_agent_late import tell_afternoon

if TYPE_CHECKING:
    from examples.make_sessions.responses_agent import BackOffice


def policy(topic: str) -> tuple[str, dict[str, Any], str]:
    """The call that reads a policy, with its text."""
    return ("read_policy", {"topic": topic}, ARTICLES[topic])


def note(case: str, text: str) -> tuple[str, dict[str, Any], str]:
    """The call that writes a note into a case."""
    return ("note_case", {"case": case, "text": text}, json.dumps({"case": case, "ok": True}))


def tell(office: BackOffice) -> None:
    """The whole day."""
    lost_parcel(office)
    broken_pole(office)
    late_return(office)
    tax_number(office)
    double_order(office)
    wrong_address(office)
    tell_afternoon(office)


def lost_parcel(office: BackOffice) -> None:
    """A parcel without scans, and the rules of the day."""
    rng = office.rng
    office.user(
        "Good morning, Petra here, early shift. Rules for today: from now on offer a replacement before a refund, stock is "
        "full. Never tell customers the name of the carrier's hub. Shift lead is Lennart until 14:00, then Dagny; approvals "
        "above EUR 250 come from whoever is lead.\n\nFirst case CS-20418: customer K-48213, says parcel PP55830917 never came."
    )
    office.tracking = outputs.parcel(rng, "PP55830917", "arrived at the hub", 3)
    office.remember("Who is shift lead after 14:00?", "then Dagny", "approvals in the afternoon come from her")
    office.remember(
        "What is offered first, replacement or refund?", "offer a replacement before a refund", "rule of the day"
    )
    office.remember(
        "What must customers never be told?", "Never tell customers the name of the carrier's hub", "a standing rule"
    )
    office.act(
        ("find_customer", {"customer": "K-48213"}, outputs.customer(rng, "K-48213", "Runa Eskild", tier="trail")),
        ("track_parcel", {"parcel": "PP55830917"}, office.tracking),
        (
            "list_orders",
            {"customer": "K-48213"},
            outputs.orders(
                rng,
                "K-48213",
                14,
                {
                    0: {
                        "order": "MW-731846",
                        "sku": "TN-3107",
                        "product": "Tent Heron 3",
                        "quantity": 1,
                        "total_cents": 36500,
                        "status": "shipped",
                        "placed_at": "2026-05-06T18:21Z",
                    }
                },
            ),
        ),
        summary="I need the customer, the parcel and the order before I can apply the policy on lost parcels.",
    )
    office.act(
        policy("parcels"), ("check_stock", {"sku": "TN-3107"}, '{"sku": "TN-3107", "free": 23, "next_delivery": null}')
    )
    office.say(
        "The parcel's last scan is more than 7 days old, so under P-5.1 it counts as lost. Order MW-731846, one Tent Heron 3, "
        "EUR 365.00. 23 are in stock. I suggest a replacement now and a trace with the carrier."
    )
    office.remember("Which order is the lost tent?", "MW-731846", "the parcel turns up again in the afternoon")
    office.user("Yes, replacement and trace.")
    office.act(
        ("ship", {"order": "MW-731846", "sku": "TN-3107"}, '{"parcel": "PP55901226", "ready": "2026-05-18T15:00Z"}'),
        ("open_trace", {"parcel": "PP55830917"}, '{"trace": "TR-118-4406", "answer_by": "2026-05-26"}'),
    )
    office.remember(
        "What is the number of the trace for the lost tent?", "TR-118-4406", "the claim must name it (P-5.5)"
    )
    office.act(note("CS-20418", "Replacement PP55901226, trace TR-118-4406, answer by 2026-05-26."))
    office.say("CS-20418: replacement PP55901226 leaves today, trace TR-118-4406 is open until 2026-05-26. Closed.")


def broken_pole(office: BackOffice) -> None:
    """Warranty: a spare part."""
    rng = office.rng
    office.user(
        "CS-20421: K-30977, pole of a Heron 2 broke in the wind. Photo is in the case, serial H2-0093417. Bought years ago, no "
        "invoice."
    )
    office.remember(
        "What is the serial number of the tent with the broken pole?", "H2-0093417", "W-1.4 wants it in the case"
    )
    office.act(
        ("find_customer", {"customer": "K-30977"}, outputs.customer(rng, "K-30977", "Bastian Orlo")),
        (
            "list_orders",
            {"customer": "K-30977"},
            outputs.orders(
                rng,
                "K-30977",
                19,
                {
                    17: {
                        **outputs.name_article("TN-2204"),
                        "order": "MW-402215",
                        "placed_at": "2022-07-14T09:02Z",
                    }
                },
            ),
        ),
        policy("warranty"),
    )
    office.act(("check_stock", {"sku": "PL-1187"}, '{"sku": "PL-1187", "free": 0, "next_delivery": "2026-06-03"}'))
    office.say(
        "Poles have 5 years (W-1.1); the order MW-402215 is from 2022-07-14, so it is covered until 2027-07-14. The spare part "
        "PL-1187 is out of stock until 2026-06-03. Options: wait, or the workshop in Tarn (12 working days)."
    )
    office.user("He travels on 2026-06-12. Reserve the pole set from the delivery and tell me on which day it leaves.")
    office.remember(
        "When does the customer with the broken pole travel?", "2026-06-12", "the spare part must arrive before"
    )
    office.act(
        (
            "ship",
            {"order": "MW-402215", "sku": "PL-1187"},
            '{"reserved": true, "reservation": "RS-60317", "leaves": "2026-06-04"}',
        )
    )
    office.act(note("CS-20421", "PL-1187 reserved (RS-60317), leaves 2026-06-04. Serial H2-0093417. W-1.1."))
    office.say("CS-20421: reserved as RS-60317, leaves on 2026-06-04, eight days before he travels. Closed.")


def late_return(office: BackOffice) -> None:
    """A return after the period, and an exception that the clerk names."""
    rng = office.rng
    office.user("CS-20425: K-61540 wants to return a backpack Alder 45, unused, delivered 2026-03-27.")
    office.act(
        (
            "find_customer",
            {"customer": "K-61540"},
            outputs.customer(rng, "K-61540", "Ysolde Marrane", tier="basic", store_credit_cents=1250),
        ),
        (
            "list_orders",
            {"customer": "K-61540"},
            outputs.orders(
                rng,
                "K-61540",
                11,
                {
                    1: {
                        "order": "MW-688034",
                        "sku": "BP-4408",
                        "product": "Backpack Alder 45",
                        "quantity": 1,
                        "total_cents": 17400,
                        "payment": "card *5527",
                    }
                },
            ),
        ),
        policy("returns"),
    )
    office.say(
        "Today is 2026-05-18, that is 52 days after delivery. R-2.3: between 45 and 60 days store credit less 10 %: EUR 156.60 "
        "for MW-688034. She is basic, so the full amount does not apply."
    )
    office.user(
        "She asks for the money on her husband's card, because *5527 is expired. And she is angry. What can we do? You may waive "
        "the 10 % of R-2.3 this once."
    )
    office.reason(
        "The clerk names the article for the 10 %, so that is waived. R-2.1 about the other card is not waived."
    )
    office.say(
        "The 10 % is waived (R-2.3, your word), so EUR 174.00 of store credit. A refund to another person's card is not possible "
        "(R-2.1), also when the card is expired."
    )
    office.user("OK, do that.")
    office.act(
        (
            "give_credit",
            {"customer": "K-61540", "cents": 17400, "note": "R-2.3, 10 % waived by Petra, CS-20425"},
            '{"ok": true, "credit": "SC-90442", "balance_cents": 18650}',
        )
    )
    office.remember("What is the number of the store credit for the backpack?", "SC-90442", "she asks about it later")
    office.say("CS-20425: EUR 174.00 store credit, SC-90442, balance EUR 186.50. Return label sent. Closed.")


def tax_number(office: BackOffice) -> None:
    """An invalid tax number, then a valid one."""
    rng = office.rng
    office.user("CS-20430: the hiking club K-77102 wants its tax number on the invoice of MW-815530: NL004495445B01.")
    office.act(
        (
            "find_customer",
            {"customer": "K-77102"},
            outputs.customer(rng, "K-77102", "Hiking Club Brevik", city="Brevik", country="NL"),
        ),
        policy("invoices"),
        (
            "check_tax_number",
            {"number": "NL004495445B01", "country": "NL"},
            '{"valid": false, "reason": "check digit"}',
        ),
    )
    office.say(
        "The number is not valid (check digit). I-3.2: an invalid number is never added. Please ask the club for the right one."
    )
    office.user("They had two digits swapped: NL004494545B01.")
    office.act(
        (
            "check_tax_number",
            {"number": "NL004494545B01", "country": "NL"},
            '{"valid": true, "name": "Hiking Club Brevik"}',
        )
    )
    office.remember(
        "Which tax number of the hiking club is valid?",
        "NL004494545B01",
        "the first one was wrong; do not reuse it",
        len(office.messages) - 2,
    )
    office.act(
        note("CS-20430", "Invoice of MW-815530 cancelled and issued again with NL004494545B01, reverse charge (I-3.3).")
    )
    office.say("CS-20430: invoice issued again with NL004494545B01, same date of supply. Closed.")


def double_order(office: BackOffice) -> None:
    """Two equal orders, one refunded with an approval."""
    rng = office.rng
    same = {
        "sku": "TN-2204",
        "product": "Tent Heron 2",
        "quantity": 1,
        "total_cents": 28900,
        "payment": "card *8816",
        "status": "packed",
    }
    office.user("CS-20433: K-19366 pressed the button twice, one tent too many.")
    office.act(
        ("find_customer", {"customer": "K-19366"}, outputs.customer(rng, "K-19366", "Corvin Tessel")),
        (
            "list_orders",
            {"customer": "K-19366"},
            outputs.orders(
                rng,
                "K-19366",
                16,
                {
                    0: {**same, "order": "MW-902771", "placed_at": "2026-05-17T20:14Z"},
                    1: {**same, "order": "MW-902768", "placed_at": "2026-05-17T20:13Z"},
                },
            ),
        ),
    )
    office.say(
        "MW-902768 and MW-902771 are equal, one minute apart. I would refund the later one, EUR 289.00; above EUR 250.00, so I need an approval (R-2.5)."
    )
    office.user("Lennart says yes, code LN-5582.")
    office.remember("What is Lennart's approval code for the double order?", "LN-5582", "the audit at the end lists it")
    office.act(
        ("refund", {"order": "MW-902771", "cents": 28900, "approval": "LN-5582"}, '{"ok": true, "refund": "RF-33071"}')
    )
    office.act(note("CS-20433", "MW-902771 refunded EUR 289.00, RF-33071, approval LN-5582."))
    office.say("CS-20433: RF-33071 over EUR 289.00 to card *8816, approved LN-5582. Closed.")


def wrong_address(office: BackOffice) -> None:
    """A second shipment whose fee is waived."""
    rng = office.rng
    office.user("CS-20437: K-55008 gave an old address, parcel PP55877340 came back.")
    office.act(
        (
            "find_customer",
            {"customer": "K-55008"},
            outputs.customer(rng, "K-55008", "Linnea Farrow", tier="summit", flags=["moved 2026-04"]),
        ),
        ("track_parcel", {"parcel": "PP55877340"}, outputs.parcel(rng, "PP55877340", "returned to sender", 8)),
        (
            "list_orders",
            {"customer": "K-55008"},
            outputs.orders(
                rng, "K-55008", 13, {0: {**outputs.name_article("SB-0119"), "order": "MW-866190", "status": "returned"}}
            ),
        ),
    )
    office.say(
        "P-5.3: the second shipment costs EUR 5.90, waived for summit members, which she is. Which address shall I use?"
    )
    office.user("14 Heather Row, Lindal, postcode 48-207. Don't use 12, that is the neighbour who refuses parcels.")
    office.remember(
        "What is the new address of K-55008?", "14 Heather Row, Lindal, postcode 48-207", "number 12 is wrong"
    )
    office.act(
        ("ship", {"order": "MW-866190", "sku": "SB-0119"}, '{"parcel": "PP55902004", "ready": "2026-05-18T16:30Z"}')
    )
    office.say("CS-20437: sent again as PP55902004, no fee. Closed.")
