"""What the flows of one manager share: loaded sessions, counting by the settings in force, and the ledger.

Another process may change a session at any time, so every use reads the session's row first and reloads the session if
the row no longer matches what is in memory.
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from refold.budget import Budget
from refold.config import CompressionConfig
from refold.conversation import because
from refold.conversation.message import Message, choose_observations
from refold.conversation.view import Lens
from refold.errors import LedgerError, SessionBusy, SessionNotFound
from refold.ledger.records import SessionRow, format_of, merge_settings
from refold.ledger.sql.ledger import Ledger
from refold.llm.choose import PLACE
from refold.llm.summariser import Summariser
from refold.manager.flow import Flow, Leases, Pause, run_flow
from refold.manager.notices import Listeners, Notice, make_event
from refold.manager.recall_injection import RecallAccess
from refold.manager.session import OpenSession, load_session
from refold.manager.session_state import SessionState
from refold.offload import OffloadFolder
from refold.recall.upkeep import ReadAhead
from refold.stages.fold import Fold
from refold.stages.offload import Offload
from refold.stages.stage import Stage, acts_on_arrival
from refold.tokens import Counter, counter_for, model_info

SESSIONS_OPEN_MAX = 512
# Tokens in the views of all open sessions: about 15 bytes of memory each.
TOKENS_OPEN_MAX = 8_000_000
COUNTERS_MAX = BUDGETS_MAX = 256
MARGIN_STEPS = 200
LOCK_WAIT_S = 300.0


class OpenSessions:
    """Loaded sessions in an LRU cache, each behind its own lock."""

    def __init__(self) -> None:
        self.count_max = SESSIONS_OPEN_MAX
        self.tokens_max = TOKENS_OPEN_MAX
        self.tokens = 0
        self._open: OrderedDict[str, OpenSession] = OrderedDict()
        self._guard = threading.Lock()

    @property
    def loaded(self) -> int:
        """How many sessions are in memory."""
        return sum(session.is_loaded for session in self._open.values())

    def hold(self, session_id: str) -> Flow[OpenSession]:
        """Wait until this process may use a session; the caller returns it with ``let_go``, and opens it to read it."""
        with self._guard:
            session = self._open.get(session_id) or self._open.setdefault(session_id, OpenSession(session_id))
            self._open.move_to_end(session_id)
            session.users += 1
        waited, step = 0.0, 0.001
        try:
            while not session.lock.acquire(blocking=False):
                if waited > LOCK_WAIT_S:
                    raise SessionBusy(
                        "session {session_id!r} has been in use for more than {lock_wait_s:g} s",
                        session_id=session_id,
                        lock_wait_s=LOCK_WAIT_S,
                    )
                yield Pause(step)
                waited, step = waited + step, min(0.05, step * 1.5)
        except BaseException:
            self._leave(session)
            raise
        return session

    def hold_now(self, session_id: str) -> OpenSession | None:
        """Hold a session that is in memory and not in use; None if that is not possible at once."""
        with self._guard:
            session = self._open.get(session_id)
            if session is None or not session.is_loaded or not session.lock.acquire(blocking=False):
                return None
            self._open.move_to_end(session_id)
            session.users += 1
            return session

    def let_go(self, session: OpenSession) -> None:
        """Return a session."""
        session.lock.release()
        self._leave(session)

    def _leave(self, session: OpenSession) -> None:
        with self._guard:
            session.users -= 1
            self.tokens += session.item_tokens - session.tokens
            session.tokens = session.item_tokens
            if not self._is_crowded():
                return
            # Keep the newest one, however large: its next request will come soon.
            for session_id in [key for key, one in self._open.items() if not one.users][:-1]:
                self._close(session_id)
                if not self._is_crowded():
                    return

    def _is_crowded(self) -> bool:
        return len(self._open) > self.count_max or self.tokens > self.tokens_max

    def _close(self, session_id: str) -> None:
        self.tokens -= self._open.pop(session_id).tokens

    @contextmanager
    def held(self, session_id: str) -> Iterator[OpenSession]:
        """Hold a session in this thread, for work that needs no model."""
        session = run_flow(self.hold(session_id))
        try:
            yield session
        finally:
            self.let_go(session)

    def drop(self, session_id: str) -> None:
        """Drop a session from memory."""
        with self._guard:
            if session_id in self._open:
                self._open[session_id].drop()

    def drop_all(self) -> None:
        """Drop every session that is not in use from memory."""
        with self._guard:
            for session_id in [key for key, session in self._open.items() if not session.users]:
                self._close(session_id)


class Counting:
    """Counters and budgets by settings that do not change; each is made once."""

    def __init__(self, config: CompressionConfig, *, has_model: bool) -> None:
        self._config, self._has_model = config, has_model
        self._counters: dict[tuple[str, tuple[int, ...]], Counter] = {}
        self._budgets: dict[tuple[object, ...], Budget] = {}

    def find_counter(self, model: str, state: SessionState) -> Counter:
        """Return the counter of a session's model, its margin narrowed by the session's usage reports."""
        counters, calibration = self._counters, state.calibration
        exact = counters.get((model, ()))
        if exact is not None and exact.is_exact:
            return exact  # Reports change nothing about it.
        # Margins are rounded to steps: every report changes them a little, which would make a new counter each time.
        steps = tuple(ceil(calibration.margin_for(model, stated) * MARGIN_STEPS) for stated in (0.0, 1.0))
        key = (model, steps if calibration.tracks else ())
        counter = counters.get(key)
        if counter is None:
            if len(counters) > COUNTERS_MAX:
                counters.clear()
            counter = counters[key] = counter_for(model or None, self._config.tokenizer, calibration)
            if calibration.tracks and not counter.is_exact:
                counter.margin = ceil(counter.margin * MARGIN_STEPS) / MARGIN_STEPS
        return counter

    def find_budget(
        self, row: SessionRow, counter: Counter, window: int | None = None, reserve: int | None = None
    ) -> Budget:
        """Return the budget of a session's model. A window of ``set_window`` overrides the configured one."""
        model = row.model
        if window is None and "windows" in row.settings:
            window, reserve = SessionState.read(row.settings).find_window(model)
            if window is not None and reserve is None and (self._config.reserve or 0) >= window:
                reserve = window // 4
        is_placed = PLACE in row.settings
        budgets, key = self._budgets, (model, counter.margin, window, reserve, is_placed)
        budget = budgets.get(key)
        if budget is None:
            if len(budgets) > BUDGETS_MAX:
                budgets.clear()
            wanted = {"window": window, "reserve": reserve}
            changes = {name: value for name, value in wanted.items() if value is not None}
            limited = self._config.model_copy(update=changes) if changes else self._config
            limited = limited.with_model() if is_placed or self._has_model else limited
            budget = budgets[key] = limited.budget(model_info(model or None), counter.margin)
        return budget


class Keeper:
    """What all flows of one manager share: settings, ledger, loaded sessions, leases, listeners, recall."""

    def __init__(
        self,
        config: CompressionConfig,
        workspace: Path,
        ledger: Ledger,
        *,
        summariser: Summariser,
        find_compressor: Callable[[], Any],
        is_observation: Callable[[Any], bool] | None,
        clock: Callable[[], float],
    ) -> None:
        self.configure(config, summariser)
        self.workspace = workspace
        self.ledger = ledger
        self.listeners = Listeners()
        self.clock = clock
        self.chance: Callable[[], float] = random.random
        self.sessions = OpenSessions()
        self.leases = Leases(ledger, clock)
        self.recall = RecallAccess(self)
        self.read_ahead = ReadAhead()
        self.find_compressor = find_compressor
        self.is_observation = is_observation

    def configure(self, config: CompressionConfig, summariser: Summariser) -> None:
        """Use these settings from the next request on."""
        self.config, self.summariser = config, summariser
        # The counts that trigger a compression, and the stages that render a message on arrival.
        self.thresholds, self.arrival_stages = config.thresholds(), config.arrival_stages()
        self.is_auto = config.auto_compress
        self.folds = any(isinstance(stage, Fold) for stage in config.stages())
        self.counting = Counting(config, has_model=summariser.is_there)

    def open(self, session: OpenSession, row: SessionRow | None = None) -> OpenSession:
        """Bring a session to the state of its row, of the ledger's if none is given; raise if there is none."""
        row = row or self.need_row(session.id)
        state = session.read_state(row.settings)
        counter = self.counting.find_counter(row.model, state)
        if session.is_loaded and session.is_as_stored(row) and session.counter.is_like(counter):
            session.row, session.counter = row, counter
        else:
            is_alike = session.may_be_reused and session.row.wire == row.wire and session.counter.is_like(counter)
            lens = session.lens if is_alike else self.make_lens(row, counter)
            load_session(session, self.ledger, row, lens, counter=counter)
        stored = state.carry
        if stored is not None and stored.is_newer(session.prepared_at):
            # Another process prepared the last request: its unsent messages are still unsent.
            session.carry, session.prepared_at = stored.carry, stored.prepared_at
            session.unsent.update(session.ids[stored.messages :])
        if stored is not None and stored.fixed_tokens and not session.fixed:
            session.system_tokens, session.fixed_tokens = stored.system_tokens, stored.fixed_tokens
        return session

    def make_lens(self, row: SessionRow, counter: Counter | None = None) -> Lens:
        """Return the lens that renders and counts a session's messages."""
        counter = counter or self.counting.find_counter(row.model, SessionState.read(row.settings))
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

    def set_window(self, session_id: str, model: str, window: int, reserve: int | None = None) -> None:
        """Store the window that a model has in a session, whatever the settings say."""
        with self.sessions.held(session_id) as session:
            windows = self.open(session).state.windows
            self.update_settings(session, windows={**windows, model: [window, reserve]})

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

    def update_settings(self, session: OpenSession, **changes: object) -> None:
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

    def complain(self, session_id: str, problems: Sequence[str], *, is_logged: bool = True) -> None:
        """Report side failures to the listeners, and log them."""
        for problem in problems:
            notice = Notice("warned", session_id, because.WARNED(detail=problem), time=self.clock())
            if is_logged:
                self.ledger.add_event(session_id, make_event(notice))
            self.listeners.tell(notice)
