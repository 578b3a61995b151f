"""Replays many sessions under many presets: in parallel, resumable, in an order that never depends on timing.

Finished records can be kept in a file, one per line; a later run with the same sessions, settings and version reuses
them. Records come back in the order of sessions, then presets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from refold import __version__
from refold.budget import Budget, Tariff
from refold.config import CompressionConfig
from refold.config.presets import PRESETS
from refold.errors import ConfigError, FormatError, RefoldError
from refold.readers.session import Session
from refold.replay.baselines import find_baselines
from refold.replay.policy import LadderPolicy, Policy, Room
from refold.replay.record import SessionRecord
from refold.replay.run import Measured, replay_session
from refold.tokens import counter_for, model_info

JOBS_MAX = 64


@dataclass(frozen=True, slots=True)
class Terms:
    """Model and window of a replay; without a model each session uses its own."""

    model: str | None = None
    window: int | None = None

    def model_of(self, session: Session) -> str:
        """Return the model whose window and prices apply to a session."""
        return self.model or session.model


@dataclass(frozen=True, slots=True)
class Job:
    """One session under one preset."""

    session: Session
    preset: str
    terms: Terms = Terms()

    def run(self) -> SessionRecord:
        """Replay it; a session that cannot be read or prepared gives a record with its problem."""
        info = model_info(self.terms.model_of(self.session))
        counter = counter_for(info.name or None)
        try:
            return replay_session(
                self.session,
                self.preset,
                self._make_policy,
                lambda measured: self._make_budget(measured, counter.margin),
                counter,
                Tariff.of_model(info),
            )
        except RefoldError as error:
            return SessionRecord(self.session.id, self.preset, len(self.session.messages), 0, 0, problem=str(error))

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

    def _make_budget(self, _measured: Measured, margin: float) -> Budget:
        return self._config().budget(model_info(self.terms.model_of(self.session)), margin)

    def _make_policy(self, room: Room) -> Policy:
        baseline = find_baselines().get(self.preset)
        return baseline(room) if baseline else LadderPolicy(room, self._config())


def check_presets(names: Sequence[str]) -> list[str]:
    """Return the names without repeats; raise ConfigError for an unknown one."""
    known = [*PRESETS, *find_baselines()]
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown preset '{name}' to replay; there are {', '.join(known)}")
    return list(dict.fromkeys(names))


def run_jobs(
    jobs: Sequence[Job],
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


def _run_some(jobs: Sequence[Job], left: Sequence[int], processes: int) -> Iterator[tuple[int, SessionRecord]]:
    if processes <= 1 or len(left) <= 1:
        for at in left:
            yield at, jobs[at].run()
        return
    with ProcessPoolExecutor(processes) as pool:
        waiting: dict[Future[SessionRecord], int] = {}
        # Largest first, so that none is left alone at the end; few at a time, to bound memory.
        queue = sorted(left, key=lambda at: (jobs[at].session.bytes, at))
        while queue or waiting:
            while queue and len(waiting) < 2 * processes:
                at = queue.pop()
                waiting[pool.submit(_run_job, jobs[at])] = at
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield waiting.pop(future), future.result()


def _run_job(job: Job) -> SessionRecord:
    return job.run()


def _keep(path: Path, key: str, record: SessionRecord) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "record": record.to_dict()}) + "\n")


def _read_kept(path: Path) -> dict[str, SessionRecord]:
    """Read the records of an earlier run; incomplete or foreign lines are skipped."""
    if not path.exists():
        return {}
    if not path.is_file():
        raise FormatError(f"{path} is not a file; name one to keep finished sessions in")
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
