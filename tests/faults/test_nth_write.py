"""The n-th write, flush or delete fails, for every n that is reached: the old state or the new one, never a mixture."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from refold.conversation.view import Fact
from refold.errors import LedgerError
from refold.ledger.records import Event
from refold.ledger.sqlite import SqliteLedger
from tests.faults.disk import NAME, Disk, faulty_disk
from tests.rigs.talk import NOW, SESSION, make_batch, make_fold, make_mask, send

CALLS_MAX = 500
TEXTS = ["a", "b", "c" * 9_000, "d"]


def tell_all(ledger: SqliteLedger) -> object:
    """Everything the port can tell about the session."""
    return (
        ledger.read_session(SESSION),
        ledger.read_path(SESSION),
        ledger.list_messages(SESSION),
        ledger.read_edits(SESSION, active_only=False),
        ledger.read_batches(SESSION),
        ledger.read_events(SESSION),
        ledger.read_facts(SESSION),
        sorted(row.id for row in ledger.list_sessions()),
        ledger.acquire_lease(SESSION, "me", seconds=1, now=NOW) if ledger.read_session(SESSION) else None,
    )


def append(ledger: SqliteLedger) -> None:
    send(ledger, [*TEXTS[1:], "x" * 20_000, *[f"more {number}" for number in range(40)]])


def compress(ledger: SqliteLedger) -> None:
    ids = ledger.read_path(SESSION).ids
    masks = [make_mask(message_id, "y" * 3_000) for message_id in ids[2:]]
    batch = make_batch(make_fold(ids[:2], "new"), *masks, name="b2", expects=[make_fold(ids[:2]).id], facts=[
        Fact("key", f"fact {number}") for number in range(30)])  # fmt: skip
    assert ledger.commit(SESSION, batch, now=NOW, events=[Event("compressed", NOW)])


def undo(ledger: SqliteLedger) -> None:
    fold = make_fold(ledger.read_path(SESSION).ids[:2])
    assert ledger.switch_edits(SESSION, [fold.id], on=False, now=NOW, event=Event("undone", NOW)) == 1


def forget(ledger: SqliteLedger) -> None:
    assert ledger.forget(SESSION, ledger.read_path(SESSION).ids[1:3], NOW) == 2


def delete(ledger: SqliteLedger) -> None:
    assert ledger.delete_session(SESSION)


def put(ledger: SqliteLedger) -> None:
    whole = ledger.read_whole(SESSION)
    assert whole is not None
    assert ledger.put_whole(replace(whole, row=replace(whole.row, id="copy")), NOW)


def start(ledger: SqliteLedger) -> None:
    send(ledger, TEXTS)


QUICK_CASES = ((append, False), (compress, True))
CASES = [
    pytest.param(
        change,
        is_dead_after,
        id=f"{change.__name__}-{'for good' if is_dead_after else 'once'}",
        marks=() if (change, is_dead_after) in QUICK_CASES else pytest.mark.slow,
    )
    for change in (append, compress, undo, forget, delete, put)
    for is_dead_after in (False, True)
]


@pytest.fixture(scope="module")
def disk() -> Iterator[Disk]:
    with faulty_disk() as disk:
        yield disk


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A ledger with four messages, two of them folded."""
    ledger = SqliteLedger(tmp_path / "template.db")
    ids = send(ledger, TEXTS)
    assert ledger.commit(SESSION, make_batch(make_fold(ids[:2]), facts=[Fact("todo", "x")]), now=NOW)
    ledger.close()
    return tmp_path / "template.db"


def run_with_fault(file: Path, change: Callable[[SqliteLedger], None]) -> LedgerError | None:
    ledger = SqliteLedger(file, synchronous="full", busy_timeout_s=0.2, vfs=NAME)
    error = None
    try:
        change(ledger)
    except LedgerError as raised:
        error = raised
    with contextlib.suppress(LedgerError):
        ledger.close()
    return error


def tell_state(file: Path) -> object:
    """The content of a ledger opened on a sound disk, after verify found nothing."""
    ledger = SqliteLedger(file)
    assert ledger.verify() == []
    state = tell_all(ledger)
    ledger.close()
    return state


@pytest.mark.parametrize(("change", "is_dead_after"), CASES)
def test_whatever_write_fails_a_change_is_whole_or_did_not_happen(
    change: Callable[[SqliteLedger], None], is_dead_after: bool, disk: Disk, template: Path, tmp_path: Path
) -> None:
    def copy(name: str) -> Path:
        return Path(shutil.copy(template, tmp_path / name))

    old = tell_state(copy("old.db"))
    disk.plan(0, is_dead_after=False)
    assert run_with_fault(copy("new.db"), change) is None
    new = tell_state(tmp_path / "new.db")
    assert old != new
    seen = {"old": 0, "new": 0}
    for fail_at in range(1, CALLS_MAX):
        file = copy(f"{fail_at}.db")
        disk.plan(fail_at, is_dead_after=is_dead_after, error=(apsw.IOError, apsw.FullError)[fail_at % 2])
        error = run_with_fault(file, change)
        if not disk.was_reached:
            break
        state = tell_state(file)
        assert state in (old, new), f"a mixture after call {fail_at}"
        assert error is not None or state == new, f"call {fail_at} failed unnoticed"
        seen["new" if state == new else "old"] += 1
    else:
        pytest.fail(f"more than {CALLS_MAX} calls")
    assert seen["old"] >= 2
    assert seen["new"] >= 1


@pytest.mark.parametrize(
    "is_dead_after", [pytest.param(False, id="once"), pytest.param(True, id="for good", marks=pytest.mark.slow)]
)
def test_whatever_write_fails_while_a_ledger_is_made_it_can_be_made_again(
    is_dead_after: bool, disk: Disk, tmp_path: Path
) -> None:
    for fail_at in range(1, CALLS_MAX):
        file = tmp_path / f"{fail_at}.db"
        disk.plan(fail_at, is_dead_after=is_dead_after)
        run_with_fault(file, start)
        if not disk.was_reached:
            break
        ledger = SqliteLedger(file)
        assert ledger.verify() == []
        assert len(ledger.list_messages(SESSION)) in (0, len(TEXTS))
        start(ledger)
        assert len(ledger.read_path(SESSION).ids) == len(TEXTS)
        ledger.close()
    else:
        pytest.fail(f"more than {CALLS_MAX} calls")
    assert fail_at > 10


def test_a_ledger_continues_after_a_write_that_failed_once(disk: Disk, template: Path) -> None:
    disk.plan(0, is_dead_after=False)
    ledger = SqliteLedger(template, synchronous="full", vfs=NAME)
    before = tell_all(ledger)
    disk.plan(2, is_dead_after=False, error=apsw.FullError)
    with pytest.raises(LedgerError, match="full"):
        append(ledger)
    assert tell_all(ledger) == before
    append(ledger)
    assert ledger.verify() == []
    assert len(ledger.read_path(SESSION).ids) == 44
    ledger.close()
