"""The connection to the server breaks at any byte of any change: the old record or the new one, and work continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refold.errors import LedgerError
from refold.ledger.sql.ledger import Ledger
from tests.faults import test_nth_write as nth
from tests.faults.cutting import CuttingProxy
from tests.rigs.postgres import own_server, schema_of
from tests.rigs.talk import NOW, SESSION, commit, make_fold, read_texts, send

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from refold.ledger.postgres import PostgresLedger

CHANGES = [nth.append, nth.compress, nth.undo, nth.forget, nth.delete, nth.put]
UNKNOWN = "it is not known whether it was stored"


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy(own_server().port) as proxy:
        yield proxy


def tell_all(ledger: Ledger) -> object:
    """Everything the port can tell about the session, but the numbers of events, which may leave some out."""
    *told, _ = nth.tell_all(ledger)  # type: ignore[arg-type, misc]
    ledger.release_lease(SESSION, "me")
    return [[replace(event, id=0) for event in one] if at == 5 else one for at, one in enumerate(told)]


class Bench:
    """Records that begin alike, each in a schema of its own; seen directly, or through a wire that may break."""

    def __init__(self, folder: Path, proxy: CuttingProxy) -> None:
        self._folder, self._proxy, self._count = folder, proxy, 0

    def make(self) -> tuple[PostgresLedger, PostgresLedger]:
        """A record with four messages, two of them folded: the direct handle, and the one over the wire, connected."""
        from refold.ledger.postgres import PostgresLedger

        self._count += 1
        server, schema = own_server(), schema_of(self._folder / str(self._count))
        direct = PostgresLedger(server.url(), schema=schema)
        ids = send(direct, nth.TEXTS)
        assert commit(direct, make_fold(ids[:2]))
        wired = server.url(password=server.password).replace(f":{server.port}/", f":{self._proxy.port}/")
        over_wire = PostgresLedger(wired, schema=schema, lock_timeout_s=5)
        over_wire.read_session(SESSION)
        return direct, over_wire


def cut_everywhere(tmp_path: Path, proxy: CuttingProxy, change: Callable[..., None], way: str, cuts: int) -> list[str]:
    """Cut at so many places of a change, spread over all its bytes; return what became of each."""
    bench = Bench(tmp_path, proxy)
    direct, over_wire = bench.make()
    before, passed = tell_all(direct), proxy.passed[way]
    change(over_wire)
    total = proxy.passed[way] - passed
    after = tell_all(direct)
    assert before != after
    over_wire.close()
    ends: list[str] = []
    for number in range(cuts):
        direct, over_wire = bench.make()
        proxy.arm(way, max(1, total * number // cuts))
        try:
            change(over_wire)
            ends.append("done")
            assert tell_all(direct) == after
        except LedgerError as error:
            ends.append("unknown" if UNKNOWN in str(error) else "refused")
            assert tell_all(direct) in ((before, after) if UNKNOWN in str(error) else (before,))
        assert proxy.has_cut
        assert direct.verify() == []
        assert over_wire.read_session("nobody") is None  # The handle goes on as if nothing had been.
        direct.close()
        over_wire.close()
    return ends


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_wire_that_breaks_leaves_the_old_record_or_the_new_one(
    tmp_path: Path, proxy: CuttingProxy, change: Callable[..., None], way: str
) -> None:
    ends = cut_everywhere(tmp_path, proxy, change, way, 5)
    assert "done" in ends
    assert "refused" not in ends


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_wire_that_breaks_at_forty_places(
    tmp_path: Path, proxy: CuttingProxy, change: Callable[..., None], way: str
) -> None:
    ends = cut_everywhere(tmp_path, proxy, change, way, 40)
    assert ends.count("done") > 10
    assert "refused" not in ends


def test_a_wire_that_breaks_while_a_history_is_sent_loses_none_of_it(tmp_path: Path, proxy: CuttingProxy) -> None:
    direct, over_wire = Bench(tmp_path, proxy).make()
    texts = list(nth.TEXTS)
    for number in range(20):
        texts.append(f"{number} " + "x" * (number * 211 % 900))
        proxy.arm("up" if number % 2 else "down", 40 + number * 97 % 700)
        try:
            send(over_wire, texts, now=NOW + number)
        except LedgerError as error:
            assert UNKNOWN in str(error)
            send(over_wire, texts, now=NOW + number)
        assert read_texts(direct) == texts
    assert direct.verify() == []
    direct.close()
    over_wire.close()
