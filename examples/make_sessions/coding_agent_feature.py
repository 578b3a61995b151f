"""Second half of the coding session: webhooks are tried again, dead ones are listed, and version 3.5.0 goes out.

Called by ``coding_agent`` after the bug is fixed. Late steps use values that were said long before, on purpose.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from examples.make_sessions import quayline_outputs as outputs
from examples.make_sessions.quayline_source import RETRY, ROUTES_DELIVERIES
from examples.make_sessions.quayline_tests import SENDER_LOOP, TEST_DELIVERIES, TEST_RETRY, WORKER

if TYPE_CHECKING:
    from examples.make_sessions.coding_agent import CodingAgent

BASE = "https://staging.quayline.example.com:9443"
BRANCH = "feat/webhook-retries"
DEAD = ("dlv_41ce08b7aa93", "dlv_c07d5e29f614", "dlv_98f3b6021d7e")
LINT = "ruff check quayline tests && mypy quayline"
LINT_OK = "All checks passed!\nSuccess: no issues found in 51 source files"
RETRY_TEST = "tests/webhooks/test_retry.py::test_the_last_attempt_is_followed_by_giving_up"
CURSOR_TEST = "tests/api/test_routes_deliveries.py::test_a_page_never_repeats_a_delivery"
CURSOR_TRACE = """    def test_a_page_never_repeats_a_delivery(client) -> None:
        seed_deliveries(client.db, 120)
        first = client.get("/v2/deliveries?limit=50").json()
        second = client.get(f"/v2/deliveries?limit=50&cursor={first['next_cursor']}").json()
>       assert not ids(first) & ids(second)
E       AssertionError: assert not {'dlv_000071'}
E        +  where 'dlv_000071' is the last of the first page and the first of the second

tests/api/test_routes_deliveries.py:34: AssertionError"""
OVERLAP_TRACE = """    def test_two_workers_never_send_the_same_delivery(db) -> None:
        first = claim_due(db, NOW, 10)
        second = claim_due(db.another(), NOW, 10)
>       assert not ids(first) & ids(second)
E       psycopg.errors.LockNotAvailable: canceling statement due to statement timeout (4500 ms)

tests/storage/test_deliveries.py:58: LockNotAvailable"""


def tell(agent: CodingAgent, fix: str) -> None:
    """Tell the second half; ``fix`` is the hash of the first half's commit."""
    plan_retries(agent)
    build_retries(agent)
    build_listing(agent)
    read_staging_log(agent)
    release(agent, fix)


def plan_retries(agent: CodingAgent) -> None:
    """What is wanted, and the decisions about it."""
    agent.user(
        "Next: feature QL-2190, webhook retries. Today a lost delivery is lost for good. I want: up to 7 attempts, first "
        "delay 30 s, doubling, at most 6 h, jitter 20 %. After that the delivery is dead. Tenants can list their "
        "deliveries (GET /v2/deliveries, with a cursor) and send a dead one again. The table exists since migration "
        "0038, you need no new one. Jorun from the customer side tests it with endpoint whe_5c81d2."
    )
    agent.act(
        "Reading what sends, signs and stores deliveries today.",
        agent.read("quayline/webhooks/sender.py"),
        agent.read("quayline/storage/deliveries.py"),
        agent.read("quayline/webhooks/signing.py"),
        agent.read("quayline/webhooks/worker.py"),
    )
    agent.act(None, agent.read("quayline/api/routes_webhooks.py"), agent.read("docs/webhooks.md"))
    agent.act(None, agent.search(r"E42\d\d"), agent.search("TODO"))
    agent.act(
        "Checking the table without touching the migration.",
        agent.run(
            "psql -h 127.0.0.1 -p 5493 -U quayline quayline_dev -c '\\d webhook_deliveries'",
            """                     Table "public.webhook_deliveries"
     Column      |           Type           | Nullable |      Default
-----------------+--------------------------+----------+-------------------
 id              | text                     | not null |
 tenant_id       | text                     | not null |
 endpoint_id     | text                     | not null |
 event_id        | text                     | not null |
 state           | text                     | not null | 'pending'::text
 attempt         | integer                  | not null | 0
 last_status     | integer                  |          |
 next_attempt_at | timestamp with time zone | not null |
 created_at      | timestamp with time zone | not null | now()
Indexes:
    "webhook_deliveries_pkey" PRIMARY KEY, btree (id)
    "webhook_deliveries_due" btree (next_attempt_at) WHERE state = 'pending'
    "webhook_deliveries_page" btree (tenant_id, created_at DESC, id DESC)""",
        ),
    )
    agent.say(
        "Plan:\n1. `webhooks/retry.py`: a pure function `decide(attempt, status, now, rng)`; no clock inside.\n"
        "2. `webhooks/worker.py`: claim due deliveries, send, store the decision.\n"
        "3. `api/routes_deliveries.py`: list with cursor, resend. Free error codes are E4219, E4220 and E4221.\n"
        "4. Docs and changelog.\n\nOne question: 4xx answers. I would treat 408, 425 and 429 as worth another try and "
        "every other 4xx as final."
    )
    agent.user(
        "Agreed on 4xx, with one exception that comes later maybe. Don't add a dependency for this; no tenacity, no "
        "celery. Error code for a bad cursor is E4220, the mobile team already hard-coded it."
    )
    agent.remember("Which error code is a bad cursor?", "E4220", "the mobile team hard-coded it")
    agent.remember("May a dependency be added for retries?", "Don't add a dependency for this", "a standing rule")


def build_retries(agent: CodingAgent) -> None:
    """retry.py, worker.py and their tests."""
    agent.act(None, agent.run(f"git switch -c {BRANCH}", f"Switched to a new branch '{BRANCH}'"))
    agent.act("The decision first, with its tests.", agent.write("quayline/webhooks/retry.py", RETRY))
    agent.act(None, agent.write("tests/webhooks/test_retry.py", TEST_RETRY))
    agent.act(
        None,
        agent.run(
            "pytest -q tests/webhooks/test_retry.py",
            "......F                                                                  [100%]\n"
            "FAILED tests/webhooks/test_retry.py::test_delays_stay_within_the_jitter - assert 36.02 <= 36.0\n"
            "1 failed, 6 passed in 0.31s",
        ),
    )
    agent.act(
        "The test compares with a rounded bound; the jitter of 20 % of 30 s is exactly 6 s, so allow the rounding.",
        agent.edit("tests/webhooks/test_retry.py", "<= delay * 1.2\n", "<= delay * 1.2 + 0.05\n"),
    )
    agent.act(None, agent.run("pytest -q tests/webhooks/test_retry.py", ".......    [100%]\n7 passed in 0.28s"))
    agent.act("Now the worker.", agent.write("quayline/webhooks/worker.py", WORKER))
    agent.act(None, agent.read("quayline/webhooks/sender.py"))
    agent.act(
        None,
        agent.edit(
            "quayline/webhooks/sender.py",
            "            # TODO: a lost delivery is lost for good.\n",
            "            # The worker decides whether to try again; here we only report.\n",
        ),
    )
    agent.act(
        None,
        agent.edit(
            "quayline/webhooks/sender.py", "    def deliver(self, event: Event) -> dict[str, bool]:", SENDER_LOOP
        ),
    )
    agent.act(
        None,
        agent.run(
            "pytest -v",
            outputs.run_tests(
                agent.rng,
                {"tests/storage/test_deliveries.py::test_two_workers_never_send_the_same_delivery": OVERLAP_TRACE},
                (RETRY_TEST,),
            ),
        ),
    )
    agent.act(
        "Two workers wait for each other: the statement timeout (4500 ms) fires. `claim_due` has SKIP LOCKED, but the "
        "test's second connection lies in the same pool of 12 and the first transaction stays open.",
        agent.read("quayline/storage/deliveries.py"),
        agent.search("pool_size|statement_timeout"),
    )
    agent.act(
        None,
        agent.edit(
            "quayline/storage/deliveries.py",
            "    return db.fetch_all(\n        \"SELECT * FROM webhook_deliveries WHERE state = 'pending'",
            "    return db.fetch_all_in_own_transaction(\n        \"SELECT * FROM webhook_deliveries WHERE state = 'pending'",
        ),
    )
    agent.act(None, agent.run("pytest -v", outputs.run_tests(agent.rng, {}, (RETRY_TEST,))))
    agent.act(None, agent.run(LINT, LINT_OK), agent.run("git diff", agent.shop.diff()))
    _, call = agent.commit(BRANCH, "webhooks: try failed deliveries again (QL-2190)")
    agent.act(None, call)


def build_listing(agent: CodingAgent) -> None:
    """The routes for tenants, with a pagination bug found by a test."""
    agent.act("Next the routes for tenants.", agent.write("quayline/api/routes_deliveries.py", ROUTES_DELIVERIES))
    agent.act(None, agent.write("tests/api/test_routes_deliveries.py", TEST_DELIVERIES))
    agent.act(None, agent.run("pytest -v", outputs.run_tests(agent.rng, {CURSOR_TEST: CURSOR_TRACE}, (RETRY_TEST,))))
    agent.act(
        "A page repeats the last delivery of the one before: microseconds. `isoformat` keeps them, the column is "
        "compared as text. Cast the bound value.",
        agent.edit("quayline/storage/deliveries.py", "< (:at, :id)", "< (CAST(:at AS timestamptz), :id)"),
    )
    agent.act(None, agent.run("pytest -v", outputs.run_tests(agent.rng, {}, (RETRY_TEST, CURSOR_TEST))))
    agent.user(
        "While you are there: a tenant complained that 409 from their proxy killed deliveries. That is the exception I "
        "meant: treat 409 as worth another try. And raise the per-attempt timeout from 8 to 12 seconds."
    )
    agent.remember(
        "What is the timeout of one attempt now?", "from 8 to 12 seconds", "it replaces the 8 s that older files say"
    )
    agent.remember(
        "Which 4xx besides 408, 425, 429 is tried again?", "treat 409 as worth another try", "a late exception"
    )
    agent.act(
        None,
        agent.edit("quayline/webhooks/retry.py", "frozenset({408, 425, 429,", "frozenset({408, 409, 425, 429,"),
        agent.edit("quayline/webhooks/sender.py", "TIMEOUT_S = 8.0", "TIMEOUT_S = 12.0"),
        agent.search(r"TIMEOUT_S|timeout_s|within 8 seconds"),
    )
    agent.act(
        "The docs and the settings say 8 as well.",
        agent.edit("config/settings.toml", "timeout_s = 8.0", "timeout_s = 12.0"),
        agent.edit(
            "docs/webhooks.md",
            "Answer with any 2xx status within 8 seconds. Deliveries are sent once.",
            "Answer with any 2xx status within 12 seconds. A failed delivery is tried again: 7 attempts in all, after "
            "30 s,\nthen twice as long each time, at most 6 hours. Answers 408, 409, 425, 429 and 5xx are tried again; "
            "others are final.\nList deliveries with `GET /v2/deliveries?state=dead`; send a dead one again with\n"
            "`POST /v2/deliveries/{id}/resend`. A cursor that we did not make is answered with E4220.",
        ),
    )
    agent.act(None, agent.run(LINT, LINT_OK), agent.run("pytest -q", "248 passed in 19.74s"))
    digest, call = agent.commit(BRANCH, "api: list deliveries and send dead ones again (QL-2190)")
    agent.act(None, call)
    agent.say(f"Committed as {digest}. 409 is tried again and the timeout is 12 s everywhere (code, settings, docs).")


def read_staging_log(agent: CodingAgent) -> None:
    """A large log with four lines that matter, and dead deliveries to send again."""
    agent.user(
        "I deployed the branch to staging. Before that, on the night of the 11th, Jorun lost an event there. Look at "
        "the log, /var/log/quayline/staging-20251111.log, and tell me which event it was and why."
    )
    log = outputs.server_log(agent.rng, 60_000)
    agent.act("Reading the whole log once.", agent.run("cat /var/log/quayline/staging-20251111.log", log))
    agent.remember("Which event was lost on staging on 11 November?", "evt_9b04e7c1d25a", "it is sent again at the end")
    errors = "\n".join(line for line in log.splitlines() if "ERROR" in line or "WARN" in line)
    agent.act(None, agent.run("grep -nE 'ERROR|WARN' /var/log/quayline/staging-20251111.log", errors))
    agent.say(
        "Event evt_9b04e7c1d25a to endpoint whe_5c81d2 was lost with E5031: the receiver reset the connection "
        "(errno 104) and 3.4.2 had no retry. Shortly before, the connection pool was exhausted (31 waiters, size 12), "
        "which is unrelated but worth a ticket. With the new branch this delivery would have been tried again after 30 s."
    )
    agent.user("Fine. Are there dead deliveries on staging now, with the branch? Tenant tnt_7f3kq9.")
    url = f"{BASE}/v2/deliveries?tenant=tnt_7f3kq9&limit=100"
    agent.act(None, agent.get(url, outputs.list_deliveries(agent.rng, "tnt_7f3kq9", DEAD)))
    agent.remember("Which is the newest dead delivery on staging?", DEAD[0], "it is sent again before the release")
    agent.say(f"Three are dead, all answered 503 seven times: {', '.join(DEAD)}.")
    agent.user("503 was Jorun's maintenance, it is over. Send them again when the release is ready, not before.")
    agent.act(None, agent.read("docs/webhooks.md"), agent.read("quayline/webhooks/retry.py"))
    agent.act(
        "The worker does not use the egress proxy from the settings yet; deliveries must leave through it.",
        agent.read("config/settings.toml"),
        agent.search("proxy"),
    )
    agent.act(
        None,
        agent.edit(
            "quayline/webhooks/worker.py",
            "        self._rng = rng\n",
            "        self._rng = rng\n        # Staging and production have no other way out: http://egress.internal.example.org:3199\n"
            "        self._proxy = settings.webhooks.proxy\n",
        ),
    )
    for area in ("api", "billing", "webhooks"):
        seconds = agent.rng.randrange(200, 900) / 100
        agent.act(None, agent.run(f"pytest -q tests/{area}", f"{agent.rng.randrange(28, 64)} passed in {seconds:.2f}s"))


def release(agent: CodingAgent, fix: str) -> None:
    """Version 3.5.0, with everything that was asked for long before."""
    agent.user(
        "Good catch. Let's release: version 3.5.0, dated 2025-11-17, tag v3.5.0. Put both tickets in the changelog, with "
        "the commit of the fix. Don't forget the series for the credit notes."
    )
    agent.remember(
        "Which version and date has the release?", "version 3.5.0, dated 2025-11-17", "the tag and changelog"
    )
    agent.act(None, agent.read("CHANGELOG.md"), agent.read("pyproject.toml"), agent.read("quayline/billing/invoice.py"))
    entry = (
        "# Changelog\n\n## 3.5.0 - 2025-11-17\n"
        f"- Nights are counted on the calendar of the harbour (QL-2217, {fix}). Stays over the night of 25 October\n"
        "  2025 were charged one night too many since 77c0d38ae; credit notes carry the series CN-77.\n"
        "- Failed webhook deliveries are tried again, up to 7 times; dead ones can be listed and sent again (QL-2190).\n"
    )
    agent.act(
        None,
        agent.edit("CHANGELOG.md", "# Changelog\n", entry),
        agent.edit("pyproject.toml", 'version = "3.4.2"', 'version = "3.5.0"'),
        agent.edit(
            "quayline/billing/invoice.py",
            "MAX_NIGHTS_DEFAULT = 180\n",
            'MAX_NIGHTS_DEFAULT = 180\nCREDIT_SERIES = "CN-77"\n',
        ),
    )
    agent.act(None, agent.run("pytest -v", outputs.run_tests(agent.rng, {}, (RETRY_TEST, CURSOR_TEST))))
    agent.act("Linter before the commit.", agent.run(LINT, LINT_OK), agent.run("git diff", agent.shop.diff()))
    agent.act(
        None,
        agent.run("git diff --stat main -- migrations/", ""),
        agent.run("git log --oneline main..HEAD | wc -l", "3"),
    )
    digest, call = agent.commit(BRANCH, "release 3.5.0")
    agent.act("migrations/ is untouched, as you asked.", call)
    agent.act(None, agent.run(f"git tag v3.5.0 {digest} && git describe --tags", "v3.5.0"))
    for delivery in DEAD:
        agent.act(
            None,
            agent.run(f"curl -sS -X POST {BASE}/v2/deliveries/{delivery}/resend -w '%{{http_code}}'", "202"),
        )
    agent.act(
        None,
        agent.run(
            f"curl -sS {BASE}/v2/deliveries/{DEAD[0]}",
            json.dumps(
                {"id": DEAD[0], "endpoint_id": "whe_5c81d2", "state": "delivered", "attempt": 8, "last_status": 204}
            ),
        ),
    )
    agent.act(
        "The lost event of the 11th, and the first credit note as a check.",
        agent.run("python -m quayline.cli.main outbox replay evt_9b04e7c1d25a", "queued 1 delivery for whe_5c81d2"),
        agent.run(
            f"python -m quayline.cli.main credit draft {agent.wrong_invoice} --series CN-77 --due 2025-11-28",
            f"CN-77-00001 draft for {agent.wrong_invoice}: -1 night, reason QL-2217",
        ),
    )
    agent.say(
        f"v3.5.0 is tagged at {digest}. The three dead deliveries were accepted again (202); {DEAD[0]} is delivered. "
        "evt_9b04e7c1d25a is queued for Jorun's endpoint. Open: Oriane must approve the drafts of series CN-77 before "
        "2025-11-28, and the exhausted pool (size 12) deserves a ticket."
    )
    agent.user(
        "Great. Last thing for today: write Oriane two sentences with the folder of the CSV, the series and the deadline, "
        "and remind me which rules you are keeping for tomorrow."
    )
