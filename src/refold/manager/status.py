"""Reading a session: how full it is, what was done to it, statistics; and a session exported as one JSON value.

An export holds everything that belongs to a session. Imported data is untrusted and fully validated.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from refold.budget import Budget, decide
from refold.budget.decision import Ahead, look_ahead
from refold.config.values import window_of
from refold.conversation import because
from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON, Language, Reason, describe, read_reason
from refold.conversation.view import Edit, Item, Lens, apply
from refold.errors import FormatError, RefoldError
from refold.ladder.plan import detect_said
from refold.ledger.codec import load_json
from refold.ledger.export import check_once, dump_session, load_session
from refold.ledger.records import Event, SessionRow, WholeSession, format_of
from refold.ledger.sql.ledger import Ledger
from refold.llm.choose import GATEWAY, PLACE
from refold.manager.append import Request
from refold.manager.identity import FOUND
from refold.manager.prepare import count_fixed, name_view, weigh
from refold.manager.session import parse_stored
from refold.manager.session_state import CLIENT, TITLE, SessionState
from refold.manager.store import Keeper
from refold.offload import OffloadFolder
from refold.readers.session import Session, find_title
from refold.stages.offload import files_of, offloaded_path
from refold.tokens.counter import REPLY_TOKENS, Counter

# A title is looked for in this many messages: agents put reminders and their environment before a person's words.
TITLE_MESSAGES = 6
# This many of the newest decisions are listed one by one.
DECISIONS_MAX = 20
# Messages are read in chunks of this size, newest first.
READ_MAX = 200
DECISION_KINDS = ("compressed", "waited", "skipped", "failed")
EVENT_SIZES = ("tokens_before", "tokens_after", "archived", "archived_tokens")
_VERSIONS_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """A session in numbers. ``share`` is the used part of the room; ``stopped`` says why automatic compression is off.

    ``system_tokens`` and ``tools_tokens`` are those of the last prepared request. ``acts_at`` is the size at which the
    next automatic compression is expected; ``saves_money`` means that it will not wait for the soft limit.
    ``folded_away`` is the number of tokens that the view saves; every face shows this figure. ``messages_folded`` are
    behind a fold; ``messages_in_view`` includes the folds. ``note_tokens`` are what a model took for the notes in view:
    input, cached input, output.
    """

    session_id: str
    wire: str
    model: str
    counter: str
    messages: int
    messages_in_view: int
    turns: int
    tokens: int
    tokens_original: int
    window: int
    hard: int
    soft: int
    share: float
    compression_count: int
    edits: int
    pinned: int
    trigger: Reason = NO_REASON
    stopped: Reason = NO_REASON
    system_tokens: int = 0
    tools_tokens: int = 0
    acts_at: int = 0
    saves_money: bool = False
    folded_away: int = 0
    messages_folded: int = 0
    ahead: Ahead = Ahead()
    note_tokens: tuple[int, int, int] = (0, 0, 0)

    def to_dict(self) -> dict[str, object]:
        """Return the status as plain values, for JSON; ``next`` says which threshold acts next."""
        return {**describe(self), "next": self.ahead.tell()}


def describe_session(keeper: Keeper, session_id: str, beside: Request | None = None) -> SessionStatus:
    """Return how full a session is, with the model, system prompt and tools of the last request or of ``beside``."""
    keeper.need_row(session_id)
    with keeper.sessions.held(session_id) as session:
        row = keeper.need_row(session_id)
        row = replace(row, model=(beside and beside.model) or row.model)
        keeper.open(session, row)
        if beside is not None:
            count_fixed(session, beside)
        tokens = session.item_tokens + session.fixed_tokens
        weighed = weigh(keeper, session, _find_budget(keeper, row, session.counter))
        budget, policy = weighed.budget, weighed.policy
        off = NO_REASON if policy.is_auto else because.AUTO_OFF()
        ahead = look_ahead(weighed.counts, budget, policy)
        if ahead.is_due and session.idle == name_view(keeper, session) and tokens <= budget.hard:
            ahead = replace(ahead, is_due=False, waits=because.EXHAUSTED())
        return SessionStatus(
            session_id=session_id,
            wire=session.lens.format.name,
            model=row.model,
            counter=session.counter.name,
            messages=len(session.ids),
            messages_in_view=len(session.items),
            turns=session.turns,
            tokens=tokens,
            tokens_original=row.tokens,
            window=budget.window,
            hard=budget.hard,
            soft=budget.soft,
            share=tokens / budget.hard,
            compression_count=row.compression_count,
            edits=len(session.edits),
            pinned=len(session.state.pinned),
            trigger=decide(weighed.counts, budget, keeper.thresholds).reason,
            stopped=off or (because.STOPPED(**policy.braked.values) if policy.braked else NO_REASON),
            ahead=ahead,
            system_tokens=session.system_tokens,
            tools_tokens=session.fixed_tokens - session.system_tokens - REPLY_TOKENS,
            acts_at=budget.soft if ahead.saves_at is None else ahead.saves_at,
            saves_money=ahead.saves_at is not None,
            folded_away=max(0, row.tokens - session.item_tokens) if session.edits else 0,
            messages_folded=len({one for edit in session.edits if edit.kind == "fold" for one in edit.covers}),
            note_tokens=_sum_notes(session.edits),
        )


def _sum_notes(edits: Iterable[Edit]) -> tuple[int, int, int]:
    used = [edit.fold.usage for edit in edits if edit.fold is not None]
    return sum(one[0] for one in used), sum(one[1] for one in used), sum(one[2] for one in used)


def _find_budget(keeper: Keeper, row: SessionRow, counter: Counter) -> Budget:
    """Return the budget that holds for a session; where our settings state no window, that of the newest request."""
    state = SessionState.read(row.settings)
    known = state.find_window(row.model)[0] or window_of(keeper.config, row.model)
    window, reserve = state.room
    if known in (None, window):
        return keeper.counting.find_budget(row, counter, window, reserve)
    # A reserve for another window may not fit into this one.
    return keeper.counting.find_budget(row, counter, None, reserve if window is None else None)


def find_session_language(keeper: Keeper, session_id: str) -> Language:
    """Return the language that people write in a session; English if nobody has written yet."""
    return detect_said(_read_newest(keeper, session_id))


def _read_newest(keeper: Keeper, session_id: str) -> Iterator[Message]:
    """Yield user messages, newest first."""
    row = keeper.ledger.read_session(session_id)
    if row is None:
        return
    lens, ids = keeper.make_lens(row), keeper.ledger.read_path(session_id).ids
    for stop in range(len(ids), 0, -READ_MAX):
        for stored in reversed(keeper.ledger.read_messages(session_id, ids[max(0, stop - READ_MAX) : stop])):
            if stored.role == "user" and not stored.is_forgotten:
                yield parse_stored(stored, row, lens)


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One logged decision: what was done or postponed, and why."""

    session_id: str
    kind: str
    reason: Reason
    tokens_before: int = 0
    tokens_after: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Totals of compressions, over a session or all of them.

    ``tokens_before`` and ``tokens_after`` add up the views that were compressed, ``archived_tokens`` the originals that
    folds cover. ``undone`` does not count redone ones. ``by_reason`` counts compressions by the code of the reason.
    """

    sessions: int = 0
    compressions: int = 0
    manual: int = 0
    undone: int = 0
    skipped: int = 0
    failed: int = 0
    warned: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    archived: int = 0
    archived_tokens: int = 0
    by_stage: dict[str, int] = field(default_factory=dict)
    by_reason: dict[str, int] = field(default_factory=dict)
    waited: int = 0
    decisions: tuple[LoggedDecision, ...] = ()

    @property
    def tokens_freed(self) -> int:
        """Tokens that all compressions took out of views."""
        return self.tokens_before - self.tokens_after

    @property
    def ratio(self) -> float:
        """Tokens after compression as a share of the tokens before."""
        return self.tokens_after / self.tokens_before if self.tokens_before else 1.0

    def to_dict(self) -> dict[str, object]:
        """Return the statistics as plain values, for JSON."""
        return {**describe(self), "tokens_freed": self.tokens_freed, "ratio": round(self.ratio, 4)}


def sum_up_events(events: Iterable[Event]) -> Statistics:
    """Return the statistics of logged events."""
    kinds, stages, reasons, figures = Tally[str](), Tally[str](), Tally[str](), Tally[str]()
    sessions: set[str] = set()
    decisions: deque[LoggedDecision] = deque(maxlen=DECISIONS_MAX)
    for event in events:
        kinds[event.kind] += 1
        sessions.add(event.session_id)
        if event.kind not in DECISION_KINDS:
            continue
        given, reason = event.fields, read_reason(event.fields.get("reason"))
        sizes = {name: value for name in EVENT_SIZES if isinstance(value := given.get(name), int)}
        before, after = (sizes.get(name, 0) for name in EVENT_SIZES[:2])
        decisions.append(LoggedDecision(event.session_id, event.kind, reason, before, after, event.created_at))
        if event.kind != "compressed":
            continue
        freed = given.get("stages")
        figures.update(sizes, manual=bool(given.get("is_manual")))
        stages.update(freed if isinstance(freed, dict) else {})
        reasons[reason.code] += 1
    return Statistics(
        sessions=len(sessions),
        compressions=kinds["compressed"],
        manual=figures["manual"],
        undone=max(0, kinds["undone"] - kinds["redone"]),
        skipped=kinds["skipped"],
        failed=kinds["failed"],
        warned=kinds["warned"],
        tokens_before=figures["tokens_before"],
        tokens_after=figures["tokens_after"],
        archived=figures["archived"],
        archived_tokens=figures["archived_tokens"],
        by_stage=dict(stages.most_common()),
        by_reason=dict(reasons.most_common()),
        waited=kinds["waited"],
        decisions=tuple(decisions),
    )


def read_title(ledger: Ledger, row: SessionRow) -> str:
    """Return a session's title: the one it was given, else its first words. Forgotten words are never part of it."""
    state = SessionState.read(row.settings)
    if state.title and not state.stubs:
        return state.title
    opening = ledger.list_messages(row.id, limit=TITLE_MESSAGES)
    raws = tuple(load_json(stored.raw) for stored in opening if stored.role == "user" and not stored.is_forgotten)
    return find_title(Session(row.id, raws, row.wire or "openai-chat")) if raws else ""


def read_client(row: SessionRow) -> str:
    """Return the program that a session belongs to: the gateway's client, or the origin of an import."""
    made = row.settings.get(GATEWAY)
    found = made.get("client") if isinstance(made, dict) else row.settings.get(CLIENT)
    return found if isinstance(found, str) else ""


def read_parent(row: SessionRow) -> str:
    """Return the session that another one branched from; empty if there is none."""
    made = row.settings.get(GATEWAY) or row.settings.get(FOUND)
    return str(made.get("parent", "")) if isinstance(made, dict) else ""


def put_below(rows: Sequence[SessionRow]) -> list[tuple[SessionRow, bool]]:
    """Return the sessions with each child listed below its parent, and whether each is a child."""
    ids = {row.id for row in rows}
    roots: list[SessionRow] = []
    below: dict[str, list[SessionRow]] = {}
    for row in rows:
        parent = read_parent(row)
        (below.setdefault(parent, []) if parent in ids and parent != row.id else roots).append(row)
    return [pair for root in roots for pair in ((root, False), *((row, True) for row in below.get(root.id, ())))]


def describe_origin(session: Session) -> dict[str, object]:
    """Return the settings of a session that is imported: its title, its program, its system prompt and tools."""
    beside = {"system": session.system, "tools": session.tools}
    kept = {key: value for key, value in beside.items() if value}
    return {TITLE: find_title(session) or None, CLIENT: session.client or None, "kept": kept or None}


@dataclass(frozen=True, slots=True)
class ContextShare:
    """One row of the breakdown of a context by kind."""

    name: str
    tokens: int
    messages: int = 0


def break_down(items: Sequence[Item], status: SessionStatus, system_tokens: int) -> list[ContextShare]:
    """Return the tokens of a context by kind; they add up to ``status.tokens``, and with *free* to the room."""
    tokens = dict.fromkeys(("user", "assistant", "tool output", "folds", "system"), 0)
    counts = dict.fromkeys(tokens, 0)
    for item in items:
        name = _name_item(item)
        tokens[name] += item.tokens
        counts[name] += 1
    fixed = max(0, status.tokens - sum(tokens.values()))
    system = min(fixed, system_tokens)
    rows = [
        ContextShare("system prompt", system + tokens.pop("system"), counts.pop("system")),
        ContextShare("tools", fixed - system),
        *(ContextShare(name, tokens[name], counts[name]) for name in tokens),
    ]
    return [*rows, ContextShare("free", max(0, status.hard - status.tokens))]


def _name_item(item: Item) -> str:
    if item.is_fold:
        return "folds"
    if item.role == "tool" or any(part.kind == "result" for part in item.parts):
        return "tool output"
    return item.role if item.role in ("user", "assistant", "system") else "system"


def export_session(ledger: Ledger, session_id: str) -> dict[str, object]:
    """Return a consistent snapshot of a session as plain values; raise FormatError if there is no such session."""
    whole = ledger.read_whole(session_id)
    if whole is None:
        raise FormatError("there is no session {session!r}; 'refold sessions' lists all sessions", session=session_id)
    return dump_session(whole)


def import_session(
    ledger: Ledger, value: object, *, now: float, session_id: str | None = None, root: str = "offloaded"
) -> str:
    """Put an exported session into a ledger, under its own id or another; return the id.

    Placeholders then name files in the session's folder under ``root``; ``verify`` with ``repair`` writes them.
    """
    whole = _move_files(load_session(value, session_id), root)
    _try_view(whole)
    # Use versions that no session of this name had, so that nothing cached about a deleted one matches.
    version = int(now * _VERSIONS_PER_S)
    # The user who continues the session says where its model is, not the imported file.
    settings = {**whole.row.settings, PLACE: None} if PLACE in whole.row.settings else whole.row.settings
    row = replace(whole.row, path_version=version, edits_version=version, settings=settings)
    if not ledger.put_whole(replace(whole, row=row), now):
        raise FormatError(
            "session {name!r} already exists; give another name with --as, or delete it first", name=row.id
        )
    return row.id


def _move_files(whole: WholeSession, root: str) -> WholeSession:
    """Move offloaded files to the session's folder in this workspace; a changed edit gets a new id everywhere."""
    folder = OffloadFolder.name(whole.row.id, root)
    new: dict[str, str] = {}
    moved: dict[str, Edit] = {}
    for one in whole.edits:
        path = offloaded_path(one.edit) or ""
        target = f"{folder}/{path.rpartition('/')[2]}"
        if path and path != target:
            edit = replace(one.edit, text=one.edit.text.replace(path, target, 1), id="")
            moved[one.edit.id] = edit
            new |= {path: target, one.edit.id: edit.id}
    if not moved:
        return whole
    chosen = [(one, moved.get(one.edit.id, one.edit)) for one in whole.edits]
    edits = tuple(
        replace(one, edit=replace(edit, made_from=tuple(new.get(origin, origin) for origin in edit.made_from)))
        for one, edit in chosen
    )
    check_once((one.edit.id for one in edits), "edits")
    return replace(
        whole,
        row=replace(whole.row, settings=_rename(whole.row.settings, new)),
        edits=edits,
        events=tuple(replace(event, fields=_rename(event.fields, new)) for event in whole.events),
    )


def _rename(value: Any, new: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return new.get(value, value)
    if isinstance(value, Mapping):
        return {key: _rename(held, new) for key, held in value.items()}
    return [_rename(held, new) for held in value] if isinstance(value, list) else value


def _try_view(whole: WholeSession) -> None:
    """Compute the view with the edits in force and with all edits; raise FormatError if that fails."""
    row = whole.row
    lens = Lens(format_of(row), lambda *_: 0, lambda _: 0)
    try:
        stored = row.settings.get("calibration")
        if isinstance(stored, list) and len(SessionState.read(row.settings).calibration.tracks) < len(stored):
            raise ValueError("its calibration does not consist of plausible figures")
        parsed = {stored.id: parse_stored(stored, row, lens) for stored in whole.messages}
        shown = [parsed[message_id] for message_id in whole.path]
        for edits in ([one.edit for one in whole.edits if one.is_active], [one.edit for one in whole.edits]):
            apply(shown, edits, lens)
            lens.forget_all(())
        for edit in (one.edit for one in whole.edits):
            if edit.part is not None and edit.part >= len(parsed[edit.covers[0]].parts):
                raise ValueError(f"the edit {edit.id} changes a part that its message does not have")
        files_of((one.edit for one in whole.edits), list(parsed.values()))
    except (RefoldError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise FormatError(
            "the view of this session cannot be computed, so it was not imported: {error}", error=error
        ) from None
