"""Evaluates one compressor on one session as it grew, and asks at several points what of its state is still known.

The points depend on the recorded session and the window alone, so every compressor is asked at the same ones: evenly
from the first request that does not fit the window to the last. Validity is checked as in a replay.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from refold.budget import Tariff
from refold.conversation.view import Item, Lens
from refold.errors import RefoldError
from refold.evaluation.arms import Arm
from refold.evaluation.expect import KINDS, Expectation, Expectations, Kind
from refold.evaluation.questions import OwnQuestion
from refold.evaluation.verdict import Verdict, find_invented, judge, read_view
from refold.formats.detect import make_format
from refold.readers.session import Session
from refold.reading.advance import advance, make_reader
from refold.reading.state import State
from refold.replay.policy import Policy, PolicyRoom
from refold.replay.run import Measured, measure_session
from refold.testing.provider_rules import find_violations
from refold.tokens import counter_for, model_info

POINTS = 8
EXAMPLES_MAX = 12
AskJudge = Callable[[OwnQuestion, Sequence[Item]], bool]
"""Answers a question from a view with a model, and returns whether the answer is right."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One expected text that was not retained, for a person to read."""

    at: int
    verdict: Verdict
    expected: Expectation


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question of the user's, and whether the view had the answer; ``graded`` is what a judge said."""

    question: OwnQuestion
    at: int
    is_answered: bool
    graded: bool | None = None


@dataclass(slots=True)
class SessionEvaluation:
    """One session under one arm. ``verdicts`` counts what became of expected texts, by kind."""

    session: str
    arm: str
    points: int = 0
    requests: int = 0
    tokens_peak: int = 0
    unfit: int = 0
    invalid: int = 0
    verdicts: dict[Kind, Tally[Verdict]] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    questions: list[AnsweredQuestion] = field(default_factory=list)
    problem: str = ""

    def share(self, *wanted: Verdict) -> float:
        """Return the share of expected texts with one of these verdicts, the mean over kinds: each counts alike."""
        shares = [sum(count[one] for one in wanted) / count.total() for count in self.verdicts.values() if count]
        return sum(shares) / len(shares) if shares else (1.0 if "retained" in wanted else 0.0)


@dataclass(frozen=True, slots=True)
class EvalTerms:
    """How sessions are evaluated. Without a model each session uses its own; ``judge`` grades answers of questions."""

    model: str | None = None
    window: int | None = None
    questions: tuple[OwnQuestion, ...] = ()
    points: int = POINTS
    judge: AskJudge | None = None


def evaluate(session: Session, arm: Arm, terms: EvalTerms) -> SessionEvaluation:
    """Evaluate a session; one that cannot be read or prepared gives an evaluation with its problem."""
    made = SessionEvaluation(session.id, arm.name)
    name = terms.model or session.model
    try:
        config = arm.make_config(terms.window)
        counter, info = counter_for(name or None), model_info(name or None)
        lens = Lens(make_format(session.format), counter.count_parts, counter.count_text)
        measured = measure_session(session, counter, lens)
        room = PolicyRoom(lens, measured.fixed_tokens, config.budget(info, counter.margin), Tariff.of_model(info))
        _Growth(session, measured, room, arm.make_policy(room, config), made=made).run(terms)
    except RefoldError as error:
        made.problem = str(error)
    return made


class _Growth:
    """One session that grows request by request."""

    def __init__(
        self, session: Session, measured: Measured, room: PolicyRoom, policy: Policy, *, made: SessionEvaluation
    ) -> None:
        self._session, self._room, self._policy, self._made = session, room, policy, made
        self._messages = measured.messages
        self._expectations = Expectations()
        self._state = State()
        self._reader = make_reader(room.lens.is_observation)

    def run(self, terms: EvalTerms) -> None:
        requests = self._list_requests()
        due = self._choose_points(requests, terms.points)
        asked = [question for question in terms.questions if question.concerns(self._session.id)]
        seen = 0
        for number, at in enumerate(requests):
            self._policy.see(self._messages[seen:at])
            self._read(seen, at)
            seen = at
            step = self._policy.prepare()
            self._made.problem = self._made.problem or step.problem
            self._made.requests += 1
            self._made.tokens_peak = max(self._made.tokens_peak, step.tokens)
            self._made.unfit += step.tokens > self._room.budget.hard
            self._made.invalid += bool(find_violations(self._session.format, [item.raw for item in step.items]))
            is_last = number == len(requests) - 1
            ready = [one for one in asked if is_last or (one.after is not None and one.after <= at)]
            asked = [one for one in asked if one not in ready]
            if at in due:
                self._judge_point(at, step.items)
            self._answer(ready, at, step.items, terms.judge)

    def _list_requests(self) -> list[int]:
        """Return the places of the recorded answers: before each of them a request was sent."""
        spoken = [at for at, message in enumerate(self._messages) if at and message.role == "assistant"]
        starts = [at for at in spoken if self._messages[at - 1].role != "assistant"]
        # A session that ends with a person's words or a result had one more request coming.
        last = len(self._messages)
        return [*starts, last] if last and self._messages[-1].role != "assistant" else starts

    def _choose_points(self, requests: Sequence[int], points: int) -> set[int]:
        sizes = [self._room.lens.plain(message).tokens for message in self._messages]
        total, before = self._room.fixed_tokens, 0
        full: list[int] = []
        for at in requests:
            total, before = total + sum(sizes[before:at]), at
            if total > self._room.budget.hard:
                full.append(at)
        full = full or list(requests[-1:])
        count = min(max(1, points), len(full))
        return {full[-1 - (len(full) - 1) * number // max(1, count - 1)] for number in range(count)} if full else set()

    def _read(self, start: int, stop: int) -> None:
        for at in range(start, stop):
            message = self._messages[at]
            self._state = advance(self._state, [message], self._reader)
            self._expectations.note(self._state)

    def _judge_point(self, at: int, items: Sequence[Item]) -> None:
        view = read_view(items, self._messages[:at])
        self._made.points += 1
        for expected in self._expectations.list_for(self._state):
            verdict = judge(expected, view)
            self._made.verdicts.setdefault(expected.kind, Tally())[verdict] += 1
            if verdict not in ("retained", "recoverable"):
                self._made.losses.append(Loss(at, verdict, expected))
        new = [value for value in find_invented(view) if value not in self._made.invented]
        self._made.invented += new
        if new:
            self._made.verdicts.setdefault("value", Tally())["mutated"] += len(new)
            self._made.losses += [Loss(at, "mutated", Expectation("value", value, at)) for value in new]

    def _answer(
        self, questions: Sequence[OwnQuestion], at: int, items: Sequence[Item], judge_answer: AskJudge | None
    ) -> None:
        if not questions:
            return
        text = "\n".join(part.text for item in items for part in item.parts)
        for question in questions:
            graded = judge_answer(question, items) if judge_answer is not None and not question.is_absent else None
            self._made.questions.append(AnsweredQuestion(question, at, question.is_answered(text), graded))


def sum_verdicts(made: Sequence[SessionEvaluation]) -> dict[Kind, Tally[Verdict]]:
    """Return all verdicts of one arm, by kind."""
    total: dict[Kind, Tally[Verdict]] = {}
    for kind in KINDS:
        count: Tally[Verdict] = Tally()
        for one in made:
            count.update(one.verdicts.get(kind, {}))
        if count:
            total[kind] = count
    return total
