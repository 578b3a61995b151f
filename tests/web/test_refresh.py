"""The list of sessions while it reads: answers that come late, and sessions that go away meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nicegui")
from refold.server.api.interface import NotFound
from refold.web.data import Listing
from refold.web.pages import sessions


def test_a_refresh_that_ends_late_does_not_bring_a_deleted_row_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = Listing((), 1, True), Listing((), 0, False)
    shown: list[Listing] = []

    async def run() -> None:
        answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
        source = SimpleNamespace(application=SimpleNamespace(page=None), run=lambda *_: waiting.pop(0))
        waiting = list(answers)
        monkeypatch.setattr(sessions, "find_visit", lambda: SimpleNamespace(source=source))
        tab = sessions.SessionList("")
        monkeypatch.setattr(tab, "_show", shown.append)
        early, late = asyncio.create_task(tab._refresh()), asyncio.create_task(tab._refresh())
        await asyncio.sleep(0)
        answers[1].set_result(after)
        await late
        answers[0].set_result(before)
        await early

    asyncio.run(run())
    assert shown == [after]


def test_a_session_that_goes_away_leaves_the_amounts_of_the_others() -> None:
    async def read(_: object, name: str) -> float:
        if name == "gone":
            raise NotFound("session {name} is not there", name=name)
        return 1.5

    shown: list[float | None] = []
    table: Any = SimpleNamespace(owner=SimpleNamespace(source=SimpleNamespace(run=read)))
    lines: Any = [
        SimpleNamespace(
            element=SimpleNamespace(is_deleted=False), one=SimpleNamespace(name=name), show_saved=shown.append
        )
        for name in ("gone", "here")
    ]
    asyncio.run(sessions.SessionTable._fill_saved(table, lines))
    assert shown == [1.5]
