"""The strip on the sample session: play on, step by step, until it has folded before the reader's eyes.

It is there only while the sample has more to say and nobody has said anything else in it. Playing ends with the tab.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from nicegui import ui

from refold.ledger.records import SessionRow
from refold.server.api.interface import Access
from refold.web.sample import WINDOW_TOKENS, SamplePlayer, Step, can_play
from refold.web.shell import button, notify, text
from refold.web.visit import find_visit, say

PAUSE_S = 0.9


class SampleBar:
    """The strip in one tab; ``on_step`` lets the view catch up."""

    def __init__(self, row: SessionRow, on_step: Callable[[], Awaitable[object]]) -> None:
        self.source = find_visit().source
        self.on_step = on_step
        self.client = ui.context.client
        self.is_playing = False
        self.bar = ui.element("div").classes("sample-bar").props("role=note")
        self.bar.set_visibility(can_play(row))
        with self.bar:
            text("span", say("session.sample_why", window=WINDOW_TOKENS), "soft")
            self.play = button(say("session.sample_play"), self._play, kind="small primary", icon_name="play")
            self.pause = button(say("session.sample_pause"), self._pause, kind="small", icon_name="pause")
        self.pause.set_visibility(False)

    def _pause(self) -> None:
        self.is_playing = False

    def _show(self, *, is_playing: bool) -> None:
        self.is_playing = is_playing
        self.play.set_visibility(not is_playing)
        self.pause.set_visibility(is_playing)

    def _goes_on(self) -> bool:
        return self.is_playing and self.client.has_socket_connection

    async def _play(self) -> None:
        if self.is_playing:
            return
        self._show(is_playing=True)
        try:
            player = await self.source.run(_open_player)
            while self._goes_on():
                step = await self.source.run(_play_step, player)
                await self.on_step()
                if step is None or step.is_last:
                    self.bar.set_visibility(False)
                    break
                if step.folded_from:
                    notify(say("session.sample_folded", before=step.folded_from, after=step.folded_to))
                await asyncio.sleep(PAUSE_S)
        finally:
            self._show(is_playing=False)


def _open_player(access: Access) -> SamplePlayer:
    return SamplePlayer(access.manager)


def _play_step(_: Access, player: SamplePlayer) -> Step | None:
    return player.play_step()
