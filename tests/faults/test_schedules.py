"""Random schedules of work and faults over the ledger's port, replayable by their seed.

Every read and every write may fail before it is done, fail after it was done, or be the moment at which the process is
killed. Managers are replaced by new ones, two of them take turns, and calls that failed are made again or not. After
every call that succeeds the laws hold; at the end nothing that was answered is lost and ``verify`` finds nothing.

To replay a seed: ``REFOLD_SEED=123 pytest tests/faults/test_schedules.py``. A seed that ever failed goes to ``KEPT``.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.errors import LedgerError, RefoldError
from refold.ledger.records import Extension
from refold.ledger.sqlite import SqliteLedger
from refold.testing import find_violations
from tests.rigs.effort import up_to

# Seeds that once failed, for ever.
KEPT: tuple[int, ...] = (253073695, 872754083)
SCHEDULES = 100
STEPS = 14
FAILS, FAILS_AFTER, KILLS = 0.04, 0.02, 0.015
CONFIG = CompressionConfig(window=1_600, reserve=200, recall={"inject": "off"})


class Killed(BaseException):
    """The process ends here: nothing after this point runs."""


class FaultyLedger(SqliteLedger):
    """A real ledger whose calls fail by chance; after a kill no call reaches the file any more."""

    def __init__(self, path: Path, chance: Random) -> None:
        super().__init__(path, synchronous="off")
        self._chance = chance
        self.is_dead = False
        self.is_calm = False

    def _read(self, work: Callable[[Any], Any]) -> Any:
        return self._call(lambda: super(FaultyLedger, self)._read(work))

    def _change(self, work: Callable[[Any], Any]) -> Any:
        return self._call(lambda: super(FaultyLedger, self)._change(work))

    def extend(self, extensions: Sequence[Extension], *, may_wait: bool = False) -> Any:
        return self._call(lambda: super(FaultyLedger, self).extend(extensions, may_wait=may_wait))

    def _call(self, work: Callable[[], Any]) -> Any:
        is_main = threading.current_thread() is threading.main_thread()
        if self.is_dead:
            raise Killed if is_main else LedgerError("the process was killed")
        if self.is_calm or not is_main:  # Threads are not scheduled by the seed, so their calls take no chances.
            return work()
        drawn = self._chance.random()
        if drawn < FAILS:
            raise LedgerError("a fault before the call")
        if drawn < FAILS + KILLS:
            self._kill()
        result = work()
        drawn = self._chance.random()
        if drawn < FAILS_AFTER:
            raise LedgerError("a fault after the call: it took place, but nobody knows")
        if drawn < FAILS_AFTER + KILLS:
            self._kill()
        return result

    def _kill(self) -> None:
        self.is_dead = True
        raise Killed


class Schedule:
    """One session under one seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = Random(seed)
        self.path = folder / "ledger.db"
        self.folder = folder
        self.managers: dict[int, ContextCompressionManager] = {}
        self.history: list[dict[str, Any]] = []
        self.answered = 0
        self.done = 0

    def open(self, which: int) -> ContextCompressionManager:
        manager = self.managers.get(which)
        if manager is None:
            manager = ContextCompressionManager(CONFIG, self.folder, ledger=FaultyLedger(self.path, self.chance))
            manager.pages = "off"
            manager._keeper.leases.seconds = 0.05  # A lease of a killed process expires before a test does.
            self.managers[which] = manager
        return manager

    def run(self) -> None:
        for _ in range(STEPS):
            which = self.chance.randrange(2)
            try:
                self.step(self.open(which))
                self.done += 1
            except RefoldError:
                pass  # The caller was told. It goes on with whatever comes next.
            except Killed:
                self.managers.pop(which)
        self.check_end()

    def step(self, manager: ContextCompressionManager) -> None:
        kind = self.chance.choice(("send", "send", "send", "send", "compress", "undo", "redo", "usage", "close"))
        if kind == "send" or not self.answered:
            self.send(manager)
        elif kind == "compress":
            manager.compress("s")
        elif kind in ("undo", "redo"):
            getattr(manager, kind)("s")
        elif kind == "usage":
            manager.observe_usage("s", self.chance.randrange(100, 1_500))
        else:
            manager.close()

    def send(self, manager: ContextCompressionManager) -> None:
        """Send the whole history, as clients do: the newest answer, and a new question or a tool's result."""
        self.history += self.make_step(len(self.history))
        prepared = manager.prepare_context_sync("s", self.history)
        self.answered = len(self.history)
        assert prepared.report is not None
        assert prepared.total_tokens <= prepared.report.budget.hard, "L1"
        assert find_violations("openai-chat", prepared.messages) == [], "L2"
        assert prepared.messages[-1] is self.history[-1], "L8, L11"
        whole = {json.dumps(one) for one in self.history}
        covered = {one for edit in prepared.edits for one in edit.covers}
        changed = [one for one in prepared.messages if json.dumps(one) not in whole]
        assert not changed or covered, "L3: only edits change what is sent"

    def make_step(self, at: int) -> list[dict[str, Any]]:
        words = " ".join(f"w{at}x{self.chance.randrange(1_000)}" for _ in range(self.chance.choice((5, 30, 80))))
        if not at or self.chance.random() < 0.4:
            asked = {"role": "user", "content": f"Question {at}: {words}"}
            return [asked] if not at else [{"role": "assistant", "content": f"Answer {at}. {words}"}, asked]
        call = {"id": f"c{at}", "type": "function", "function": {"name": "read", "arguments": f'{{"at": {at}}}'}}
        return [
            {"role": "assistant", "content": f"Step {at}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{at}", "content": words},
        ]

    def check_end(self) -> None:
        """Nothing that was answered is lost, and a new process agrees with the file."""
        for manager in self.managers.values():
            manager.ledger.is_calm = True  # type: ignore[attr-defined]
            manager.close()
        with ContextCompressionManager(CONFIG, self.folder, ledger=SqliteLedger(self.path)) as manager:
            manager.pages = "off"
            if not self.answered:
                return
            stored = [json.loads(one.raw) for one in manager.ledger.read_messages("s")]
            assert stored[: self.answered] == self.history[: self.answered], "an answered request was lost"
            prepared = manager.prepare_context_sync("s", self.history)
            assert prepared.report is not None
            assert prepared.total_tokens <= prepared.report.budget.hard
            again = manager.prepare_context_sync("s", self.history)
            assert again.report is not None
            assert again.messages == prepared.messages or again.report.stages, "L6: a change has a reason"
            # The marker of a process that was killed with its log is told once; the processes here share one.
            assert [one for one in manager.verify() if "write-ahead log" not in one.what] == []


def run_seed(seed: int, folder: Path) -> int:
    folder.mkdir()
    schedule = Schedule(seed, folder)
    try:
        schedule.run()
    except BaseException as error:
        error.add_note(f"replay with REFOLD_SEED={seed}")
        raise
    return schedule.done


def find_seeds() -> Sequence[int]:
    given = os.environ.get("REFOLD_SEED")
    return [int(given)] if given else [*KEPT, *range(up_to(SCHEDULES))]


def test_the_laws_hold_whatever_fails_and_whenever_the_process_is_killed(tmp_path: Path) -> None:
    assert sum(run_seed(seed, tmp_path / str(seed)) for seed in find_seeds())


@pytest.mark.slow
def test_they_hold_in_thousands_of_schedules(tmp_path: Path) -> None:
    first = Random().randrange(1_000_000, 2_000_000_000)
    for seed in range(first, first + 3_000):
        run_seed(seed, tmp_path / str(seed))


def test_a_seed_gives_the_same_schedule_again(tmp_path: Path) -> None:
    done = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        schedule = Schedule(7, tmp_path / str(number))
        schedule.run()
        done.append((schedule.done, schedule.answered, json.dumps(schedule.history)))
    assert done[0] == done[1]
