"""``compress`` itself: what it accepts, what it refuses and how, pins, previews, budgets around the least one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import refold
from refold.errors import BudgetTooSmall, ConfigError, FormatError, HandleUnknown
from refold.testing import find_violations
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.effort import first_of, is_quick

SESSIONS = Path(__file__).resolve().parents[1] / "examples" / "sessions"


def make_talk(turns: int = 12, words: int = 120) -> list[dict[str, Any]]:
    """A system prompt, then questions with one tool call each."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be exact."}]
    for turn in range(turns):
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": f'{{"at": {turn}}}'}}
        messages += [
            {"role": "user", "content": f"question {turn} " * (words // 4)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": f"value {turn * 1313} " * words},
            {"role": "assistant", "content": f"answer {turn} " * (words // 4)},
        ]
    return [*messages, {"role": "user", "content": "And now?"}]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"pinned": "abc"}, FormatError, "pinned holds a str"),
        ({"pinned": [1.0]}, FormatError, "pinned holds a float"),
        ({"pinned": 5.5}, FormatError, "pinned holds a float"),
        ({"pinned": [999]}, FormatError, "pinned names message 999"),
        ({"edits": [None]}, FormatError, "edits holds a NoneType"),
        ({"edits": "id"}, FormatError, "edits holds a str"),
        ({"edits": 5}, FormatError, "edits holds a int"),
        ({"model": 5}, ConfigError, "model must be"),
        ({"config": "x"}, ConfigError, "config must be a CompressionConfig"),
        ({"config": refold.CompressionConfig(), "preset": "default"}, ConfigError, "not both"),
        ({"preset": "nope"}, ConfigError, "unknown preset"),
        ({"format": "nope"}, FormatError, "unknown"),
        ({"system": 5}, FormatError, "system"),
    ],
)
def test_a_wrong_argument_is_a_typed_error_that_says_what_is_wrong(
    given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        refold.compress(make_talk(), 2_000, **given)


@pytest.mark.parametrize("handle", [None, 5, "", "m:", "x" * 100_000, "⟨m:zzzz⟩", "m:dead", "f:dead", "../x"])
def test_an_invalid_handle_is_refused(handle: Any) -> None:
    with pytest.raises(HandleUnknown):
        refold.compress(make_talk(), 2_000).expand(handle)


def test_every_handle_in_the_result_leads_to_its_original_whole_or_by_pages() -> None:
    messages = make_talk()
    prepared = refold.compress(messages, 2_000)
    fold = next(edit.fold for edit in prepared.edits if edit.fold)
    whole = prepared.expand(f"⟨{fold.handle.upper()}⟩")
    assert messages[3]["content"] in whole
    assert messages[5]["content"] in whole
    assert prepared.expand(fold.handle[:6]) == whole
    pages = [prepared.expand(fold.handle, at, 1_000) for at in range(0, len(whole) + 1_000, 1_000)]
    assert "".join(pages) == whole


@pytest.mark.parametrize("preset", ["default", "archive", "importance", "offload", "hybrid", "turns"])
def test_a_pinned_message_comes_out_as_the_object_that_came_in(preset: str) -> None:
    messages = make_talk()
    pinned = [5, 6, 7, 20]
    prepared = refold.compress(messages, 4_000, preset=preset, pinned=pinned, strict=True)
    assert all(any(message is messages[at] for message in prepared.messages) for at in pinned)


@pytest.mark.parametrize("wire", first_of(["openai-chat", "anthropic", "openai-responses"], 1))
def test_around_the_least_budget_it_fits_or_says_what_cannot_shrink_and_the_figure_it_names_works(wire: str) -> None:
    messages: Any = make_talk()
    system = None
    if wire == "anthropic":
        body = to_anthropic(messages, None)
        messages, system = body["messages"], body.get("system")
    elif wire == "openai-responses":
        body = to_responses(messages, None)
        messages, system = body["input"], body.get("instructions")
    refused = fitted = 0
    step = 3 if is_quick() else 1
    for budget in (*range(1, 140, 3 * step), *range(140, 2_400, 61 * step)):
        try:
            prepared = refold.compress(messages, budget, system=system, format=wire, strict=True)
        except BudgetTooSmall as error:
            refused += 1
            assert fitted == 0, "a larger budget is never worse"
            least = int(str(error).partition("at least ")[2].split(" ")[0].replace(",", ""))
            assert refold.compress(messages, least, system=system, format=wire).total_tokens <= least
        else:
            fitted += 1
            assert prepared.total_tokens <= budget
            assert prepared.messages[-1] is messages[-1]
            assert find_violations(wire, prepared.messages) == []
    assert refused
    assert fitted


def test_a_preview_tells_what_would_be_done_and_changes_nothing() -> None:
    messages = make_talk()
    preview = refold.compress(messages, 2_000, dry_run=True)
    done = refold.compress(messages, 2_000)
    assert all(one is two for one, two in zip(preview.messages, messages, strict=True))
    assert [edit.id for edit in preview.edits] == [edit.id for edit in done.edits]
    assert preview.report is not None
    assert preview.report.tokens_after == done.total_tokens < preview.total_tokens


def run_seeded(code: str, given: object, seed: str) -> str:
    """Return what a program prints that gets a value as JSON, in a process with this hash seed."""
    command, environment = [sys.executable, "-c", code], {"PYTHONHASHSEED": seed, "PATH": ""}
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def test_two_processes_with_different_hash_seeds_write_the_same_bytes() -> None:
    messages = make_talk()
    code = (
        "import json, sys, refold\n"
        "messages = json.load(sys.stdin)\n"
        "for preset in ('default', 'archive', 'importance', 'offload', 'hybrid', 'turns'):\n"
        "    made = refold.compress(messages, 1500, preset=preset)\n"
        "    print(json.dumps(made.messages), [edit.id for edit in made.edits])\n"
    )
    runs = [run_seeded(code, messages, seed) for seed in ("1", "4242")]
    assert runs[0] == runs[1]
    assert runs[0].count("\n") == 6


def test_a_sentence_weighs_the_same_in_two_processes_with_different_hash_seeds() -> None:
    """Otherwise two gateways that share a session could write different records of one span."""
    code = (
        "import json, sys\n"
        "from refold.stages.record.story import WordRarity\n"
        "sentences = json.load(sys.stdin)\n"
        "rarity = WordRarity(sentences)\n"
        "print([rarity.weigh(sentence) for sentence in sentences])\n"
    )
    lines = (SESSIONS / "chat_zh.jsonl").read_text("utf-8").splitlines()
    sentences = [json.loads(line)["content"] for line in lines]
    weights = [run_seeded(code, sentences, seed) for seed in ("1", "3")]
    assert len(json.loads(weights[0])) > 50
    assert weights[0] == weights[1]


def test_a_fold_leaves_no_anthropic_system_message_where_none_is_accepted(tmp_path):
    from refold.testing.provider_rules import find_refusal

    messages = [{"role": "user", "content": "Do it."}, {"role": "system", "content": "Agents: none."}]
    for number in range(40):
        call = {"type": "tool_use", "id": f"t{number}", "name": "run", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"out{number} " * 150}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        if number % 5 == 0:
            messages.append({"role": "system", "content": f"Reminder {number}."})
    with refold.ContextCompressionManager(refold.CompressionConfig(window=8_000), tmp_path) as manager:
        made = [
            refold.compress(messages, 7_000, format="anthropic"),
            manager.prepare_context_sync("s", messages, model="claude-opus-5-5", format="anthropic"),
        ]
    for one in made:
        assert one.edits
        assert find_refusal("anthropic", {"model": "m", "max_tokens": 5, "messages": one.messages}, None) is None
        assert "Agents: none." in str(one.messages)
