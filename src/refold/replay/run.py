"""Replays one session: at every point where the assistant spoke, a request is prepared, counted, billed and checked.

Replay then continues with the recorded message, because a recording cannot answer differently. Validity is checked by
``testing.provider_rules``, which shares no code with the engine.

``run_jobs`` replays many sessions under many presets, in parallel. Records come back in the order of sessions, then
presets. Finished records can be kept in a file, one per line; a later run with the same sessions, settings and version
reuses them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from refold import __version__
from refold.budget import Budget, Tariff
from refold.config import CompressionConfig
from refold.config.layers import PRESETS
from refold.conversation.message import Message
from refold.conversation.turn import find_turns, newest_step
from refold.conversation.view import Item, Lens
from refold.errors import ConfigError, FormatError, RefoldError
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.ladder.laws import common_prefix
from refold.readers.session import Probe, Session
from refold.replay.policy import LadderPolicy, Policy, PolicyRoom, Step, find_baselines
from refold.replay.record import Copied, CopyIndex, ProbeRecord, RecallCheck, RequestRecord, SessionRecord
from refold.testing.provider_rules import find_violations
from refold.tokens import Counter, counter_for, model_info
from refold.tokens.counter import REPLY_TOKENS
from refold.tokens.models import ModelInfo

VIOLATIONS_MAX = 3
# Hidden messages must stay reachable: the placeholder that names them takes about this much.
PLACEHOLDER_TOKENS = 60
MakePolicy = Callable[[PolicyRoom], Policy]
JOBS_MAX = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """A session, parsed and counted before any policy runs; its window may depend on it."""

    messages: tuple[Message, ...]
    fixed_tokens: int
    tokens: int
    system_tokens: int
    user_tokens_max: int


MakeBudget = Callable[[Measured], Budget]


def measure_session(session: Session, counter: Counter, lens: Lens) -> Measured:
    """Parse and count a session once."""
    form = lens.format
    messages = tuple(parse_messages(form, session.messages))
    fixed = REPLY_TOKENS + counter.count_text(form.read_system(session.system)) + counter.count_tools(session.tools)
    sizes = [lens.plain(message).tokens for message in messages]
    system = sum(size for size, message in zip(sizes, messages, strict=True) if message.role == "system")
    users = [size for size, message in zip(sizes, messages, strict=True) if message.starts_turn]
    return Measured(messages, fixed, fixed + sum(sizes), fixed + system, max(users, default=0))


def replay_session(
    session: Session,
    preset: str,
    make_policy: MakePolicy,
    make_budget: MakeBudget,
    *,
    counter: Counter,
    tariff: Tariff,
    with_recall: bool = True,
) -> SessionRecord:
    """Replay a session under one policy and return the record.

    ``with_recall`` asks the product's own search for every value that is not in view, if the policy keeps originals.
    """
    form = make_format(session.format)
    lens = Lens(form, counter.count_parts, counter.count_text)
    measured = measure_session(session, counter, lens)
    budget = make_budget(measured)
    room = PolicyRoom(lens, measured.fixed_tokens, budget, tariff)
    policy = make_policy(room)
    with ExitStack() as opened:
        check = RecallCheck(measured.messages, session.format) if with_recall and policy.keeps_originals else None
        if check is not None:
            opened.callback(check.close)
        replayed = _Replay(session, measured, room, policy, check=check)
        replayed.run()
    return SessionRecord(
        session=session.id,
        preset=preset,
        messages=len(measured.messages),
        tokens=measured.tokens,
        window=budget.hard,
        requests=tuple(replayed.requests),
        probes=tuple(replayed.probes),
        seconds=tuple(replayed.seconds),
        bytes=session.bytes,
        problem=replayed.problem,
    )


class _Replay:
    """The state of one replay: what was sent last, and what has been recorded so far."""

    def __init__(
        self, session: Session, measured: Measured, room: PolicyRoom, policy: Policy, *, check: RecallCheck | None
    ) -> None:
        self._session = session
        self._measured = measured
        self._room = room
        self._policy = policy
        self._check = check
        self._copies = CopyIndex(measured.messages)
        self._reread: set[int] = set()
        self._sent: tuple[Item, ...] = ()
        self._last_at = -1
        self._probes: dict[int, list[Probe]] = {}
        for probe in session.probes:
            self._probes.setdefault(probe.step, []).append(probe)
        self.requests: list[RequestRecord] = []
        self.probes: list[ProbeRecord] = []
        self.seconds: list[float] = []
        self.problem = ""

    def run(self) -> None:
        messages = self._measured.messages
        seen = at = 0
        while at < len(messages):
            stop = self._find_stop(at)
            if messages[at].role == "assistant" and at > 0:
                self._policy.see(messages[seen:at])
                seen = at
                self._request(at, messages[at:stop])
            at = stop

    def _find_stop(self, at: int) -> int:
        """Return where the answer that starts here ends; in Responses one answer is several items."""
        messages = self._measured.messages
        stop = at + 1
        if self._session.format == "openai-responses" and messages[at].role == "assistant":
            while stop < len(messages) and messages[stop].role == "assistant":
                stop += 1
        return stop

    def _request(self, at: int, answer: Sequence[Message]) -> None:
        idle_s = self._session.idle_before(at - 1, self._last_at) if self._last_at >= 0 else 0.0
        begun = time.perf_counter()
        step = self._policy.prepare(idle_s)
        self.seconds.append(time.perf_counter() - begun)
        self.problem = self.problem or step.problem
        self._record(at, answer, step, idle_s)
        for probe in (one for used in range(at, at + len(answer)) for one in self._probes.get(used, ())):
            in_view = any(probe.value in part.text for item in step.items for part in item.parts)
            is_found = in_view or (self._check is not None and self._check.finds(probe.value, at))
            self.probes.append(ProbeRecord(at, probe.sort, probe.distance, probe.is_hard, in_view, is_found))
        self._sent, self._last_at = step.items, at + len(answer) - 1

    def _record(self, at: int, answer: Sequence[Message], step: Step, idle_s: float) -> None:
        shared = common_prefix(self._sent, step.items)
        is_break = shared < len(self._sent)
        copied, rereads = self._find_copied(at, answer, step.items, is_break=is_break)
        shared_tokens = sum(item.tokens for item in step.items[:shared])
        # System prompt and tools come before the messages and never change within a session.
        shared_tokens += self._room.fixed_tokens if self.requests else 0
        violations = find_violations(self._session.format, [item.raw for item in step.items])
        self.requests.append(
            RequestRecord(
                at=at,
                tokens=step.tokens,
                shared_tokens=shared_tokens,
                output_tokens=sum(self._room.lens.plain(message).tokens for message in answer),
                idle_s=idle_s,
                is_fit=step.tokens <= self._room.budget.hard,
                violations=tuple(violations[:VIOLATIONS_MAX]),
                is_intact=self._is_intact(at, step.items),
                is_break=is_break,
                tokens_freed=step.tokens_freed,
                stages=step.stages,
                reason=step.reason,
                asked=step.asked,
                runs=copied.runs,
                runs_in_view=copied.in_view,
                rereads=rereads,
            )
        )

    def _find_copied(
        self, at: int, answer: Sequence[Message], items: Sequence[Item], *, is_break: bool
    ) -> tuple[Copied, tuple[int, ...]]:
        """Return what the answer copied, and the tokens of each message to read again for it.

        A message that was read again stays in view until the next compression, so it is charged once until then.
        """
        if is_break:
            self._reread.clear()
        copied = self._copies.find_copied(at, at + len(answer), items)
        new = [source for source in copied.sources if source not in self._reread]
        self._reread.update(new)
        plain = self._room.lens.plain
        return copied, tuple(plain(self._measured.messages[one]).tokens for one in new)

    def _is_intact(self, at: int, items: Sequence[Item]) -> bool:
        """Return whether everything new since the last request is sent unchanged, or could not fit even alone."""
        messages = self._measured.messages
        first = at
        while first > 0 and messages[first - 1].role != "assistant":
            first -= 1
        new = messages[max(first, self._last_at + 1) : at]
        sent = {id(item.raw) for item in items}
        return all(id(message.raw) in sent for message in new) or not self._fits_alone(messages[:at], new)

    def _fits_alone(self, messages: Sequence[Message], new: Sequence[Message]) -> bool:
        """Return whether system prompt, newest user message, newest step and the new messages fit by themselves."""
        plain = self._room.lens.plain
        kept = {message.id: message for message in messages if message.role == "system"}
        for user in find_turns(messages)[-1:]:
            kept[messages[user].id] = messages[user]
        step = newest_step(messages)
        for message in (*(messages[step.start : step.stop] if step else ()), *new):
            kept[message.id] = message
        alone = self._room.fixed_tokens + sum(plain(one).tokens for one in kept.values())
        hides = len(kept) < len(messages)
        return alone + (PLACEHOLDER_TOKENS if hides else 0) <= self._room.budget.hard


def replay_with(
    session: Session,
    preset: str,
    config: CompressionConfig,
    info: ModelInfo,
    *,
    make_policy: MakePolicy | None = None,
    with_recall: bool = True,
) -> SessionRecord:
    """Replay a session with these settings, or with another policy within the same budget.

    A session that cannot be read or prepared gives a record with its problem.
    """
    counter = counter_for(info.name or None)
    try:
        return replay_session(
            session,
            preset,
            make_policy or (lambda room: LadderPolicy(room, config)),
            lambda _: config.budget(info, counter.margin),
            counter=counter,
            tariff=Tariff.of_model(info),
            with_recall=with_recall,
        )
    except RefoldError as error:
        return SessionRecord(session.id, preset, len(session.messages), 0, 0, problem=str(error))


@dataclass(frozen=True, slots=True)
class Terms:
    """Model and window of a replay; without a model each session uses its own."""

    model: str | None = None
    window: int | None = None

    def model_of(self, session: Session) -> str:
        """Return the model whose window and prices apply to a session."""
        return self.model or session.model


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """One session under one preset."""

    session: Session
    preset: str
    terms: Terms = Terms()

    def run(self) -> SessionRecord:
        """Replay it; a session that cannot be read or prepared gives a record with its problem."""
        info = model_info(self.terms.model_of(self.session))
        baseline = find_baselines().get(self.preset)
        return replay_with(self.session, self.preset, self._config(), info, make_policy=baseline)

    def key(self) -> str:
        """Return the key under which a finished record of this job is kept."""
        parts = (
            __version__,
            self.session.id,
            self.session.format,
            self.session.messages,
            str(self.session.system),
            self.session.tools,
            self.session.times,
            [repr(probe) for probe in self.session.probes],
            self.preset,
            repr(self._config()),
            self.terms.model_of(self.session),
            self.terms.window,
        )
        return hashlib.sha256(
            json.dumps(parts, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
        ).hexdigest()

    def _config(self) -> CompressionConfig:
        preset = "default" if self.preset in find_baselines() else self.preset
        settings = {"window": self.terms.window, "reserve": 0} if self.terms.window else {}
        return CompressionConfig(preset=preset, **settings)


def check_presets(names: Sequence[str]) -> list[str]:
    """Return the names without repeats; raise ConfigError for an unknown one."""
    known = [*PRESETS, *find_baselines()]
    for name in names:
        if name not in known:
            raise ConfigError(
                "unknown preset '{name}' to replay; there are {listed}", name=name, listed=", ".join(known)
            )
    return list(dict.fromkeys(names))


def run_jobs(
    jobs: Sequence[ReplayJob],
    *,
    processes: int = 1,
    keep: Path | None = None,
    tell: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[SessionRecord]:
    """Run all jobs and return their records in order; ``keep`` is where finished ones are kept for a later run."""
    keys = [job.key() for job in jobs] if keep else []
    known = _read_kept(keep) if keep else {}
    done: dict[int, SessionRecord] = {at: known[key] for at, key in enumerate(keys) if key in known}
    tell(len(done), len(jobs))
    left = [at for at in range(len(jobs)) if at not in done]
    for at, record in _run_some(jobs, left, min(processes, JOBS_MAX)):
        done[at] = record
        if keep:
            _keep(keep, keys[at], record)
        tell(len(done), len(jobs))
    return [done[at] for at in range(len(jobs))]


def _run_some(jobs: Sequence[ReplayJob], left: Sequence[int], processes: int) -> Iterator[tuple[int, SessionRecord]]:
    if processes <= 1 or len(left) <= 1:
        for at in left:
            yield at, jobs[at].run()
        return
    with ProcessPoolExecutor(processes) as pool:
        waiting: dict[Future[SessionRecord], int] = {}
        # Largest first, so that no long job runs alone at the end; few at a time, to bound memory.
        queue = sorted(left, key=lambda at: (jobs[at].session.bytes, at))
        while queue or waiting:
            while queue and len(waiting) < 2 * processes:
                at = queue.pop()
                waiting[pool.submit(jobs[at].run)] = at
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield waiting.pop(future), future.result()


def _keep(path: Path, key: str, record: SessionRecord) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "record": asdict(record)}) + "\n")


def _read_kept(path: Path) -> dict[str, SessionRecord]:
    """Read the records of an earlier run; incomplete or foreign lines are skipped."""
    if not path.exists():
        return {}
    if not path.is_file():
        raise FormatError("{path} is not a file; name one to keep finished sessions in", path=path)
    kept: dict[str, SessionRecord] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            row = json.loads(line)
            kept[row["key"]] = SessionRecord.from_dict(row["record"])
        except (ValueError, KeyError, TypeError):
            continue
    return kept


def unique_ids(sessions: Sequence[Session]) -> list[Session]:
    """Number sessions that share an id, in order."""
    seen: dict[str, int] = {}
    named: list[Session] = []
    for session in sessions:
        count = seen[session.id] = seen.get(session.id, 0) + 1
        named.append(session if count == 1 else replace(session, id=f"{session.id}#{count}"))
    return named
