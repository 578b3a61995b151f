"""What a person sees in a record, whoever writes it: nothing here knows how a record is made."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import refold
from refold.config import PRESETS, CompressionConfig

# Text that is left out says how much, and where it is: "[+41 m:1790d2]", "[… 300 characters left out, m:1790d2]".
ACCOUNTED = re.compile(r"\[…{0,2} ?\+?(?:省略 )?[\d,]+[^\[\]\n]{0,40}[mf]:[0-9a-f]{4,}[^\[\]\n]{0,8}\]")
Chat = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(number: int, words: str, command: str, output: str) -> Chat:
    call = {"name": "bash", "arguments": json.dumps({"command": command})}
    calls = [{"id": f"c{number}", "type": "function", "function": call}]
    return [
        {"role": "assistant", "content": words, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]


def records_of(messages: Chat, budget: int, **settings: Any) -> str:
    """Return the text of all records of a conversation in so many tokens."""
    prepared = refold.compress(messages, budget, config=CompressionConfig(**settings))
    texts = [edit.text for edit in prepared.edits if edit.kind == "fold"]
    assert texts, "the test is about a conversation that is folded"
    return "\n".join(texts)


def fill(count: int, about: str = "parser") -> Chat:
    """Steps of ordinary work that push what came before them out of the view."""
    return [
        message
        for n in range(count)
        for message in step(
            900 + n,
            f"I look at part {n} of the {about}. It reads its input line by line, keeps a stack of open blocks, and "
            f"closes block {n} too early when a line is blank. That is one more place that has to change with the "
            f"others, and I will come back to it when the tests for block {n} are there.",
            f"sed -n '{n * 40},{n * 40 + 40}p' src/{about}/block_{n}.py | grep -n 'def close_block_{n}' | head -n 20 "
            f"| sort -k2 | uniq -c",
            "\n".join(f"{n * 40 + i}: def close_block_{n}_{i}(stack): return stack[-{i}]" for i in range(30)),
        )
    ]


@pytest.mark.parametrize("budget", [1_200, 2_500, 5_000])
@pytest.mark.parametrize("preset", PRESETS)
def test_text_that_is_left_out_says_how_much_and_where_it_is(preset: str, budget: int) -> None:
    text = records_of([user("Fix the parser of blocks."), *fill(40), user("go"), *fill(3)], budget, preset=preset)
    # The document of hybrid cuts each message at 100 characters and marks that itself; its handle is below.
    bare = ACCOUNTED.sub("", re.sub(r"^\[(?:user|assistant|tool|system)\]: .*\.\.\.$", "", text, flags=re.M))
    assert "…" not in bare, bare[max(0, bare.index("…") - 80) :][:160]
    assert "..." not in bare
    assert not re.search(r"'def \w+(?<!close_block_)(?<!\d)(?:,|$)", bare, re.M), "no command ends within a word"


NOTHING = {
    "thanks": [user("thanks"), assistant("You are welcome.")] * 40,
    "silent calls": [message for n in range(40) for message in step(n, "", "true " * 30, "")],
    "signs": [user("!!!"), assistant("...")] * 60,
    "blank": [user(" "), assistant(" ")] * 60,
}


@pytest.mark.parametrize("about", NOTHING)
@pytest.mark.parametrize("preset", PRESETS)
def test_no_record_is_empty_in_any_preset(preset: str, about: str) -> None:
    messages = [*NOTHING[about], user("Now tell me about the parser."), *fill(4)]
    prepared = refold.compress(messages, 800, config=CompressionConfig(preset=preset, threshold_rounds=20))
    folds = [edit for edit in prepared.edits if edit.kind == "fold"]
    assert folds
    for edit in folds:
        said = re.sub(r"⟦|⟧|⟨[^⟩]*⟩|\[[^\]]*(?:摘要|Summary|History|CONTEXT)[^\]]*\]|（以上为[^）]*）", "", edit.text)
        said = said.replace("(The above sums up the earlier conversation; read it together with what follows.)", "")
        assert re.search(r"\w", said), edit.text


INVOICES = [f"INV-2025-{91484 + 37 * n}" for n in range(14)]
CLAIM = "14 invoices charge one night too many:"


@pytest.mark.parametrize("budget", [1_500, 3_000, 6_000])
def test_a_list_is_whole_or_its_claim_and_count_are_there(budget: int) -> None:
    listed = "\n".join(f"- {name} (Porto da Fonte)" for name in INVOICES)
    report = f"I compared the stays with the bills.\n\n{CLAIM}\n{listed}\n\nThe cause is the night audit."
    text = records_of(
        [
            user("Which invoices are wrong?"),
            *fill(3),
            assistant(report),
            user("I see."),
            *fill(30),
            user("go"),
            *fill(2),
        ],
        budget,
    )
    story = text.split("## Exact values")[0]
    shown = [name for name in INVOICES if name in story]
    if shown:
        assert shown == INVOICES, "a part of a list is no list"
    if shown or "invoices" in story:
        assert CLAIM.rstrip(":") in story
    assert "(Porto da Fonte) " not in story or shown


@pytest.mark.parametrize("words", ["OK, do that.", "yes, go ahead", "Sounds good", "好的，就这样做"])
def test_an_approval_is_quoted_with_what_it_approves_or_not_at_all(words: str) -> None:
    proposal = "Shall I move the image renderer into its own service and delete the old queue?"
    asked = [assistant(f"The renderer shares a queue with the mailer. {proposal}"), user(words)]
    text = records_of([user("Why are images slow?"), *fill(3), *asked, *fill(30), user("go"), *fill(2)], 4_000)
    for line in text.splitlines():
        if line.startswith("U>") and words in line:
            assert "move the image renderer" in line


@pytest.mark.parametrize("budget", [2_000, 4_000])
def test_a_commit_keeps_its_hash(budget: int) -> None:
    output = "[main 4ddf044] parser: close blocks late\n 3 files changed, 41 insertions(+), 7 deletions(-)"
    commit = step(1, "The tests pass, so I commit.", 'git commit -am "parser: close blocks late"', output)
    text = records_of([user("Fix the parser."), *fill(4), *commit, *fill(12), user("go"), *fill(2)], budget)
    assert "git commit" not in text or "4ddf044" in text
    assert "4ddf044" in text


def test_a_recorded_talk_keeps_its_dates_and_who_speaks() -> None:
    talk: Chat = []
    for day in range(1, 25):
        stamp = f"(1:{day + 10} pm on {day} May, 2023)"
        talk.append(user(f"{stamp} Ana: I moved to house {day} in Lisbon and painted the kitchen number {day} green."))
        talk.append(assistant(f"{stamp} Ben: My dog number {day} ran away to the forest near village {day}."))
    text = records_of(talk, 900)
    quoted = [line for line in text.splitlines() if line.startswith(("U> ", "A> "))]
    assert quoted
    days = [re.search(r"(?:house|dog number) (\d+)", line)[1] for line in quoted]  # type: ignore[index]
    for day, line in zip(days, quoted, strict=True):
        if f"on {day} May, 2023" not in line:
            assert any(f"on {day} May, 2023" in other for other in quoted[: quoted.index(line)])
    assert "Ana:" in text or "Ben:" in text


def test_politeness_and_offers_take_no_line_of_a_record() -> None:
    empty = ("You're right to ask about this.", "Good question!", "Is there anything else to adjust in the document?")
    work = [user("Rework the parser of our configuration files so that blank lines close nothing.")]
    for n, words in enumerate(empty):
        work += [
            user(f"And what of block {n}?"),
            assistant(f"{words} Block {n} is closed by `close_{n}`, too."),
            *fill(4),
        ]
    text = records_of([*work, user("Which part is left?")], 2_500)
    assert "`close_1`" in text
    assert [words for words in empty if words in text] == []
