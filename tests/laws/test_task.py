"""L8 for the task: over generated sessions on all wires, request by request, the work stays stated in every view."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refold
from refold.config import CompressionConfig
from refold.conversation.message import find_marks, read_handle
from refold.stages.task import TASK_SHARE
from refold.testing import find_violations
from refold.tokens import counter_for
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.effort import up_to

WIRES = ("openai-chat", "anthropic", "openai-responses")
WINDOW = 4_500
COMPLAINT = (
    "Please always provide EXACTLY ONE action in triple backticks, found {} actions.\n\n"
    "Please format your action in triple backticks as shown in the example. If you have completed your assignment, "
    "please consult the first message about how to submit your solution, and do not write anything else."
)
FINISH = "When you are done, issue exactly the following command:\n\n```bash\nmake submit TICKET=88231\n```"
OPENINGS = ("/mode", "hello", "<system-reminder>The todo list is empty.</system-reminder>")
FOLLOWING = ("yes, please", "continue", "why is that?", "<system-reminder>Be brief.</system-reminder>", "继续", "好的")
few = settings(max_examples=up_to(8), deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True, repr=False)
class Work:
    """A session in which an agent works on a task, in OpenAI's chat format, and where the task is."""

    messages: list[dict[str, Any]]
    task: str


@st.composite
def works(draw: st.DrawFn) -> Work:
    """A session: perhaps a greeting, a task of any size, steps with outputs, notices and short words of a person."""
    paragraphs = draw(st.sampled_from([0, 2, 12, 60, 150]))
    detail = "\n\n".join(
        f"Requirement {n}: the export of report {n * 37} keeps its columns." for n in range(paragraphs)
    )
    task = f"Fix the export of reports.\n\n{detail}\n\n## Submission\n{FINISH}\n\nThis ends the task."
    messages: list[dict[str, Any]] = [{"role": "user", "content": draw(st.sampled_from(OPENINGS))}]
    messages = [*messages, {"role": "assistant", "content": "Hi."}] if draw(st.booleans()) else []
    messages.append({"role": "user", "content": task})
    for step in range(draw(st.integers(20, 40))):
        size = draw(st.sampled_from([3, 20, 60]))
        messages += make_step(step, size)
        if draw(st.integers(0, 4)) == 0:
            said = draw(st.sampled_from([COMPLAINT.format(draw(st.integers(2, 9))), *FOLLOWING]))
            messages += [{"role": "assistant", "content": f"Step {step} is done."}, {"role": "user", "content": said}]
    return Work(messages, task)


def make_step(step: int, size: int) -> list[dict[str, Any]]:
    call = {"name": "run", "arguments": json.dumps({"command": f"cat src/report_{step}.py"})}
    output = "\n".join(f"{step}.{n} def export_{step}_{n}(): return {step * n}" for n in range(size))
    return [
        {
            "role": "assistant",
            "content": f"I look at report {step}.",
            "tool_calls": [{"id": f"c{step}", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": f"c{step}", "content": output},
    ]


def render(wire: str, messages: list[dict[str, Any]]) -> list[Any]:
    if wire == "anthropic":
        return list(to_anthropic(messages)["messages"])
    return list(to_responses(messages)["input"]) if wire == "openai-responses" else messages


def grow(work: Work, wire: str, **config: Any) -> Iterator[tuple[list[Any], refold.PreparedContext]]:
    """Prepare every request of a session: what the client sent, and what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        manager = refold.ContextCompressionManager(CompressionConfig(window=WINDOW, reserve=0, **config), Path(folder))
        for at, message in enumerate(work.messages):
            is_stated = any(one["content"] == work.task for one in work.messages[:at])
            if is_stated and message["role"] == "assistant":
                sent = render(wire, work.messages[:at])
                yield sent, manager.prepare_context_sync("s", sent, model="gpt-4o", format=wire)
        manager.close()


def texts_of(messages: list[Any]) -> list[str]:
    """Return every text of a request, whatever its wire."""
    found: list[str] = []
    for message in messages:
        content = message.get("content") or message.get("output") or ""
        blocks = content if isinstance(content, list) else [{"text": content}]
        found += [str(block.get("text") or block.get("content") or "") for block in blocks]
    return found


@pytest.mark.parametrize("wire", WIRES)
@few
@given(work=works())
def test_the_task_is_in_every_view_whole_or_with_its_ends_and_how_to_finish(wire: str, work: Work) -> None:
    tokens = counter_for("gpt-4o").count_text(work.task)
    for sent, prepared in grow(work, wire):
        texts = texts_of(prepared.messages)
        assert prepared.total_tokens <= WINDOW
        assert len(find_violations(wire, prepared.messages)) <= len(find_violations(wire, sent))
        if tokens < TASK_SHARE * WINDOW - 20:
            assert work.task in texts, "it fits its share: it stays whole"
            continue
        stated = next(text for text in texts if text.startswith("Fix the export of reports."))
        assert stated.endswith("This ends the task.")
        assert FINISH in stated
        if stated != work.task:
            assert counter_for("gpt-4o").count_text(stated) <= TASK_SHARE * WINDOW
            handle = read_handle(find_marks(stated)[0])
            assert handle is not None
            assert work.task in prepared.expand(handle)


@pytest.mark.parametrize("wire", WIRES)
@few
@given(work=works())
def test_after_a_fold_a_complaint_of_the_program_is_in_view_once(wire: str, work: Work) -> None:
    for _, prepared in grow(work, wire):
        if prepared.report is not None and prepared.report.stages:
            complaints = [text for text in texts_of(prepared.messages) if text.startswith("Please always provide")]
            assert len(complaints) <= 1


@pytest.mark.parametrize("wire", WIRES)
@few
@given(work=works())
def test_no_record_quotes_a_notice_as_the_users_words(wire: str, work: Work) -> None:
    for _, prepared in grow(work, wire):
        for edit in prepared.edits:
            assert "U> Please always provide" not in edit.text
            assert "U> <system-reminder>" not in edit.text


def test_a_new_task_of_a_person_takes_the_place_of_the_old_one() -> None:
    first = "Fix the export of reports. " + "Every column keeps its place in every format. " * 100
    second = "New task: write the release notes. " + "Name every change that users see. " * 40
    work = Work(
        [
            {"role": "user", "content": first},
            *(message for step in range(12) for message in make_step(step, 20)),
            {"role": "assistant", "content": "The export is fixed."},
            {"role": "user", "content": second},
            *(message for step in range(12, 60) for message in make_step(step, 20)),
            {"role": "assistant", "content": "Here they are."},
            {"role": "user", "content": "thanks, looks good"},
            {"role": "assistant", "content": "Good."},
        ],
        second,
    )
    *_, (_, prepared) = grow(work, "openai-chat")
    texts = texts_of(prepared.messages)
    assert second in texts
    assert first not in texts


@pytest.mark.parametrize("preset", ["archive", "importance", "offload", "hybrid", "turns"])
def test_a_record_of_a_preset_that_keeps_by_count_begins_with_the_task(preset: str) -> None:
    task = "Fix the export of reports, and keep the columns in order.\n\nWhen you are done, run `make submit`."
    steps = [make_step(step, 20) for step in range(60)]
    asked = [{"role": "user", "content": "how far are you?"}, {"role": "assistant", "content": "Half is done."}]
    messages = [message for at, step in enumerate(steps) for message in (*step, *(asked if at % 8 == 7 else ()))]
    *_, (_, prepared) = grow(Work([{"role": "user", "content": task}, *messages], task), "openai-chat", preset=preset)
    if task in texts_of(prepared.messages):
        assert preset == "importance", "only importance keeps old messages beside its record"
        return
    record = next(edit.text for edit in prepared.edits if edit.kind == "fold")
    words = " ".join(record.split())
    assert " ".join(task.split()) in words
    assert words.index("Fix the export") < words.index("report")
