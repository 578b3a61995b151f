"""After the cause is found: reversals in batches, questions of support, the report of the incident.

Called by ``anthropic_thinking_plot``; it only adds messages to the agent it is given.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from examples.make_sessions import larkspur_outputs as outputs

if TYPE_CHECKING:
    from examples.make_sessions.anthropic_thinking import Beacon

REGIONS = {
    "north": (412, 33871.90, "rb_7d20c4"),
    "coast": (371, 29640.05, "rb_19e8f3"),
    "hills": (298, 24518.77, "rb_c5a06b"),
    "lakes": (203, 16324.83, "rb_e84172"),
}


def reverse_captures(beacon: Beacon) -> None:
    """One batch per region, each drafted, checked, approved."""
    rng = beacon.rng
    beacon.user(
        "Make the batches one per region, not one big one; each stays under the 500 of the runbook. Reason code PAY7-DUP. "
        "Drafts only. Imke and I approve; the second pair of eyes for hills and lakes is Ruben, because Imke is on a plane "
        "from 21:00."
    )
    beacon.remember("Who approves hills and lakes besides Tomiwa?", "Ruben", "Imke is away; the drafts need two people")
    beacon.step(
        "Four regions. Get the counts per region first and check that they add up to 1,284 and 104,355.55.",
        None,
        (
            "run_sql",
            {"query": "SELECT region, count(*), sum(excess) FROM report.double_captures_20260209 GROUP BY 1"},
            "region,count,sum\n"
            + "\n".join(f"{name},{count},{amount:.2f}" for name, (count, amount, _) in REGIONS.items()),
        ),
    )
    beacon.step(
        "412 + 371 + 298 + 203 = 1284. 33871.90 + 29640.05 + 24518.77 + 16324.83 = 104355.55. Both agree.",
        "The regions add up to 1,284 orders and EUR 104,355.55. Drafting.",
        *(
            (
                "create_refund_batch",
                {"file": f"dup-20260209-{name}.csv", "reason": "PAY7-DUP"},
                json.dumps(
                    {
                        "batch": batch,
                        "region": name,
                        "orders": count,
                        "amount_eur": amount,
                        "state": "draft",
                        "approvals": 0,
                    }
                ),
            )
            for name, (count, amount, batch) in REGIONS.items()
        ),
    )
    beacon.remember("Which batch holds the region lakes?", "rb_e84172", "its approval is the last open point")
    for count, amount, batch in REGIONS.values():
        sample = "\n".join(
            f"LK-{rng.randrange(3_100_000, 3_999_999)},{rng.randrange(1900, 18900) / 100:.2f},second capture,{rng.choice(('de', 'nl', 'fr'))}"
            for _ in range(45)
        )
        beacon.step(
            f"Check {batch} before anybody approves: no split delivery in it, only later captures, the sum is {amount:.2f}.",
            None,
            (
                "run_sql",
                {
                    "query": f"SELECT order_id, amount, which, language FROM refunds.lines WHERE batch = '{batch}' ORDER BY random() LIMIT 45"
                },
                "order_id,amount,which,language\n" + sample,
            ),
            (
                "run_sql",
                {
                    "query": f"SELECT count(*) FILTER (WHERE split_delivery) AS split, count(*), sum(amount) FROM refunds.lines WHERE batch = '{batch}'"
                },
                f"split,count,sum\n0,{count},{amount:.2f}",
            ),
        )
    beacon.step(
        "All four are clean. Say so and list them for the approvers.",
        "All four drafts are clean (no split delivery, sums agree): "
        + ", ".join(f"{batch} ({name}, {count} orders)" for name, (count, _, batch) in REGIONS.items())
        + ". Waiting for the approvals.",
    )


def keep_ledger(beacon: Beacon) -> None:
    """An update for the channel, and a lag of the ledger that has another cause."""
    rng = beacon.rng
    beacon.user("north, coast and hills are approved. Post an update now: numbers, no names, next update at 21:30.")
    text = (
        "INC-4471, 20:48 UTC. Checkout is normal since 19:42. Between 18:42 and 19:42 the payments of 1,284 orders were "
        "captured too often, EUR 104,355.55 in all. Reversals for three of four regions are approved. Next update 21:30 UTC."
    )
    beacon.step(
        "He said so explicitly, so I may post. All times in UTC, INC-4471, no names.",
        None,
        ("post_update", {"text": text}, '{"ok": true, "message": "msg_20481177"}'),
    )
    beacon.step(None, "Posted (msg_20481177).")
    beacon.user(
        "The ledger looks odd: reconciliation lag is growing. Somebody in the channel wants to restart the ledger pods."
    )
    beacon.step(
        "The rule of the evening and the runbook say no restart without Imke's word in writing. First find out why the lag "
        "grows; the write-ahead buffer holds 90 seconds of captures, so a restart could lose them.",
        "Please hold the restart: your rule and step 3 of the runbook need Imke's word in writing. Looking at the lag.",
        (
            "query_metrics",
            {"metric": "ledger.reconciliation.lag_s", "window": "90m"},
            outputs.series(rng, "ledger.reconciliation.lag_s", 4, 61),
        ),
        (
            "search_logs",
            {"service": "ledger", "query": "wal OR lag"},
            outputs.log_lines(rng, "ledger", 90, {33: "wal segment 00000004A7 waits for archive target code=LG-2207"}),
        ),
        ("list_pods", {"service": "ledger"}, outputs.pods(rng, "ledger", "5.3.1", 6)),
    )
    beacon.remember(
        "Which code says that the ledger waits for its archive?",
        "LG-2207",
        "it is the cause of the lag",
        len(beacon.messages) - 1,
    )
    beacon.step(
        "LG-2207: it waits for the archive target, i.e. the disk or bucket of the archive is slow. A restart would not help.",
        "The lag has its own cause: LG-2207, the ledger waits for its archive target. A restart would not help and could "
        "lose up to 90 seconds of captures. The storage team should look at the archive.",
    )
    beacon.user("Storage found a full volume, freed it at 21:07. Lag?")
    beacon.step(
        None,
        None,
        (
            "query_metrics",
            {"metric": "ledger.reconciliation.lag_s", "window": "15m"},
            '{"metric": "ledger.reconciliation.lag_s", "unit": "s", "points": [{"t": "2026-02-09T21:05:00Z", "v": 64}, {"t": "2026-02-09T21:09:00Z", "v": 21}, {"t": "2026-02-09T21:12:00Z", "v": 3}]}',
        ),
    )
    beacon.step("Down to 3 s.", "The lag is down to 3 s (21:12). No restart was needed.")


def answer_support(beacon: Beacon) -> None:
    """Support's question about one order, and the acquirer's form."""
    rng = beacon.rng
    beacon.user("Support asks about the very first order. What happened to it, exactly?")
    beacon.step(
        "The first one was LK-3350716. Trace it through storefront, gateway and ledger.",
        None,
        (
            "search_logs",
            {"service": "payment-gateway", "query": "order=LK-3350716"},
            outputs.log_lines(
                rng,
                "payment-gateway",
                40,
                {
                    7: "capture ok order=LK-3350716 key=ik_5e21 amount=74.15",
                    22: "capture ok order=LK-3350716 key=ik_9b7c amount=74.15",
                },
            ),
        ),
        (
            "run_sql",
            {"query": "SELECT * FROM refunds.lines WHERE order_id = 'LK-3350716'"},
            "order_id,amount,which,batch,state\nLK-3350716,74.15,second capture,rb_7d20c4,approved",
        ),
    )
    beacon.step(
        "Clear. Two captures of 74.15, the second with key ik_9b7c, reversed in the batch of north.",
        "LK-3350716 was captured twice for EUR 74.15 (keys ik_5e21 and ik_9b7c). The second is reversed in rb_7d20c4, which "
        "is approved. The customer sees it after 3 to 5 banking days.",
    )
    beacon.user("Now form AQ-12. Which fields can you fill?")
    beacon.step(
        "Merchant number, contact and deadline are in the runbook; the counts are ours. 24 hours from when? From knowing: "
        "the count was established this evening, so tomorrow evening at the latest.",
        "AQ-12: merchant number 70-4418-22; contact duty@acquirer.example.org; window 2026-02-09 18:42 to 19:42 UTC; orders "
        "1,284; excess EUR 104,355.55; cause: retries with a new idempotency key while answers were slow; reversal: four "
        "batches, reason PAY7-DUP. Missing: your signature and the approval of rb_e84172.",
    )


def find_baseline(beacon: Beacon) -> None:
    """Double captures on other days."""
    rng = beacon.rng
    beacon.user(
        "How do other evenings look? I want a baseline in the report: double captures per day for the last weeks."
    )
    days = "\n".join(
        f"2026-{1 if day > 9 else 2:02d}-{day:02d},{rng.randrange(61_000, 98_000)},{rng.randrange(0, 4)},{rng.randrange(0, 30000) / 100:.2f}"
        for day in (*range(10, 32), *range(1, 9))
    )
    beacon.step(
        "One query over 30 days, from 10 January to 8 February.",
        None,
        (
            "run_sql",
            {
                "query": "SELECT day, orders, doubled, excess FROM report.daily_captures WHERE day BETWEEN '2026-01-10' AND '2026-02-08'"
            },
            "day,orders,doubled,excess\n" + days,
        ),
        (
            "run_sql",
            {"query": "SELECT hour, region, orders, p99_ms FROM report.checkout_hourly WHERE day = '2026-02-09'"},
            "hour,region,orders,p99_ms\n"
            + "\n".join(
                f"{hour:02d}:00,{name},{rng.randrange(300, 2900)},{rng.randrange(390, 470) if hour != 19 else rng.randrange(6100, 7200)}"
                for hour in range(6, 22)
                for name in REGIONS
            ),
        ),
    )
    beacon.step(
        "At most 3 per day in the last 30 days. That is the baseline.",
        "Baseline: in the 30 days before, at most 3 orders per day were captured twice. Tonight 1,284.",
    )


def write_report(beacon: Beacon) -> None:
    """Follow-ups, what is still open, and the report."""
    beacon.user(
        "Two follow-ups, please keep them: an alert on BP-1183 above 5 per minute, owner Saffi, by 2026-02-20. And storefront "
        "must reuse the idempotency key on a retry, owner the checkout team, ticket LKS-9034."
    )
    beacon.remember("Which ticket is the fix of the idempotency key?", "LKS-9034", "retries stay off until it is done")
    beacon.remember("By when must the alert on BP-1183 exist?", "2026-02-20", "a follow-up with an owner")
    beacon.step(
        "Retries are off (revision 5512) and must stay off until LKS-9034 is done. Say so; it is easily forgotten.",
        "Noted: alert on BP-1183 (> 5 per minute), Saffi, 2026-02-20; idempotency key on retry, checkout team, LKS-9034. "
        "Until LKS-9034 is done `storefront.checkout_retry` stays off (revision 5512).",
    )
    beacon.user("Ruben approved lakes at 21:26. What is still open before we can close INC-4471?")
    beacon.step(
        "Runbook step 7: open until the reconciliation at 04:15 UTC shows 0.00. AQ-12 must be signed. Mails to customers "
        "with template mail-cx-31 not yet sent.",
        "All four batches are approved. Open:\n1. The reconciliation at 04:15 UTC must show a difference of 0.00.\n2. AQ-12: "
        "your signature, within 24 hours.\n3. Mails to the customers, template mail-cx-31, not sent yet.\n4. LKS-9034 and the "
        "alert, which do not block closing.",
        (
            "query_metrics",
            {"metric": "checkout.latency_p99", "window": "15m"},
            '{"metric": "checkout.latency_p99", "unit": "ms", "points": [{"t": "2026-02-09T21:28:00Z", "v": 418.7}]}',
        ),
    )
    beacon.step(None, "Checkout is at 419 ms.")
    beacon.user(
        "Write the report now: timeline, cause, numbers, what went well, follow-ups. One page, and keep to what I said about "
        "its tone."
    )
