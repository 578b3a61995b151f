"""A reader who looks at the past of a session: whatever is read meanwhile, the tab shows what was asked for last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.server.api.interface import Access
from refold.server.auth import Caller

pytest.importorskip("nicegui", reason="nicegui is not installed; the page's tests need it")

from refold.web.conversation import ConversationView, Moment
from refold.web.data import Snapshot, read_roles, read_snapshot
from refold.web.pages.session import SessionTab


class SlowSource:
    """The data of a visit; a call for which ``gates`` has an event waits for it."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.gates: list[asyncio.Event] = []

    async def run(self, read: Callable[..., Any], *args: object) -> Any:
        found = read(self.access, *args)
        if self.gates:
            await self.gates.pop(0).wait()
        return found


class Shown:
    """The conversation of a tab, reduced to what it was told to show."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    async def freeze(self, seen: Snapshot, *, is_past: bool) -> None:
        self.lengths.append(len(seen.path.ids))


@pytest.fixture
def source(tmp_path: Path) -> Any:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        manager.append("s", [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}] * 4)
        application: Any = SimpleNamespace(manager=manager)
        yield SlowSource(Access(application, Caller("")))


async def test_of_two_requests_looked_at_in_a_row_the_last_one_stays(source: SlowSource) -> None:
    tab: Any = SessionTab.__new__(SessionTab)
    moments = [Moment(2e9, count, 10, 10) for count in (2, 4, 6)]
    tab.name, tab.source, tab.request, tab.raw, tab.talk = "s", source, 0, None, Shown()
    tab.tools = SimpleNamespace(timeline=SimpleNamespace(moments=moments, show=lambda _: None))
    tab.indicator = SimpleNamespace(show_request=lambda *_: None)
    tab._tell_panes = lambda: None
    late = asyncio.Event()
    source.gates.append(late)
    first = asyncio.create_task(tab.seek(1))
    await asyncio.sleep(0)
    await tab.seek(3)
    late.set()
    await first
    assert tab.talk.lengths == [6]


async def test_what_is_read_while_a_reader_goes_to_the_past_does_not_replace_it(source: SlowSource) -> None:
    manager = source.access.manager
    view: Any = ConversationView.__new__(ConversationView)
    view.name, view.source, view.role, view.roles, view.is_frozen = "s", source, "", {}, False
    view.seen = past = read_snapshot(source.access, "s")
    view._redraw = None  # Not to be called.
    manager.append("s", [{"role": "user", "content": "meanwhile"}])
    late = asyncio.Event()
    source.gates.append(late)
    following = asyncio.create_task(view.refresh())
    await asyncio.sleep(0)
    view.is_frozen = True
    late.set()
    assert not await following
    assert view.seen is past


async def test_a_reader_who_filters_by_role_and_comes_back_sees_what_came_meanwhile(source: SlowSource) -> None:
    view: Any = ConversationView.__new__(ConversationView)
    view.source, view.role, view.look, view.open_folds, view._props = source, "user", "said", set(), {}
    view.roles = read_roles(source.access, read_snapshot(source.access, "s"))
    view.update, view._show = lambda: None, AsyncMock()
    source.access.manager.append("s", [{"role": "user", "content": "meanwhile"}])
    await view.freeze(read_snapshot(source.access, "s"), is_past=False)
    assert len(view.outline) == 5
