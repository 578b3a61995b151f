"""Copied text and the whole bill, on sessions small enough to count by hand."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from refold.budget import Budget, Tariff
from refold.readers.session import Session
from refold.replay.policy import BASELINES, PolicyRoom, Raw, Step
from refold.replay.record import CopyIndex, SessionRecord
from refold.replay.report import tally_preset
from refold.replay.run import replay_session
from refold.tokens import CacheRules, counter_for

TARIFF = Tariff(CacheRules(read=0.1, write=1.25, lifetime_s=300), output=5.0)
COUNTER = counter_for("gpt-4o")
# Eleven words: two runs of ten.
SENTENCE = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda"
CHINESE = "退款必须在七个工作日内完成"  # 13 signs: four runs.
FILLER = "Nothing of interest happened here. " * 30


def call(number: int, text: str, **arguments: str) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps(arguments or {"command": f"run {number}"}, ensure_ascii=False)}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def grow(*last: dict[str, Any], first: str = "Please look.", source: str = SENTENCE, steps: int = 3) -> Session:
    """A task, a step that brings the source, steps without interest, and the last messages."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": first}, call(0, ""), result(0, source)]
    for number in range(1, steps + 1):
        messages += [call(number, ""), result(number, FILLER)]
    return Session("s", (*messages, *last))


def replay(session: Session, policy: str, hard: int = 10**6) -> SessionRecord:
    budget = Budget(hard=hard, soft=hard, warn=hard, target=hard // 2, window=hard)
    return replay_session(session, policy, BASELINES[policy], lambda _: budget, counter=COUNTER, tariff=TARIFF)


def test_text_copied_from_an_older_message_is_in_view_when_everything_is_sent() -> None:
    record = replay(grow(call(9, f"It says: {SENTENCE}.")), "raw")
    last = record.requests[-1]
    assert (last.runs, last.runs_in_view, last.rereads) == (2, 2, ())
    assert [request.runs for request in record.requests[:-1]] == [0] * 4


def test_a_source_that_left_the_view_is_charged_once_with_its_own_tokens() -> None:
    session = grow(call(9, SENTENCE))
    last = replay(session, "last-n", 400).requests[-1]
    assert (last.runs, last.runs_in_view) == (2, 0)
    # Per result: role, name and frame, as the counter counts them.
    source = COUNTER.count_messages([session.messages[2]]) - COUNTER.count_messages([])
    assert last.rereads == (source,)
    assert last.charge_rereads(TARIFF) == pytest.approx(0.1 * last.tokens + 60 * 5.0 + source)


def test_copies_in_call_arguments_count_and_a_run_counts_once_per_answer() -> None:
    answer = call(9, SENTENCE, command=f"echo '{SENTENCE}'", note=SENTENCE)
    assert replay(grow(answer), "raw").requests[-1].runs == 2


def test_chinese_is_counted_by_signs() -> None:
    last = replay(grow(call(9, f"规定是{CHINESE}。"), source=f"政策：{CHINESE}，例外除外。"), "last-n", 400).requests[
        -1
    ]
    assert (last.runs, last.runs_in_view, len(last.rereads)) == (4, 0, 1)


def test_nine_words_are_not_a_run() -> None:
    nine = " ".join(SENTENCE.split()[:9])
    assert replay(grow(call(9, nine)), "raw").requests[-1].runs == 0


def test_the_first_user_message_and_the_newest_step_are_not_sources() -> None:
    assert replay(grow(call(9, SENTENCE), first=SENTENCE, source="nothing"), "raw").requests[-1].runs == 0
    again = grow(call(8, ""), result(8, SENTENCE), call(9, SENTENCE))
    assert replay(again, "raw").requests[-1].runs == 0, "the newest step shows it, whatever else was folded"


def test_a_copy_that_the_first_user_message_still_shows_is_in_view() -> None:
    last = replay(grow(call(9, SENTENCE), first=SENTENCE), "mask", 400).requests[-1]
    assert (last.runs, last.runs_in_view) == (2, 2)


def test_what_the_assistant_said_itself_cannot_be_read_again_and_is_no_source() -> None:
    said = [call(7, f"I note that {SENTENCE}."), result(7, FILLER), call(8, ""), result(8, FILLER)]
    assert replay(grow(*said, call(9, SENTENCE), source="nothing"), "raw").requests[-1].runs == 0
    written = [call(7, "", command=f"echo '{SENTENCE}' > a.txt"), result(7, FILLER), call(8, ""), result(8, FILLER)]
    assert replay(grow(*written, call(9, SENTENCE), source="nothing"), "raw").requests[-1].runs == 2


def test_a_result_is_in_view_where_the_assistant_still_quotes_it() -> None:
    said = [call(7, f"I note that {SENTENCE}."), result(7, FILLER), call(8, ""), result(8, FILLER)]
    last = replay(grow(*said, call(9, SENTENCE)), "last-n", 500).requests[-1]
    assert (last.runs, last.runs_in_view) == (2, 2)


class Drop(Raw):
    """Drops one more step, the oldest, before each of the named requests."""

    def __init__(self, room: PolicyRoom, before: tuple[int, ...]) -> None:
        super().__init__(room)
        self._before = before
        self._requests = 0

    def prepare(self, idle_s: float = 0.0) -> Step:
        self._requests += 1
        if self._requests in self._before:
            del self._items[1:3]
        return super().prepare(idle_s)


def test_what_was_read_again_is_charged_again_only_after_the_next_compression() -> None:
    other = SENTENCE.upper()
    ends = [one for number in (6, 7, 8, 9) for one in (call(number, ""), result(number, FILLER))]
    # Both sentences come from the same message; request 5 copies the first, 6 the second, 9 the first again.
    ends[0]["content"], ends[2]["content"] = SENTENCE, other
    session = grow(*ends, call(10, SENTENCE), source=f"{SENTENCE}\n{other}", steps=3)
    budget = Budget(hard=10**6, soft=10**6, warn=10**6, target=10**6, window=10**6)

    def count_rereads(*before: int) -> list[int]:
        record = replay_session(
            session, "drop", lambda room: Drop(room, before), lambda _: budget, counter=COUNTER, tariff=TARIFF
        )
        return [len(request.rereads) for request in record.requests]

    assert count_rereads(4) == [0, 0, 0, 0, 1, 0, 0, 0, 0], "the copy in request 5 stays in view for request 9"
    assert count_rereads(4, 6) == [0, 0, 0, 0, 1, 1, 0, 0, 0], "after a second compression it is read a second time"


def test_the_whole_bill_of_raw_is_its_bill_and_that_of_others_is_larger() -> None:
    session = grow(call(9, SENTENCE))
    raw = tally_preset("raw", [replay(session, "raw")], lambda _: TARIFF)
    assert raw.whole_bill == raw.charge.total
    assert raw.copied.percent == 100.0
    cut = replay(session, "last-n", 400)
    tally = tally_preset("last-n", [cut], lambda _: TARIFF)
    assert tally.rereads == 1
    assert tally.whole_bill == pytest.approx(tally.charge.total + cut.requests[-1].charge_rereads(TARIFF))
    assert SessionRecord.from_dict(json.loads(json.dumps(asdict(cut)))) == cut


@pytest.mark.parametrize("text", ["", "\ud800" * 12, "[" * 5_000, "\x00 " * 40])
def test_odd_texts_are_read_without_harm(text: str) -> None:
    session = grow(call(9, text, command=text), source=text)
    assert replay(session, "raw").requests[-1].runs_in_view == replay(session, "raw").requests[-1].runs


def test_broken_call_arguments_are_read_as_text() -> None:
    answer = call(9, "")
    answer["tool_calls"][0]["function"]["arguments"] = f'{{"command": "{SENTENCE}'
    assert replay(grow(answer), "raw").requests[-1].runs == 2


def test_an_empty_session_has_an_index_too() -> None:
    assert CopyIndex(()).find_copied(0, 0, ()).runs == 0
