"""What happens in the incident session: slow checkout, a cache switched off, orders captured twice, reversals.

Called by ``anthropic_thinking``; it only adds messages to the agent it is given. Rules given early bind late steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.make_sessions import larkspur_outputs as outputs
from examples.make_sessions.anthropic_thinking_after import (
    answer_support,
    find_baseline,
    keep_ledger,
    reverse_captures,
    write_report,
)

if TYPE_CHECKING:
    from examples.make_sessions.anthropic_thinking import Beacon


def tell(beacon: Beacon) -> None:
    """Tell the whole incident."""
    open_incident(beacon)
    find_cause(beacon)
    find_second_symptom(beacon)
    restore_service(beacon)
    find_double_captures(beacon)
    reverse_captures(beacon)
    keep_ledger(beacon)
    answer_support(beacon)
    find_baseline(beacon)
    write_report(beacon)


def open_incident(beacon: Beacon) -> None:
    """The alarm, the rules, the first look."""
    rng = beacon.rng
    runbook = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": outputs.RUNBOOK},
        "title": "Runbook PAY-7",
        "citations": {"enabled": False},
    }
    beacon.user(
        "Incident INC-4471. Checkout got slow around 18:40 UTC and support sees customers charged twice. I am on duty "
        "tonight (Tomiwa). The runbook for double captures is attached.\n\nRules for tonight: all times in UTC. Never "
        "restart ledger pods without Imke's word, in writing. Post an update to the channel only when I say so.",
        runbook,
    )
    beacon.remember("What is the number of the incident?", "INC-4471", "every update and the report carry it")
    beacon.remember("Who is on duty?", "Tomiwa", "decisions of the night are his")
    beacon.remember(
        "What must never be restarted without Imke's word?",
        "restart ledger pods without Imke's word",
        "a standing rule",
    )
    beacon.remember("What is the merchant number at the acquirer?", "70-4418-22", "form AQ-12 asks for it at the end")
    beacon.remember("When does the daily reconciliation run?", "04:15 UTC", "the incident closes only after it")
    beacon.step(
        "Two symptoms, maybe one cause. Start broad: latency of checkout, errors of the gateway, and what changed before "
        "18:40. These do not depend on each other, so ask for all at once.",
        "Looking at latency, gateway errors and the changes of the evening together.",
        (
            "query_metrics",
            {"metric": "checkout.latency_p99", "window": "90m"},
            outputs.series(rng, "checkout.latency_p99", 420, 6800),
        ),
        (
            "query_metrics",
            {"metric": "gateway.errors.PAY-504", "window": "90m"},
            outputs.series(rng, "gateway.errors.PAY-504", 0.4, 37),
        ),
        ("list_changes", {"since": "2026-02-09T09:00:00Z"}, outputs.deploys(rng)),
    )
    beacon.step(
        "Latency jumps at 18:42 exactly, from ~420 ms to ~6.8 s. PAY-504 follows in the same minute. In the changes, "
        "CHG-88213 on basket-pricing is a config change at 18:39:51, two minutes before. That is my first suspect, but "
        "storefront and slot-planner had changes too. A picture first, to see whether all regions are affected.",
        None,
        (
            "get_dashboard",
            {"name": "checkout-overview"},
            [
                {"type": "text", "text": "checkout-overview, 18:00 to 19:30 UTC, all regions"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": outputs.dashboard_png(rng)},
                },
            ],
        ),
    )
    beacon.step(
        "The curve has one step and stays up; no sawtooth, so no crash loop. Tell Tomiwa what is established and go on.",
        "Established so far: p99 of checkout went from about 0.42 s to 6.8 s at 18:42 and stays there; PAY-504 rose in "
        "the same minute. The nearest change is CHG-88213 (basket-pricing, config, 18:39:51, by m.velde). I have not "
        "shown yet that it is the cause.",
    )
    beacon.user("Go on. I want proof before anybody rolls back; last time we rolled back the wrong thing.")


def find_cause(beacon: Beacon) -> None:
    """From suspicion to proof."""
    rng = beacon.rng
    beacon.step(
        "Proof means: mechanism in the logs, the config value, and a metric that only this explains. Logs and config.",
        None,
        ("get_config", {"service": "basket-pricing"}, outputs.CONFIG),
        (
            "search_logs",
            {"service": "basket-pricing", "query": "coupon OR pool"},
            outputs.log_lines(rng, "basket-pricing", 110, {61: "pool exhausted pool=pricing waiters=212 code=BP-1183"}),
        ),
    )
    beacon.remember("Which error code did the exhausted pool log?", "BP-1183", "the alert is built on it")
    beacon.remember(
        "At which address is the coupon store?",
        "coupon-store.svc.example.org:7411",
        "a later check calls it",
        len(beacon.messages) - 1,
    )
    beacon.step(
        "coupon_cache_ttl_s is 0, was 300. Per the runbook's appendix, 0 disables the cache. So every pricing call goes "
        "to the coupon store, holds a pool connection (size 40) for the whole lookup, and the pool runs dry: BP-1183. "
        "Check: cache hit ratio must have dropped to 0, and queries per second at the coupon store must have jumped.",
        "The config shows `coupon_cache_ttl_s: 0` (was 300). If that is the mechanism, the hit ratio dropped to zero and "
        "the coupon store got all the load. Checking both.",
        (
            "query_metrics",
            {"metric": "pricing.coupon_cache.hit_ratio", "window": "90m"},
            outputs.series(rng, "pricing.coupon_cache.hit_ratio", 0.94, 0.0),
        ),
        (
            "query_metrics",
            {"metric": "coupon_store.qps", "window": "90m"},
            outputs.series(rng, "coupon_store.qps", 130, 2310),
        ),
        (
            "query_metrics",
            {"metric": "pricing.pool.waiters", "window": "forever"},
            "window must be one of 15m, 90m, 24h",
        ),
        failed=(2,),
    )
    beacon.step(
        "The third query failed because of my window. Ask again with 90m. The other two fit the mechanism.",
        None,
        (
            "query_metrics",
            {"metric": "pricing.pool.waiters", "window": "90m"},
            outputs.series(rng, "pricing.pool.waiters", 1, 208),
        ),
        ("list_pods", {"service": "basket-pricing"}, outputs.pods(rng, "basket-pricing", "2.19.0", 14)),
    )


def find_second_symptom(beacon: Beacon) -> None:
    """Retries of the storefront make new keys, so orders are charged twice."""
    rng = beacon.rng
    beacon.step(
        "redacted",
        None,
        (
            "search_logs",
            {"service": "storefront", "query": "checkout retry"},
            outputs.log_lines(
                rng,
                "storefront",
                70,
                {
                    18: "checkout attempt=2 new idempotency_key reason=client_timeout",
                    44: "checkout attempt=2 new idempotency_key reason=client_timeout",
                },
            ),
        ),
    )
    beacon.step(
        "There is the second symptom: storefront retries after its own timeout and makes a NEW idempotency key. The first "
        "attempt was slow, not dead, so the gateway captured both. So one cause (cache off), one amplifier (retry with a "
        "new key). Order of actions: first stop the retries (flag), then restore the TTL.",
        "Proof is complete:\n\n1. 18:39:51 CHG-88213 sets `coupon_cache_ttl_s` to 0.\n2. 18:42 hit ratio 0.94 to 0, coupon "
        "store from 130 to about 2,310 queries per second, the pricing pool (40) is exhausted (BP-1183).\n3. Checkout "
        "takes longer than the client's limit; storefront tries again **with a new idempotency key**; the gateway captures "
        "twice.\n\nI propose: `storefront.checkout_retry` off, then the TTL back to 300. Both need your yes.",
    )


def restore_service(beacon: Beacon) -> None:
    """Retries off, the cache on again, and the same metrics as before."""
    rng = beacon.rng
    beacon.user(
        "Yes to both, in that order. Write down for the report: m.velde followed the procedure, the review tool hid the "
        "line. No blame in the text."
    )
    beacon.remember("How shall the report speak of m.velde?", "No blame in the text", "a rule for the report")
    beacon.step(
        None,
        None,
        (
            "set_flag",
            {"flag": "storefront.checkout_retry", "value": "off"},
            '{"flag": "storefront.checkout_retry", "value": "off", "revision": 5512, "at": "2026-02-09T19:34:08Z"}',
        ),
    )
    beacon.remember("Which revision switched the checkout retries off?", "5512", "to switch them on again later")
    beacon.step(
        "Flag takes 20 s. Now the TTL.",
        None,
        (
            "set_flag",
            {"flag": "pricing.coupon_cache_ttl_s", "value": "300"},
            '{"error": "flag is managed by change control; open a change", "code": "FLG-403"}',
        ),
        failed=(0,),
    )
    beacon.step(
        "The TTL cannot be set as a flag. I should not work around change control; Tomiwa must open the change.",
        "The retries are off since 19:34:08 (revision 5512). The TTL is under change control: FLG-403. Please open an "
        "emergency change for basket-pricing; I cannot.",
    )
    beacon.user("Done, CHG-88240, approved by Imke, rolled out 19:41:30. Is it working?")
    beacon.remember("Which change restored the cache?", "CHG-88240", "the timeline needs it")
    beacon.step(
        "Check the same metrics as before, so that the comparison is fair.",
        None,
        (
            "query_metrics",
            {"metric": "checkout.latency_p99", "window": "90m"},
            outputs.series(rng, "checkout.latency_p99", 431, 6650, 120, 102),
        ),
        (
            "query_metrics",
            {"metric": "pricing.coupon_cache.hit_ratio", "window": "90m"},
            outputs.series(rng, "pricing.coupon_cache.hit_ratio", 0.93, 0.0, 120, 101),
        ),
        ("search_logs", {"service": "basket-pricing", "query": "BP-1183"}, "no lines since 2026-02-09T19:41:58Z"),
    )
    beacon.step(
        "Recovered at 19:42. An hour of impact: 18:42 to 19:42.",
        "Recovered: p99 is back at about 0.43 s since 19:42, the hit ratio is 0.93, the last BP-1183 was at 19:41:58. The "
        "impact lasted from 18:42 to 19:42.",
    )


def find_double_captures(beacon: Beacon) -> None:
    """Count the orders, three queries until the number is right."""
    rng = beacon.rng
    beacon.user("Good. Now the money. How many orders were captured twice, and how much is it? Count, don't estimate.")
    beacon.step(
        "Runbook step 1: same order_id, different idempotency_key, within 60 seconds.",
        None,
        (
            "run_sql",
            {
                "query": "SELECT count(*) FROM captures a JOIN captures b USING (order_id) WHERE a.idempotency_key <> b.idempotency_key"
            },
            'ERROR 42P01: relation "captures" does not exist',
        ),
        failed=(0,),
    )
    beacon.step(
        "The schema is ledger. Also the join counts each pair twice; use a < b. And restrict to 60 seconds.",
        None,
        (
            "run_sql",
            {
                "query": "SELECT count(*), sum(b.amount) FROM ledger.captures a JOIN ledger.captures b USING (order_id) WHERE a.captured_at < b.captured_at AND b.captured_at - a.captured_at <= interval '60 s' AND a.idempotency_key <> b.idempotency_key AND a.captured_at >= '2026-02-09 18:39Z'"
            },
            "count,sum\n1309,105882.11",
        ),
    )
    beacon.step(
        "1309 pairs, but an order captured three times gives three pairs. Count distinct orders, and look at triples.",
        None,
        (
            "run_sql",
            {
                "query": "SELECT captures, count(*) AS orders, sum(excess) FROM (SELECT order_id, count(*) captures, sum(amount) - min(amount) excess FROM ledger.captures WHERE captured_at >= '2026-02-09 18:39Z' GROUP BY 1) x WHERE captures > 1 GROUP BY 1"
            },
            "captures,orders,sum\n2,1276,102914.35\n3,8,1441.20\n2 (split delivery, legitimate),17,1526.56",
        ),
    )
    beacon.step(
        "Careful: 17 orders with two captures are split deliveries, legitimate. So 1276 + 8 = 1284 orders; the excess is "
        "102914.35 + 1441.20 = 104355.55. 1309 pairs = 1276 + 8*2 + 17 = 1309; it adds up.",
        "1,284 orders were captured too often: 1,276 twice and 8 three times. The excess is EUR 104,355.55. The 17 orders "
        "with a split delivery are legitimate and must not be reversed (1,276 + 8 × 2 + 17 = 1,309 pairs, so the counts "
        "agree). More than 1,000 orders: form AQ-12 is due within 24 hours.",
    )
    beacon.remember("How many orders were captured too often?", "1,284", "the report and form AQ-12")
    beacon.remember("What is the excess in total?", "EUR 104,355.55", "the reversals must add up to it")
    beacon.remember("How many split deliveries must not be reversed?", "The 17 orders", "an exception for the batches")
    beacon.user("Show me the first hundred or so, I want to see them with my own eyes.")
    beacon.step(
        None,
        None,
        (
            "run_sql",
            {"query": "SELECT * FROM report.double_captures_20260209 ORDER BY capture_1 LIMIT 120"},
            outputs.double_captures(rng, 120, "LK-3350716"),
        ),
    )
    beacon.remember("Which order was the first to be captured twice?", "LK-3350716", "support asks about it at the end")
    beacon.step(
        "They look right: 5 to 30 seconds apart, amounts equal. First is LK-3350716.",
        "120 rows above, all 5 to 30 seconds apart. The first is LK-3350716.",
    )
