"""The state of the work in a stored session, read from its originals: what is new costs, the rest is remembered."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from refold.manager.session import parse_stored
from refold.manager.store import Keeper
from refold.reading.advance import advance, make_reader
from refold.reading.state import State

STATES_MAX = 64
PAGE_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class _KnownState:
    """A state, the messages that it was read from, and those of them that had been forgotten."""

    ids: tuple[str, ...]
    forgotten: tuple[str, ...]
    state: State


class SessionStates:
    """States of the sessions that were asked for last. Safe to use from any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _KnownState] = OrderedDict()
        self._lock = Lock()

    def read(self, keeper: Keeper, session_id: str) -> State:
        """Return the state after the newest message of a session; SessionNotFound if there is none."""
        row = keeper.need_row(session_id)
        ids = keeper.ledger.read_path(session_id).ids
        forgotten = tuple(keeper.ledger.find_forgotten(session_id))
        with self._lock:
            known = self._known.pop(session_id, None)
        # A message that was forgotten must leave the state: it is read again without it.
        is_same = known is not None and known.forgotten == forgotten and ids[: len(known.ids)] == known.ids
        state = known.state if known is not None and is_same else State()
        lens = keeper.make_lens(row)
        reader = make_reader(lens.is_observation)
        for start in range(state.messages, len(ids), PAGE_MESSAGES):
            stored = keeper.ledger.read_messages(session_id, ids[start : start + PAGE_MESSAGES])
            state = advance(state, (parse_stored(message, row, lens) for message in stored), reader)
        with self._lock:
            self._known[session_id] = _KnownState(ids, forgotten, state)
            while len(self._known) > STATES_MAX:
                self._known.popitem(last=False)
        return state

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session."""
        with self._lock:
            self._known.pop(session_id, None)
