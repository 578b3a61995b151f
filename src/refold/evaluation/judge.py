"""A model as a judge: it answers a question from a view alone, and a second call grades the answer.

The view and the question are data in a marked block. A judge that gives no clear yes or no raises an error: a grade is
never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from refold.conversation.view import Item
from refold.errors import ProviderError
from refold.evaluation.questions import OwnQuestion
from refold.stages.stage import Ask, Reply

ANSWER_TOKENS, GRADE_TOKENS = 400, 10
_ANSWER = (
    "Answer the question from the conversation below alone. If it does not say, answer: unknown. One or two sentences."
)
_GRADE = (
    "Does the given answer state the expected answer? Other words are fine; other numbers, names or a missing part are "
    "not. Reply with yes or no only."
)


class ModelJudge:
    """Grades answers with a model. ``ask`` returns its reply to a question."""

    def __init__(self, ask: Callable[[Ask], Reply]) -> None:
        self._ask = ask

    def __call__(self, question: OwnQuestion, items: Sequence[Item]) -> bool:
        """Return whether the model answers a question correctly from a view."""
        view = "\n\n".join(f"[{item.role}]\n{part.text}" for item in items for part in item.parts if part.text)
        wanted = question.answer or (question.pattern.pattern if question.pattern else "")
        prompt = f"<conversation>\n{view}\n</conversation>\n\nQuestion: {question.question}"
        given = self._complete(Ask(prompt, ANSWER_TOKENS, _ANSWER))
        prompt = f"Question: {question.question}\nExpected answer: {wanted}\nGiven answer: {given}"
        grade = self._complete(Ask(prompt, GRADE_TOKENS, _GRADE)).strip().strip("\"'*.").lower()
        if not grade.startswith(("yes", "no")):
            raise ProviderError("the judge answered {grade!r} instead of yes or no", grade=grade[:40])
        return grade.startswith("yes")

    def _complete(self, ask: Ask) -> str:
        reply = self._ask(ask)
        if reply.error or not reply.text.strip():
            raise ProviderError("the judge gave no answer: {why}", why=reply.error or "it was empty")
        return reply.text
