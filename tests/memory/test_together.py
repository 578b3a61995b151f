"""Many sessions that fold at once write their page and their summaries together, and none of them is lost."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from refold.errors import LedgerError
from refold.memory import MarkdownSync, WriteTogether


def test_one_writes_for_all_that_wait() -> None:
    batches: list[list[int]] = []
    begun, gate = threading.Event(), threading.Event()

    def write_all(wishes: Sequence[int]) -> None:
        batches.append(list(wishes))
        begun.set()
        assert gate.wait(60)

    together = WriteTogether(write_all)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(together.write, 0)
        assert begun.wait(60)
        others = [pool.submit(together.write, number) for number in range(1, 6)]
        while len(together._waiting) < 5:
            threading.Event().wait(0.01)
        gate.set()
        for one in (first, *others):
            one.result(60)
    assert batches[0] == [0]
    assert sorted(batches[1]) == [1, 2, 3, 4, 5]
    assert len(batches) == 2


def test_an_interrupted_write_leaves_nobody_waiting() -> None:
    begun, gate = threading.Event(), threading.Event()

    def write_all(wishes: Sequence[int]) -> None:
        if 1 in wishes:
            raise KeyboardInterrupt
        begun.set()
        assert gate.wait(60)

    together = WriteTogether(write_all)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(together.write, 0)
        assert begun.wait(60)
        others = [pool.submit(together.write, number) for number in (1, 2)]
        while len(together._waiting) < 2:
            threading.Event().wait(0.01)
        gate.set()
        first.result(60)
        assert [type(one.exception(60)) for one in others] == [KeyboardInterrupt, KeyboardInterrupt]


def test_each_of_them_hears_of_a_failure_and_the_next_one_writes_again() -> None:
    failing = [LedgerError("no room")]

    def write_all(_: Sequence[int]) -> None:
        if failing:
            raise failing.pop()

    together = WriteTogether(write_all)
    with pytest.raises(LedgerError, match="no room"):
        together.write(1)
    together.write(2)


def test_every_entry_is_on_the_page_once_and_in_its_own_section(tmp_path: Path) -> None:
    pages = MarkdownSync(tmp_path)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda at: pages.append(f"2026-02-{1 + at % 2:02}", f"## Entry {at}\n\ntext {at}"), range(60)))
    for day in (0, 1):
        page = pages.read(f"2026-02-{1 + day:02}") or ""
        found = [line for line in page.splitlines() if line.startswith("## Entry")]
        assert sorted(found) == sorted(f"## Entry {at}" for at in range(60) if at % 2 == day)
        assert page.endswith("\n")
        assert "\n\n\n" not in page
