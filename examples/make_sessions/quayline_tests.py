"""Files that the coding agent writes for the retries of Quayline. Only text: nothing here is imported or run."""

TEST_RETRY = """import random
from datetime import datetime, timedelta, timezone

import pytest

from quayline.webhooks.retry import ATTEMPTS_MAX, DELAY_MAX_S, FIRST_DELAY_S, decide

NOW = datetime(2025, 11, 10, 9, 0, tzinfo=timezone.utc)


@pytest.fixture
def rng() -> random.Random:
    return random.Random(11)


def test_no_answer_is_tried_again(rng: random.Random) -> None:
    decision = decide(1, None, NOW, rng)
    assert not decision.is_dead
    assert decision.reason == "no answer"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_an_answer_that_will_not_change_is_final(rng: random.Random, status: int) -> None:
    assert decide(1, status, NOW, rng).is_dead


def test_delays_stay_within_the_jitter(rng: random.Random) -> None:
    for attempt in range(1, ATTEMPTS_MAX):
        delay = min(FIRST_DELAY_S * 2 ** (attempt - 1), DELAY_MAX_S)
        decision = decide(attempt, 503, NOW, rng)
        assert decision.again_at is not None
        seconds = (decision.again_at - NOW) / timedelta(seconds=1)
        assert delay * 0.8 <= seconds
        assert seconds <= delay * 1.2


def test_the_last_attempt_is_followed_by_giving_up(rng: random.Random) -> None:
    decision = decide(ATTEMPTS_MAX, 503, NOW, rng)
    assert decision.is_dead
    assert "gave up after 7 attempts" == decision.reason
"""

WORKER = '''"""Send due deliveries, one batch at a time. Any number of workers may run; each claims its own rows."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime

from quayline.settings import Settings
from quayline.storage import deliveries as store
from quayline.storage.db import Connection
from quayline.webhooks.retry import decide
from quayline.webhooks.sender import Sender

log = logging.getLogger("quayline.webhooks")
BATCH = 50


class Worker:
    def __init__(
        self, sender: Sender, clock: Callable[[], datetime], settings: Settings, rng: random.Random
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._rng = rng

    def run_once(self, db: Connection) -> int:
        """Send one batch; returns how many were sent, so that a caller may sleep when it was none."""
        due = store.claim_due(db, self._clock(), BATCH)
        for row in due:
            self._send(db, row)
        return len(due)

    def _send(self, db: Connection, row: dict[str, object]) -> None:
        attempt = int(str(row["attempt"])) + 1
        status = self._sender.send_stored(row)
        if status is not None and 200 <= status < 300:
            store.mark_delivered(db, row["id"], attempt, status)
            return
        decision = decide(attempt, status, self._clock(), self._rng)
        if decision.is_dead:
            log.error("delivery %s is dead: %s code=E5031", row["id"], decision.reason)
            store.mark_dead(db, row["id"], attempt, status)
        else:
            store.schedule(db, row["id"], attempt, status, decision.again_at)
'''

SENDER_LOOP = '''    def send_stored(self, row: dict[str, object]) -> int | None:
        """Send a stored delivery once; the status of the answer, or None when there was none."""
        endpoint = self._by_id.get(str(row["endpoint_id"]))
        if endpoint is None or not endpoint.active:
            return 410
        return self._post_status(endpoint, self._load_event(str(row["event_id"])))

    def deliver(self, event: Event) -> dict[str, bool]:'''

TEST_DELIVERIES = """from tests.api.conftest import Client, ids, seed_deliveries


def test_newest_first(client: Client) -> None:
    seed_deliveries(client.db, 3)
    rows = client.get("/v2/deliveries").json()["data"]
    assert [row["id"] for row in rows] == ["dlv_000003", "dlv_000002", "dlv_000001"]


def test_only_the_own_tenant(client: Client) -> None:
    seed_deliveries(client.db, 3, tenant="tnt_other")
    assert client.get("/v2/deliveries").json()["data"] == []


def test_unknown_state(client: Client) -> None:
    answer = client.get("/v2/deliveries?state=lost")
    assert (answer.status, answer.json()["code"]) == (422, "E4219")


def test_a_cursor_we_did_not_make(client: Client) -> None:
    answer = client.get("/v2/deliveries?cursor=bm9wZQ")
    assert (answer.status, answer.json()["code"]) == (422, "E4220")


def test_a_page_never_repeats_a_delivery(client: Client) -> None:
    seed_deliveries(client.db, 120)
    first = client.get("/v2/deliveries?limit=50").json()
    second = client.get(f"/v2/deliveries?limit=50&cursor={first['next_cursor']}").json()
    assert not ids(first) & ids(second)


def test_only_a_dead_delivery_is_sent_again(client: Client) -> None:
    seed_deliveries(client.db, 1, state="delivered")
    answer = client.post("/v2/deliveries/dlv_000001/resend")
    assert (answer.status, answer.json()["code"]) == (409, "E4221")
"""
