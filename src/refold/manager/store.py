"""Per-manager state: configuration, ledger, and an LRU cache of loaded sessions, each behind its own lock.

Another process may change a session at any time, so every use reads the session's row first and reloads the session if
the row no longer matches what is in memory.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from refold.budget import Budget, Carry
from refold.compressor import ContextCompressor
from refold.config import CompressionConfig
from refold.conversation import because
from refold.conversation.message import Message, choose_observations, frozen
from refold.conversation.view import Lens
from refold.errors import LedgerError, SessionBusy, SessionNotFound
from refold.ledger.records import SessionRow, format_of, merge_settings
from refold.ledger.sql.ledger import Ledger
from refold.llm.summariser import Summariser
from refold.manager.flow import Flow, Heartbeat, Pause, run_flow
from refold.manager.history import Prints
from refold.manager.notices import Listeners, Notice, make_event
from refold.manager.recall_injection import RecallAccess
from refold.manager.session import (
    WINDOWS,
    OpenSession,
    StoredCarry,
    load_session,
    read_calibration,
    read_window,
)
from refold.offload import OffloadFolder
from refold.recall.upkeep import ReadAhead
from refold.stages.fold import Fold
from refold.stages.offload import Offload
from refold.stages.stage import Stage, acts_on_arrival
from refold.tokens import Counter, counter_for, model_info
from refold.tokens.counter import REPLY_TOKENS

SESSIONS_OPEN_MAX = 512
# Tokens in the views of all open sessions: about 15 bytes of memory each.
TOKENS_OPEN_MAX = 8_000_000
COUNTERS_MAX = BUDGETS_MAX = 256
MARGIN_STEPS = 200
LOCK_WAIT_S = 300.0
LEASE_S = 6.0


@frozen
class Sent:
    """The context that was prepared last, which the next usage report is about."""

    model: str
    tokens: int
    marker: str
    messages: int


@dataclass(slots=True)
class Slot:
    """The place of one open session, with values that are worth keeping only while the process lives."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    session: OpenSession | None = None
    stale: OpenSession | None = None  # The session before another process changed it: most of it is still true.
    tokens: int = 0
    carry: Carry = Carry()
    sent: Sent | None = None
    unsent: set[str] = field(default_factory=set)
    prints: Prints = field(default_factory=Prints)
    prepared_at: float = 0.0
    reported: str = ""  # The last logged reason for doing nothing: each is logged once.
    idle: tuple[object, ...] = ()  # The view in which nothing could be compressed.
    fixed: tuple[object, ...] = ()
    fixed_tokens: int = REPLY_TOKENS
    system_tokens: int = 0
    read_to: int = 0  # So many items of the view have been read ahead.


class Keeper:
    """State shared by all flows of one manager: settings, ledger, loaded sessions, listeners, recall."""

    def __init__(
        self,
        config: CompressionConfig,
        workspace: Path,
        ledger: Ledger,
        *,
        summariser: Summariser,
        find_compressor: Callable[[], ContextCompressor],
        is_observation: Callable[[Any], bool] | None,
    ) -> None:
        self.configure(config, summariser)
        self.workspace = workspace
        self.ledger = ledger
        self.listeners = Listeners()
        self.clock: Callable[[], float] = time.time
        self.chance: Callable[[], float] = random.random
        self.sessions_open_max = SESSIONS_OPEN_MAX
        self.tokens_open_max = TOKENS_OPEN_MAX
        self._tokens_open = 0
        self.lease_s = LEASE_S
        self.heartbeat = Heartbeat(self.prolong, lambda: self.lease_s)
        self._slots: OrderedDict[str, Slot] = OrderedDict()
        self._guard = threading.Lock()
        self.recall = RecallAccess(self)
        self.read_ahead = ReadAhead()
        self.find_compressor = find_compressor
        self.is_observation = is_observation

    def configure(self, config: CompressionConfig, summariser: Summariser) -> None:
        """Use these settings from the next request on."""
        self.config, self.summariser = config, summariser
        # The counts that trigger a compression, and the stages that render a message on arrival.
        self.thresholds, self.arrival_stages = config.thresholds(), config.arrival_stages()
        self.folds = any(isinstance(stage, Fold) for stage in config.stages())
        self._counters: dict[tuple[str, tuple[int, ...]], Counter] = {}
        self._budgets: dict[tuple[object, ...], Budget] = {}

    def prolong(self, session_id: str, owner: str) -> bool:
        """Take or renew the lease on a session; False if another owner holds it."""
        return self.ledger.acquire_lease(session_id, owner, seconds=self.lease_s, now=self.clock())

    def hold(self, session_id: str) -> Flow[Slot]:
        """Wait until this process may use a session; the caller returns the slot with ``let_go``."""
        with self._guard:
            slot = self._slots.setdefault(session_id, Slot())
            self._slots.move_to_end(session_id)
            slot.users += 1
        waited, step = 0.0, 0.001
        try:
            while not slot.lock.acquire(blocking=False):
                if waited > LOCK_WAIT_S:
                    raise SessionBusy(
                        "session {session_id!r} has been in use for more than {lock_wait_s:g} s",
                        session_id=session_id,
                        lock_wait_s=LOCK_WAIT_S,
                    )
                yield Pause(step)
                waited, step = waited + step, min(0.05, step * 1.5)
        except BaseException:
            self._leave(slot)
            raise
        return slot

    def hold_now(self, session_id: str) -> Slot | None:
        """Hold a session that is in memory and not in use; None if that is not possible at once."""
        with self._guard:
            slot = self._slots.get(session_id)
            if slot is None or slot.session is None or not slot.lock.acquire(blocking=False):
                return None
            self._slots.move_to_end(session_id)
            slot.users += 1
            return slot

    def let_go(self, slot: Slot) -> None:
        """Return a session's slot."""
        slot.lock.release()
        self._leave(slot)

    def _leave(self, slot: Slot) -> None:
        with self._guard:
            slot.users -= 1
            tokens = slot.session.item_tokens if slot.session is not None else 0
            self._tokens_open += tokens - slot.tokens
            slot.tokens = tokens
            if not self._is_crowded():
                return
            # Keep the newest one, however large: its next request will come soon.
            for session_id in [key for key, one in self._slots.items() if not one.users][:-1]:
                self._close_slot(session_id)
                if not self._is_crowded():
                    return

    def _is_crowded(self) -> bool:
        return len(self._slots) > self.sessions_open_max or self._tokens_open > self.tokens_open_max

    def _close_slot(self, session_id: str) -> None:
        self._tokens_open -= self._slots.pop(session_id).tokens

    @contextmanager
    def held(self, session_id: str) -> Iterator[Slot]:
        """Hold a session in this thread, for work that needs no model."""
        slot = run_flow(self.hold(session_id))
        try:
            yield slot
        finally:
            self.let_go(slot)

    def drop(self, session_id: str) -> None:
        """Drop a session from memory."""
        with self._guard:
            slot = self._slots.get(session_id)
            if slot is not None:
                slot.session = None

    def drop_all(self) -> None:
        """Drop every session that is not in use from memory."""
        with self._guard:
            for session_id in [key for key, slot in self._slots.items() if not slot.users]:
                self._close_slot(session_id)

    def open(self, slot: Slot, row: SessionRow) -> OpenSession:
        """Return the current session: from memory if it is unchanged, else from the ledger."""
        counter = self.find_counter(row)
        session = slot.session
        if session is not None and session.is_current(row) and session.counter.is_like(counter):
            session.row, session.counter = row, counter
        else:
            # The set of unsent messages survives reloading the session.
            before, slot.stale = session or slot.stale, None
            if before is None or before.row.wire != row.wire or not before.counter.is_like(counter):
                before = None
            lens = before.lens if before is not None else self.make_lens(row)
            session = slot.session = load_session(self.ledger, row, lens, counter, before=before)
            session.unsent = slot.unsent
        stored = StoredCarry.read(row.settings)
        if stored is not None and stored.is_newer(slot.prepared_at):
            # Another process prepared the last request: its unsent messages are still unsent.
            slot.carry, slot.prepared_at = stored.carry, stored.prepared_at
            slot.unsent.update(session.ids[stored.messages :])
        if stored is not None and stored.fixed_tokens and not slot.fixed:
            slot.system_tokens, slot.fixed_tokens = stored.system_tokens, stored.fixed_tokens
        return session

    def open_stored(self, slot: Slot, session_id: str) -> OpenSession:
        """Return the current state of a session that must exist."""
        return self.open(slot, self.need_row(session_id))

    def make_lens(self, row: SessionRow) -> Lens:
        """Return the lens that renders and counts a session's messages."""
        counter = self.find_counter(row)
        return Lens(format_of(row), counter.count_parts, counter.count_text, self.judge_observations())

    def judge_observations(self) -> Callable[[Message], bool]:
        """Return the function that recognises tool results sent as user text, by the current settings."""
        return choose_observations(self.config.observations, self.is_observation)

    def need_row(self, session_id: str) -> SessionRow:
        """Return a session's row; SessionNotFound if there is no such session."""
        row = self.ledger.read_session(session_id)
        if row is None:
            raise SessionNotFound(session_id)
        return row

    def make_row(self, session_id: str) -> SessionRow:
        """Create a session; the first one creates the workspace."""
        try:
            self.workspace.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(
                "the workspace {workspace} cannot be created: {why}",
                workspace=self.workspace,
                why=error.strerror or error,
            ) from error
        return self.ledger.open_session(session_id, self.clock())

    def find_counter(self, row: SessionRow) -> Counter:
        """Return the counter of a session's model, its margin narrowed by the session's usage reports."""
        # The order matters, as in ``find_budget``.
        counters, config, model = self._counters, self.config, row.model
        exact = counters.get((model, ()))
        if exact is not None and exact.is_exact:
            return exact  # Reports change nothing about it.
        calibration = read_calibration(row.settings)
        # Margins are rounded to steps: every report changes them a little, which would make a new counter each time.
        steps = tuple(ceil(calibration.margin_for(model, stated) * MARGIN_STEPS) for stated in (0.0, 1.0))
        key = (model, steps if calibration.tracks else ())
        counter = counters.get(key)
        if counter is None:
            if len(counters) > COUNTERS_MAX:
                counters.clear()
            counter = counters[key] = counter_for(model or None, config.tokenizer, calibration)
            if calibration.tracks and not counter.is_exact:
                counter.margin = ceil(counter.margin * MARGIN_STEPS) / MARGIN_STEPS
        return counter

    def find_budget(
        self, row: SessionRow, counter: Counter, window: int | None = None, reserve: int | None = None
    ) -> Budget:
        """Return the budget of a session's model. A window of ``set_window`` overrides the configured one."""
        model = row.model
        if window is None and WINDOWS in row.settings:
            window, reserve = read_window(row.settings, model)
            if window is not None and reserve is None and (self.config.reserve or 0) >= window:
                reserve = window // 4
        # The order matters: ``configure`` sets the caches last, so no budget of old settings ends up in the new one.
        budgets, config, key = self._budgets, self.config, (model, counter.margin, window, reserve)
        budget = budgets.get(key)
        if budget is None:
            if len(budgets) > BUDGETS_MAX:
                budgets.clear()
            wanted = {"window": window, "reserve": reserve}
            changes = {name: value for name, value in wanted.items() if value is not None}
            limited = config.model_copy(update=changes) if changes else config
            budget = budgets[key] = limited.budget(model_info(model or None), counter.margin)
        return budget

    def set_window(self, session_id: str, model: str, window: int, reserve: int | None = None) -> None:
        """Store the window that a model has in a session, whatever the settings say."""
        with self.held(session_id) as slot:
            session = self.open_stored(slot, session_id)
            stored = session.row.settings.get(WINDOWS)
            windows = {**(stored if isinstance(stored, Mapping) else {}), model: [window, reserve]}
            self.update_settings(session, {WINDOWS: windows})

    def find_folder(self, session_id: str) -> OffloadFolder:
        """Return the folder of a session's offloaded results."""
        return OffloadFolder(self.workspace, session_id, self.config.offload.folder)

    def find_summariser(self, row: SessionRow, *, is_manual: bool = False) -> Summariser:
        """Return the summariser of a session; a manual compression works whichever model ran the session."""
        return self.summariser.join(
            called="" if is_manual else row.model, stored=row.model, wire=row.wire, settings=row.settings
        )

    def batch_stages(self, session_id: str, config: CompressionConfig) -> list[Stage]:
        """Return the stages of a batch, without those that render on arrival."""
        folder = self.find_folder(session_id).relative
        return [
            replace(stage, folder=folder) if isinstance(stage, Offload) else stage
            for stage in config.stages()
            if not acts_on_arrival(stage)
        ]

    def asks_model(self, row: SessionRow) -> bool:
        """Return whether folding a session asks a model, which takes a while."""
        stages = self.find_summariser(row).settle().stages()
        return any(isinstance(stage, Fold) and stage.summariser == "llm" for stage in stages)

    def update_settings(self, session: OpenSession, changes: Mapping[str, object]) -> None:
        """Store settings of a session, key by key; None removes one."""
        self.ledger.update_session(session.id, {"settings": changes}, self.clock())
        session.row = replace(session.row, settings=merge_settings(session.row.settings, changes))

    def tell(self, notice: Notice, *, is_logged: bool = True) -> bool:
        """Log a notice, call the listeners, and report those that fail; return whether a listener objects."""
        if is_logged:
            self.ledger.add_event(notice.session_id, make_event(notice))
        is_vetoed, problems = self.listeners.tell(notice)
        self.complain(notice.session_id, problems)
        return is_vetoed

    def complain(self, session_id: str, problems: list[str]) -> None:
        """Log side failures and report them to the listeners."""
        for problem in problems:
            notice = Notice("warned", session_id, because.WARNED(detail=problem), time=self.clock())
            self.ledger.add_event(session_id, make_event(notice))
            self.listeners.tell(notice)

    def warn(self, session_id: str, problem: str) -> None:
        """Report a side failure to the listeners, without logging it."""
        self.listeners.tell(Notice("warned", session_id, because.WARNED(detail=problem), time=self.clock()))
