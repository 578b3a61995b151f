"""First half of the coding session: one night too many is charged when the clock changes; found, fixed, audited.

Called by ``coding_agent``; it only adds messages to the agent it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.make_sessions import quayline_outputs as outputs
from examples.make_sessions.quayline_source import NIGHTS_FIXED, TEST_NIGHTS

if TYPE_CHECKING:
    from examples.make_sessions.coding_agent import CodingAgent

BASE = "https://staging.quayline.example.com:9443"
TENANTS = {
    "tnt_7f3kq9": ("Porto da Fonte", 3),
    "tnt_b2m8xd": ("Marina Velha", 2),
    "tnt_q0w4hz": ("Cais Pequeno", 0),
    "tnt_k91tva": ("Doca Azul", 4),
    "tnt_m5r2pe": ("Baia Serena", 1),
    "tnt_x8c6ju": ("Ilha das Cabras", 0),
}
NEW_TESTS = """

def test_the_night_the_clock_goes_back_is_one_night() -> None:
    # 25 hours from noon to noon.
    assert nights_between(at("2025-10-25T11:00"), at("2025-10-26T12:00"), LISBON) == 1


def test_the_night_the_clock_goes_forward_is_one_night() -> None:
    assert nights_between(at("2025-03-29T12:00"), at("2025-03-30T11:00"), LISBON) == 1


def test_a_stay_within_one_day_is_charged_as_one_night() -> None:
    assert nights_between(at("2025-06-10T08:00"), at("2025-06-10T17:00"), LISBON) == 1
"""
TRACE = """    def test_the_night_the_clock_goes_back_is_one_night() -> None:
        # 25 hours from noon to noon.
>       assert nights_between(at("2025-10-25T11:00"), at("2025-10-26T12:00"), LISBON) == 1
E       assert 2 == 1
E        +  where 2 = nights_between(datetime(2025, 10, 25, 11, 0), datetime(2025, 10, 26, 12, 0), 'Europe/Lisbon')

tests/billing/test_nights.py:41: AssertionError"""
CLOCK_TEST = "tests/billing/test_nights.py::test_the_night_the_clock_goes_back_is_one_night"
GIT_LOG = """f41c09ad2 (HEAD -> main, origin/main) docs: say which header carries the signature
8be3370f1 billing: berth of the first night on the invoice
c95ad1e04 api: issued_after for invoices
51f7e2b88 release 3.4.1
0da6c4937 webhooks: show a secret once
e2b91f5c0 storage: keyset pagination for deliveries
77c0d38ae billing: count nights by elapsed time, faster for long stays
19be4f6d3 release 3.4.0
a3390c7e5 billing: crew above the included number
6d12f80b9 billing: shore power per night"""
SHOW = """commit 77c0d38ae
Author: I. Brandao <i.brandao@example.com>
Date:   Tue Sep 2 17:44:10 2025 +0100

    billing: count nights by elapsed time, faster for long stays

 quayline/billing/nights.py | 9 +++------
 1 file changed, 3 insertions(+), 6 deletions(-)"""


def tell(agent: CodingAgent) -> str:
    """Tell the first half; returns the hash of the fix, which the second half names again."""
    find_cause(agent)
    fix = fix_cause(agent)
    audit_tenants(agent)
    return fix


def find_cause(agent: CodingAgent) -> None:
    """The report, the rules, and the search for the cause."""
    agent.user(
        "Morning. Ticket QL-2217: the harbour master of Porto da Fonte (tenant tnt_7f3kq9) says that guests who slept "
        "over the night of 25 to 26 October were charged two nights. Please find out why and fix it.\n\nTwo rules "
        "before you start: never touch anything in migrations/, Henrike reviews those by hand. And do not contact "
        "production; staging is at " + BASE + " and holds a copy of last night."
    )
    agent.remember("Which ticket reported the double charge?", "QL-2217", "the commit and the changelog name it")
    agent.remember("On which port does the staging API listen?", "9443", "every later call to staging uses it")
    agent.remember(
        "Which folder must never be touched?", "never touch anything in migrations/", "a standing rule of the user"
    )
    agent.act(
        "I'll look at the layout and the history first.",
        agent.run("find quayline tests migrations -type f -exec ls -l {} +", outputs.list_files(agent.rng)),
        agent.run("git log --oneline -10", GIT_LOG),
        agent.run("git status --short --branch", "## main...origin/main"),
    )
    agent.act(
        "`77c0d38ae` changed how nights are counted, shortly before 3.4.1. Reading the code around it.",
        agent.run("git show --stat 77c0d38ae", SHOW),
        agent.read("quayline/billing/nights.py"),
    )
    agent.remember(
        "Which commit introduced the wrong count of nights?",
        "77c0d38ae",
        "named in the postmortem",
        len(agent.messages) - 2,
    )
    agent.act(None, agent.read("quayline/billing/invoice.py"), agent.read("tests/billing/test_nights.py"))
    agent.act("Who else counts nights?", agent.search(r"nights_between|SECONDS_PER_NIGHT"))
    agent.act(None, agent.read("quayline/billing/tariffs.py"), agent.read("config/settings.toml"))
    agent.remember("On which port is the dev database?", "5493", "the audit connects to it much later")
    agent.remember(
        "Through which proxy must deliveries leave?",
        "http://egress.internal.example.org:3199",
        "the retry worker needs it at the end",
    )
    agent.say(
        "Found it. `nights_between` divides elapsed seconds by 86,400 and rounds up. The night from 25 to 26 October "
        "had 25 hours in Europe/Lisbon, so a stay from noon to noon comes out as ceil(25 / 24) = 2 nights. Since "
        "77c0d38ae (2 September) every stay that spans the change and is close to a whole number of days is charged "
        "one night too many; in spring nobody would notice.\n\nI propose to count on the calendar of the harbour's time "
        "zone: local date of departure minus local date of arrival, at least one. That changes one more thing: a stay "
        "from 23:00 to 01:00 next day stays one night, and a stay of 26 hours from 23:00 becomes 2 (it was 2)."
    )
    agent.user(
        "Good, calendar nights it is. Write the failing test first. And from now on run the linter (ruff check and "
        "mypy) before every commit; CI bounced us twice last week because of that."
    )
    agent.remember(
        "What must run before every commit?", "from now on run the linter (ruff check and mypy)", "a standing rule"
    )


def fix_cause(agent: CodingAgent) -> str:
    """The failing test, the fix, the commit."""
    path = "tests/billing/test_nights.py"
    agent.act(None, agent.write(path, TEST_NIGHTS + NEW_TESTS))
    agent.act(
        "The new test must fail now.",
        agent.run("pytest -v", outputs.run_tests(agent.rng, {CLOCK_TEST: TRACE})),
    )
    agent.act("It fails as expected (2 instead of 1).", agent.write("quayline/billing/nights.py", NIGHTS_FIXED))
    agent.act(None, agent.run("pytest -v", outputs.run_tests(agent.rng, {}, (CLOCK_TEST,))))
    agent.act(
        "All green. Linter before the commit, as you asked.",
        agent.run("ruff check quayline tests", "All checks passed!"),
        agent.run("mypy quayline", "Success: no issues found in 48 source files"),
        agent.run("git diff", agent.shop.diff()),
    )
    agent.act(None, agent.read("quayline/billing/nights.py"))
    agent.act(None, agent.run("git switch -c fix/ql-2217-calendar-nights", "Switched to a new branch"))
    digest, call = agent.commit("fix/ql-2217-calendar-nights", "billing: count nights on the calendar (QL-2217)")
    agent.act(None, call)
    agent.remember("Which commit fixes the count of nights?", digest, "the release notes cite it")
    agent.say(f"Committed as {digest} on fix/ql-2217-calendar-nights. Shall I find out who was charged too much?")
    return digest


def audit_tenants(agent: CodingAgent) -> None:
    """Six tenants, page by page, and the list of wrong invoices."""
    agent.user(
        "Yes. Ask the staging API for every tenant in Europe/Lisbon, invoices issued after 2025-10-24. I need the "
        "numbers of the invoices that are wrong. Credit notes must go out by 2025-11-28, accounting (Oriane) closes "
        "the month then."
    )
    agent.remember("By when must the credit notes go out?", "2025-11-28", "the plan of the release depends on it")
    agent.remember("Who in accounting closes the month?", "Oriane", "she gets the list")
    rows = "\n".join(f"{tenant}\t{name}\tEurope/Lisbon" for tenant, (name, _) in TENANTS.items())
    agent.act(
        None,
        agent.run(
            "psql -h 127.0.0.1 -p 5493 -U quayline quayline_dev -Atc "
            "\"select id, name, timezone from tenants where timezone = 'Europe/Lisbon'\"",
            rows,
        ),
    )
    total = 0
    shared_id = "call_" + agent.draw(24)
    for number, (tenant, (name, doubled)) in enumerate(TENANTS.items()):
        page, wrong = outputs.list_invoices(agent.rng, tenant, doubled)
        url = f"{BASE}/v2/invoices?tenant={tenant}&issued_after=2025-10-24&limit=100"
        # Two calls in a row carry the same id: some clients number calls per request, not per session.
        call_id = shared_id if number in (3, 4) else None
        agent.act(None if number else "One tenant at a time.", agent.get(url, page), call_id=call_id)
        if number == 3:
            agent.remember(
                "Which is the first wrong invoice of Doca Azul (tnt_k91tva)?", wrong[0], "the credit note names it"
            )
            agent.wrong_invoice = wrong[0]
        total += len(wrong)
        agent.wrong.extend((invoice, name) for invoice in wrong)
    listed = "\n".join(f"- {invoice} ({name})" for invoice, name in agent.wrong)
    agent.say(
        f"{total} invoices charge one night too many, all with arrival on 25 October:\n{listed}\n\nCais Pequeno and "
        "Ilha das Cabras have none."
    )
    agent.user(
        "Thanks. Send that list to Oriane as a CSV; put it in reports/. Decision: we issue credit notes, we do not "
        "re-issue invoices. Series CN-77, so that the auditors can tell them apart."
    )
    agent.remember("Which series do the credit notes use?", "CN-77", "numbers are drawn from it at the end")
    agent.remember(
        "Credit notes or new invoices?", "we issue credit notes, we do not re-issue invoices", "a decision of the user"
    )
    csv = "invoice,harbour,reason\n" + "".join(f"{invoice},{name},QL-2217\n" for invoice, name in agent.wrong)
    agent.act(None, agent.write("reports/ql-2217-overcharged.csv", csv))
    agent.act(None, agent.read("quayline/billing/invoice.py"))
    agent.say(
        "reports/ql-2217-overcharged.csv is written. `credit_note` in billing/invoice.py already makes a note for the "
        "difference of two invoices, so only the series is missing; I will add it together with the release."
    )
