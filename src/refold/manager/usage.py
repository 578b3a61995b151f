"""Usage that providers report, and what a session's requests cost.

Tokens sent, cached and answered are the provider's figures; the size of a request without compression is estimated.
Prices are list prices; a model without a known price has no bill.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from math import fsum, inf
from typing import Any

from refold.budget.economics import BilledRequest, Tariff, charge_ask, charge_request
from refold.conversation import because
from refold.conversation.message import frozen
from refold.conversation.reason import NO_REASON, Reason
from refold.errors import FormatError
from refold.formats.intake import to_plain
from refold.ledger.records import Event, Extension, SessionRow, StoredBatch, StoredEdit, StoredUsage
from refold.ledger.sql.ledger import Ledger, read_all_events
from refold.manager.flow import Rounds
from refold.manager.session import OpenSession, Sent
from refold.manager.session_state import SessionState, StoredCarry, write_calibration
from refold.manager.store import Keeper
from refold.tokens.models import NO_CACHE, ModelInfo, model_info

# A cut-off answer means a full window only if the request came near the window.
NEAR_WINDOW = 0.9
# The names of providers and frameworks.
_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "input_token_count", "inputTokens")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count", "output_token_count", "outputTokens")
_CACHED = (
    *("cached_tokens", "cache_read", "cache_read_tokens", "cached_prompt_tokens", "cached_content_token_count"),
    *("cache_read_input_token_count", "cacheReadInputTokens"),
)
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
REQUESTS_MAX = 5_000
_MILLION = 1_000_000
# Writers of summaries that ask no model.
_MECHANICAL = frozenset({"", "extract", "window"})


@frozen
class ReportedUsage:
    """A provider's report about a request. ``is_extra``: it held more than the context, so it calibrates nothing."""

    usage: object
    finish_reason: str | None = None
    is_overflow: bool = False
    is_extra: bool = False


def observe_usage(keeper: Keeper, reports: Mapping[str, Sequence[ReportedUsage]]) -> None:
    """Record usage reports and calibrate counting with them, reading no message; raise the first error last."""
    errors: list[Exception] = []
    for session_id, report in ((name, one) for name, listed in reports.items() for one in listed):
        try:
            _observe_one(keeper, session_id, report)
        except Exception as error:  # noqa: BLE001 - the other reports are recorded first
            errors.append(error)
    if errors:
        raise errors[0]


def _observe_one(keeper: Keeper, session_id: str, report: ReportedUsage) -> None:
    rounds = Rounds(keeper, session_id)
    with keeper.sessions.held(session_id) as session:
        seen, stored = session.row if session.is_loaded else keeper.need_row(session_id), None
        while stored is None:
            rounds.begin()
            usages, changes = describe_reports(keeper, session, seen, (report,))
            extension = Extension(seen, (), keeper.clock(), usages, changes)
            stored = (keeper.ledger.extend((extension,), may_wait=True) or (None,))[0]
            seen = stored or keeper.need_row(session_id)
        if session.is_loaded and session.is_as_stored(stored):
            session.row = stored


def describe_reports(
    keeper: Keeper, session: OpenSession, row: SessionRow, reports: Sequence[ReportedUsage]
) -> tuple[list[StoredUsage], dict[str, object]]:
    """Return the usage to record for providers' reports, and the session settings that follow from them."""
    usages: list[StoredUsage] = []
    changes: dict[str, object] = {}
    for report in reports:
        sent = session.sent or Sent(row.model, 0, "", row.messages)
        sizes = {"counted_tokens": sent.tokens, "path_length": sent.messages, "edits_version": row.edits_version}
        usages.append(StoredUsage(keeper.clock(), sent.model, **sizes, **read_usage(report.usage)))
        if report.is_extra:
            continue
        # Of the first report these are the values that the session has read already.
        state = SessionState.read({**row.settings, **changes}) if changes else session.read_state(row.settings)
        changes |= _learn(session, state, usages[-1])
        if forced := _find_force(keeper, row, usages[-1], report):
            changes["forced"] = forced.to_json()
    return usages, changes


def _learn(session: OpenSession, state: SessionState, usage: StoredUsage) -> dict[str, object]:
    """Return the settings that a report changes: the calibration, and the provider's figure for the view."""
    sent = session.sent
    if sent is None or usage.input_tokens <= 0:
        return {}
    calibration = state.calibration.observe(sent.model, sent.tokens, usage.input_tokens)
    sizes = {"input_tokens": usage.input_tokens, "counted_tokens": sent.tokens}
    reported = {"model": sent.model, **sizes, "marker": sent.marker}
    changes: dict[str, object] = {"calibration": write_calibration(calibration), "reported": reported}
    if state.carry is None or not state.carry.is_newer(session.prepared_at):
        fixed = session.system_tokens, session.fixed_tokens
        changes["carry"] = StoredCarry(session.carry, sent.messages, session.prepared_at, *fixed).to_json()
    return changes


def _find_force(keeper: Keeper, row: SessionRow, usage: StoredUsage, report: ReportedUsage) -> Reason:
    if report.is_overflow:
        return because.OVERFLOW()
    if report.finish_reason not in ("length", "max_tokens"):
        return NO_REASON
    counter = keeper.counting.find_counter(row.model, SessionState.read(row.settings))
    window = keeper.counting.find_budget(replace(row, model=usage.model), counter).window
    used = usage.input_tokens + usage.output_tokens
    # If the window was not nearly full, the limit on the answer cut it off, unless the settings say otherwise.
    is_full = keeper.config.compact_on_length or used >= NEAR_WINDOW * window
    return because.CUT_OFF() if is_full else NO_REASON


def read_usage(reported: object) -> dict[str, int]:
    """Return a provider's usage in our names: a number of input tokens, or a usage object of any provider."""
    if isinstance(reported, bool):
        raise FormatError("usage is a number of input tokens or the provider's usage object, not a switch")
    if isinstance(reported, int | float):
        return {"input_tokens": _whole(reported)}
    fields = reported if isinstance(reported, Mapping) else getattr(reported, "__dict__", None) or to_plain(reported)
    if not isinstance(fields, Mapping):
        raise FormatError(
            f"usage is a number of input tokens or the provider's usage object, not {type(reported).__name__}"
        )
    read, write = _whole(fields.get("cache_read_input_tokens")), _whole(fields.get("cache_creation_input_tokens"))
    details = next((fields[name] for name in _DETAILS if fields.get(name)), None)
    if details is not None and not isinstance(details, Mapping):
        details = getattr(details, "__dict__", {})
    # Anthropic reports cached tokens separately from the input; all others include them.
    apart = read + write if "prompt_tokens" not in fields else 0
    return {
        "input_tokens": _find_figure(fields, _INPUT) + apart,
        "output_tokens": _find_figure(fields, _OUTPUT),
        "cache_read_tokens": read or _find_figure({**fields, **(details or {})}, _CACHED),
        "cache_write_tokens": write,
    }


def _find_figure(fields: Mapping[str, Any], names: Iterable[str]) -> int:
    for name in names:
        if name in fields:
            return _whole(fields[name])
    return 0


def _whole(figure: object) -> int:
    if isinstance(figure, bool) or not isinstance(figure, (int, float)) or figure != figure:
        return 0
    return int(min(max(figure, 0), 1_000_000_000))


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """One request. ``tokens_raw`` is estimated; dollars are None without a price; ``messages`` is the path's length."""

    time: float
    model: str
    tokens: int
    tokens_raw: int
    cached: int
    output: int
    dollars: float | None
    dollars_raw: float | None
    is_over: bool = False
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Bill:
    """Sums over requests. ``priced`` of them have a price; ``over`` would not have fitted the model's window."""

    requests: int = 0
    priced: int = 0
    over: int = 0
    tokens: int = 0
    tokens_raw: int = 0
    cached: int = 0
    output: int = 0
    dollars: float = 0.0
    dollars_raw: float = 0.0
    dollars_summaries: float = 0.0

    @property
    def dollars_saved(self) -> float:
        """Money that compression saved after paying for summaries; negative if it cost more than it saved."""
        return self.dollars_raw - self.dollars - self.dollars_summaries

    @property
    def cached_share(self) -> float:
        """The share of sent tokens that providers read from their caches."""
        return self.cached / self.tokens if self.tokens else 0.0

    def __add__(self, other: Bill) -> Bill:
        return Bill(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Bill)))


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """A session's requests in order, its compressions and its bill. ``is_cut``: older requests are left out."""

    session_id: str
    requests: tuple[RequestFigures, ...]
    folds: tuple[StoredBatch, ...]
    bill: Bill
    is_cut: bool = False
    folded_away: int = 0


def read_figures(ledger: Ledger, session_id: str, requests_max: int = REQUESTS_MAX) -> SessionFigures:
    """Return the figures of a session's newest requests."""
    usages = ledger.read_usage(session_id, limit=requests_max + 1)
    is_cut = len(usages) > requests_max
    billed = [one for one in reversed(usages[:requests_max]) if one.input_tokens > 0]  # A refused one cost nothing.
    batches = ledger.read_batches(session_id)
    edits = ledger.read_edits(session_id, active_only=False) if batches or billed else []
    events = read_all_events(ledger, session_id) if batches else ()
    switches = [event for event in events if event.kind in ("undone", "redone")]
    freed = Freed(batches, edits, switches, frozenset(ledger.read_path(session_id).ids if batches else ()))
    requests = _figure_requests(billed, freed)
    bill = replace(sum_requests(requests), dollars_summaries=_price_summaries(edits, billed))
    return SessionFigures(session_id, tuple(requests), tuple(batches), bill, is_cut, freed.at(inf))


@dataclass(frozen=True, slots=True)
class FoldEffect:
    """What the requests after a compression show of it, until the next one.

    ``uncached`` tokens of the first of them were in no cache, because the prefix had changed. ``dollars_saved`` is
    what all of them cost less than without compressions; None without a price.
    """

    requests: int
    tokens: int
    uncached: int
    dollars_saved: float | None


def find_effect(figures: SessionFigures, since: float, until: float) -> FoldEffect | None:
    """Return the effect of a compression at ``since``; ``until`` is when the next one came. None before a request."""
    own = [request for request in figures.requests if since <= request.time < until]
    if not own or (figures.is_cut and since < figures.requests[0].time):
        return None
    bill = sum_requests(own)
    saved = bill.dollars_raw - bill.dollars if bill.priced == len(own) else None
    return FoldEffect(len(own), own[0].tokens, own[0].tokens - own[0].cached, saved)


def sum_requests(requests: Iterable[RequestFigures]) -> Bill:
    """Return the sums over requests, without the cost of summaries."""
    listed = list(requests)
    priced = [one for one in listed if one.dollars is not None]
    return Bill(
        requests=len(listed),
        priced=len(priced),
        over=sum(one.is_over for one in listed),
        tokens=sum(one.tokens for one in listed),
        tokens_raw=sum(one.tokens_raw for one in listed),
        cached=sum(one.cached for one in listed),
        output=sum(one.output for one in listed),
        dollars=fsum(one.dollars or 0.0 for one in priced),
        dollars_raw=fsum(one.dollars_raw or 0.0 for one in priced),
    )


class Freed:
    """The tokens that compressions had removed from the view, at any time."""

    def __init__(
        self,
        batches: Sequence[StoredBatch],
        edits: Sequence[StoredEdit],
        switches: Sequence[Event],
        path: frozenset[str],
    ) -> None:
        steps = [(batch.created_at, batch.tokens_before - batch.tokens_after) for batch in batches]
        # A message shortened on arrival was never in a view whole.
        steps += [(edit.created_at, edit.edit.tokens_freed) for edit in edits if not edit.batch_id and edit.is_active]
        # An edit that was undone and made again belongs to its newest batch, but its own size stays the same.
        freed_by = {edit.edit.id: edit.edit.tokens_freed for edit in edits if edit.batch_id}
        for event in switches:
            named = event.fields.get("edits")
            freed = sum(freed_by.get(str(edit_id), 0) for edit_id in (named if isinstance(named, list) else ()))
            steps.append((event.created_at, freed if event.kind == "redone" else -freed))
        # It is not known when a message left the path. Edits of it count until the next compression, whose view did
        # not contain it.
        gone = {edit.edit.id for edit in edits if edit.is_active and not path.issuperset(edit.edit.covers)}
        ends = [*(batch.created_at for batch in batches[1:]), inf]
        for one, end in zip(batches, ends, strict=False):
            steps.append((end, -sum(freed_by[edit_id] for edit_id in one.edits if edit_id in gone)))
        steps.sort(key=lambda step: step[0])
        self._times = [time for time, _ in steps]
        freed_at_once = (freed for _, freed in steps)
        self._sums = list(accumulate(freed_at_once, lambda total, freed: max(0, total + freed), initial=0))

    def at(self, time: float) -> int:
        """Return the tokens that were out of the view at a time."""
        return self._sums[bisect_right(self._times, time)]


def _figure_requests(usages: Sequence[StoredUsage], freed: Freed) -> list[RequestFigures]:
    # A provider that never reported cached tokens would not have cached the longer requests either.
    is_cached = any(one.cache_read_tokens or one.cache_write_tokens for one in usages)
    made: list[RequestFigures] = []
    before_raw, before_time = 0, 0.0
    for one in usages:
        info = model_info(one.model or None)
        raw = one.input_tokens + freed.at(one.created_at)
        idle = max(0.0, one.created_at - before_time) if before_time else 0.0  # A clock may be set back.
        dollars = dollars_raw = None
        if info.prices is not None:
            tariff = Tariff.of_model(info if is_cached else replace(info, cache=NO_CACHE))
            plain = BilledRequest(raw, before_raw, one.output_tokens, idle)
            dollars = price_usage(one, info, is_cached=is_cached)
            # A request that nothing was removed from cost what it cost, whatever the provider's cache did.
            is_smaller = raw > one.input_tokens
            dollars_raw = charge_request(plain, tariff).total * info.prices.input / _MILLION if is_smaller else dollars
        made.append(
            RequestFigures(
                one.created_at,
                one.model,
                one.input_tokens,
                raw,
                min(one.cache_read_tokens, one.input_tokens),
                one.output_tokens,
                dollars,
                dollars_raw,
                raw > info.window,
                one.path_length,
            )
        )
        before_raw, before_time = raw, one.created_at
    return made


def price_usage(usage: StoredUsage, info: ModelInfo, *, is_cached: bool = True) -> float | None:
    """Return the cost of a request at list prices, in dollars; None if the model's price is not known."""
    if info.prices is None:
        return None
    rules, tariff = info.cache, Tariff.of_model(info)
    cliff = tariff.cliff_at(usage.input_tokens)
    dearer_in, dearer_out = (cliff.input_factor, cliff.output_factor) if cliff else (1.0, 1.0)
    read = min(usage.cache_read_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - read)
    is_automatic = is_cached and rules.is_active and not rules.breakpoints
    if is_automatic and not written and usage.input_tokens >= rules.tokens_min:
        written = usage.input_tokens - read
    weighed = usage.input_tokens - read - written + read * rules.read + written * rules.write
    output = usage.output_tokens * tariff.output
    return (weighed * dearer_in + output * dearer_out) * info.prices.input / _MILLION


def _price_summaries(edits: Sequence[StoredEdit], usages: Sequence[StoredUsage]) -> float:
    """Return the cost of notes by a model; without a usage their originals count as input, their text as output."""
    info = model_info(usages[-1].model if usages else None)
    if info.prices is None:
        return 0.0
    tariff = Tariff.of_model(info)
    folds = [one.edit for one in edits if one.edit.fold is not None]
    asked = [edit for edit in folds if edit.fold and (edit.fold.by not in _MECHANICAL or any(edit.fold.usage))]
    charges = []
    for edit in asked:
        read, cached, written = (edit.fold and edit.fold.usage) or (0, 0, 0)
        charges.append(charge_ask(read or edit.tokens_before, written or edit.tokens_after, tariff, cached).total)
    return fsum(charges) * info.prices.input / _MILLION
