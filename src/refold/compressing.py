"""``compress``: one call that makes a conversation fit, without a store, and without network unless a model is given.

``compress`` is the simplest interface of the engine: it parses, computes the view, runs the ladder and renders. It
keeps no state between calls. To keep folds across calls, pass the previous result's ``.edits``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from refold.budget import Budget, flat_budget, read_tokens
from refold.conversation import because
from refold.conversation.message import Format, Message, choose_observations
from refold.conversation.reason import Reason
from refold.conversation.view import Edit, Lens, View, apply
from refold.errors import ConfigError, FormatError
from refold.formats import (
    Beside,
    Codec,
    Intake,
    MessageSource,
    detect,
    parse_messages,
    place_messages,
    read_intake,
    read_output_limit,
)
from refold.ladder.plan import Outcome, Plan, order_stages, prepare
from refold.ladder.report import Report
from refold.ladder.run import Answer, answer_nothing, drive
from refold.prepared import Originals, PreparedContext, find_summary, hand_over, note_model, trace_items
from refold.returned import OpenedHistory, open_records
from refold.stages.stage import check_nothing
from refold.tokens import Counter, counter_for, model_info
from refold.tokens.counter import REPLY_TOKENS

if TYPE_CHECKING:
    from refold.config import CompressionConfig
    from refold.llm.summariser import Summariser


def compress(
    messages: Iterable[Any] | Mapping[str, Any],
    budget: int | str | None = None,
    *,
    system: object = None,
    tools: object = None,
    model: str | None = None,
    preset: str | None = None,
    config: CompressionConfig | None = None,
    dry_run: bool = False,
    format: str | None = None,  # noqa: A002 - the word users know
    edits: Iterable[Edit] = (),
    pinned: Iterable[int] = (),
    instructions: str = "",
    llm: object = None,
    answer: Answer | None = None,
    strict: bool = False,
    codec: Codec | None = None,
    is_observation: Callable[[Any], bool] | None = None,
    check: Callable[[], None] = check_nothing,
) -> PreparedContext:
    """Return the conversation within ``budget`` tokens (8000 or "8k"), system prompt and tools included.

    Without ``budget`` the model's window counts. Messages are dicts, objects of the providers' SDKs, a request body, or
    messages of a framework that ``codec`` converts; those that need no change come out as the objects that came in.
    A record of an earlier call is taken in; ``edits`` of one are kept. ``pinned`` are positions that must not change.
    ``dry_run`` only reports, and asks no model. ``llm`` writes the summaries: anything with ``complete(prompt)``; else
    the model set for summaries, ``model`` itself where its provider's key is known, or rules. ``answer`` replaces it.
    ``is_observation`` recognises tool results sent as user text. ``check`` runs between passes; once it raises
    OutOfTime, the newest messages that fit stay and one line replaces the rest.
    """
    settings, intake = _choose_config(preset, config), _read_messages(messages, codec)
    beside = Beside(system, tools, _check_model(model), format).complete(intake)
    raws, model = intake.raws or (), beside.model or settings.model
    form = detect(raws, system=beside.system, tools=beside.tools, name=beside.format)
    summariser = None if answer or dry_run else _find_summariser(settings, llm, replace(beside, format=form.name))
    settings, answer = (summariser.settle(), summariser.answer_now) if summariser else (settings, answer)
    given, counter = parse_messages(form, raws), counter_for(model, settings.tokenizer)
    opened = open_records(form, given, settings.fold.opening, _check_edits(edits))
    room = _choose_budget(budget, settings, model, counter, output_tokens=read_output_limit(intake.body))
    lens = _make_lens(form, counter, settings, is_observation)
    fixed = REPLY_TOKENS + counter.count_text(form.read_system(beside.system)) + counter.count_tools(beside.tools)
    view = apply(opened.messages, opened.edits, lens, fixed_tokens=fixed, pinned=_find_pinned(pinned, given, opened))
    _name_sent(summariser, beside, view, room.window)
    plan = replace(_make_plan(settings, room, instructions, is_given=budget is not None, strict=strict), check=check)
    outcome = drive(prepare(view, plan), answer or answer_nothing)
    shown, edits = view if dry_run else outcome.view, outcome.view.edits
    prepared = PreparedContext(
        messages=_write_messages(form, shown),
        summary=find_summary(shown.items),
        total_tokens=shown.tokens,
        original_tokens=fixed + sum(lens.plain(message).tokens for message in given),
        system=beside.system,
        tools=beside.tools,
        edits=edits,
        report=_write_report(view, outcome, room, counter, notes=_note_model(budget, settings, model, room)),
        originals=Originals(opened.messages, edits),
        trace=lambda: _trace(shown, opened, intake),
    )
    return hand_over(prepared, intake, tools=tools)


def _write_messages(form: Format, shown: View) -> list[Any]:
    raws = [item.raw for item in shown.items]
    return place_messages(form.name, raws) if shown.edits else raws


def _make_lens(
    form: Format, counter: Counter, settings: CompressionConfig, is_observation: Callable[[Any], bool] | None
) -> Lens:
    judge = choose_observations(settings.observations, is_observation)
    return Lens(form, counter.count_parts, counter.count_text, judge)


def _make_plan(settings: CompressionConfig, room: Budget, instructions: str, *, is_given: bool, strict: bool) -> Plan:
    return Plan(
        budget=room,
        stages=order_stages(settings.stages()),
        thresholds=settings.thresholds(),
        language=settings.language,
        instructions=instructions,
        is_auto=settings.auto_compress or is_given,
        strict=strict,
        find_secrets=_find_secrets if settings.redact else None,
    )


def _note_model(budget: object, settings: CompressionConfig, model: str | None, room: Budget) -> list[Reason]:
    return [] if budget is not None else note_model(model, room.window, is_given=settings.window is not None)


def _read_messages(messages: object, codec: Codec | None) -> Intake:
    if messages is None:
        raise FormatError("messages must be a list of messages, not NoneType")
    return read_intake(messages, codec)


def _find_summariser(settings: CompressionConfig, llm: object, beside: Beside) -> Summariser | None:
    """Return the summariser for a conversation with this model; None if rules write the summaries."""
    if llm is None and not settings.variables and not settings.compact_url:
        return None
    from refold.llm.summariser import Summariser

    return Summariser(settings, llm).join(called=beside.model or "", wire=beside.format or "")


def _name_sent(summariser: Summariser | None, beside: Beside, view: View, window: int) -> None:
    if summariser is not None:
        from refold.llm.summariser import SentWith

        sent = SentWith(beside.model or "", view.lens.format.name, beside.system, beside.tools)
        summariser.sent_with = replace(sent, items=view.items, fixed_tokens=view.fixed_tokens, window=window)


def _find_secrets(texts: Iterable[str]) -> frozenset[str]:
    from refold.llm.redact import find_secrets  # Imported only when something is folded: it is slow to import.

    return find_secrets(texts)


def _check_model(model: object) -> str | None:
    if model is not None and not isinstance(model, str):
        raise ConfigError(f"model must be the name of a model, not {type(model).__name__}")
    return model


def _check_edits(edits: object) -> tuple[Edit, ...]:
    known = tuple(edits) if isinstance(edits, Iterable) else (edits,)
    for edit in known:
        if not isinstance(edit, Edit):
            raise FormatError(f"edits holds a {type(edit).__name__}; give .edits of an earlier result as they are")
    return known


def _choose_config(preset: str | None, config: CompressionConfig | None) -> CompressionConfig:
    from refold.config import CompressionConfig

    if preset is not None and config is not None:
        raise ConfigError("give either preset= or config=, not both; config.replace(preset=...) combines them")
    if config is not None and not isinstance(config, CompressionConfig):
        raise ConfigError(
            f"config must be a CompressionConfig, not {type(config).__name__}; CompressionConfig(...) is one"
        )
    return config or CompressionConfig.preset(preset or "default")


def _choose_budget(
    budget: object, settings: CompressionConfig, model: str | None, counter: Counter, *, output_tokens: int | None
) -> Budget:
    if budget is None:
        from refold.config.values import leave_room

        reserve = leave_room(settings, model, output_tokens)
        settings = settings if reserve is None else settings.model_copy(update={"reserve": reserve})
        return settings.budget(model_info(model), counter.margin)
    tokens = read_tokens(budget)
    flat = flat_budget(tokens)
    # An estimate may undercount, so the budget is lowered by its margin.
    return flat if not counter.margin else flat_budget(max(1, int(tokens / (1 + counter.margin))))


def _trace(shown: View, opened: OpenedHistory, intake: Intake) -> list[MessageSource]:
    """Return the origin of each message in view, by its position in the history that was passed."""
    raws = intake.raws
    if raws is not None and opened.origins:
        raws = [raws[at] for at in opened.origins]
    return trace_items(shown.items, [message.id for message in opened.messages], raws, origins=opened.origins or None)


def _find_pinned(pinned: object, messages: Sequence[Message], opened: OpenedHistory) -> frozenset[str]:
    """Return the ids of the messages at the positions that must not change."""
    wanted: set[str] = set()
    for at in pinned if isinstance(pinned, Iterable) else (pinned,):
        if not isinstance(at, int):
            raise FormatError(f"pinned holds a {type(at).__name__}; give the positions of messages as whole numbers")
        if not 0 <= at < len(messages):
            raise FormatError(f"pinned names message {at}, but there are {len(messages)} messages")
        places = [place for place, origin in enumerate(opened.origins) if origin == at] if opened.origins else [at]
        wanted.update(opened.messages[place].id for place in places)
    return frozenset(wanted)


def _write_report(view: View, outcome: Outcome, room: Budget, counter: Counter, *, notes: Sequence[Reason]) -> Report:
    return Report(
        reason=outcome.trigger.reason if outcome.trigger.acts else because.FITS(),
        counter=counter.name,
        margin=counter.margin,
        budget=room,
        tokens_before=view.tokens,
        tokens_after=outcome.view.tokens,
        messages_before=len(view.items),
        messages_after=len(outcome.view.items),
        stages=outcome.stages,
        notes=tuple(notes),
    )
