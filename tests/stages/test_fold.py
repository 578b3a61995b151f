"""fold: old units become one summary; units that stay, places of cuts, and folds over earlier folds."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import compress
from refold.conversation import Edit, View
from refold.conversation.turn import find_cuts
from refold.conversation.view import apply, extend
from refold.errors import ConfigError
from refold.ladder.run import answer_nothing, drive, take_edits
from refold.stages.fold import Fold
from refold.stages.fold_units import works_alone
from refold.stages.stage import Ask, Goal, Reply
from refold.stages.window import Window
from refold.testing import find_violations
from tests.rigs.effort import up_to
from tests.rigs.engine import make_view
from tests.rigs.stages import assistant, lines, propose, read_records, run, shown, step, user, view_of
from tests.rigs.strategies import Talk, talks

ANY = Goal(target=1, hard=1_000_000, force=True)


def chat(turns: int) -> list[dict[str, Any]]:
    said = [(user(f"question {n} about topic_{n:03}"), assistant(f"answer {n}: {lines(4)}")) for n in range(turns)]
    return [message for pair in said for message in pair]


def agent(steps: int, ask: str = "Fix the build.") -> list[dict[str, Any]]:
    made = [step("bash", {"command": f"make target_{n:03}"}, lines(12, f"module_{n:03}.c")) for n in range(steps)]
    return [user(ask), *(message for pair in made for message in pair)]


def half(view: View) -> Goal:
    return Goal(target=view.tokens // 2, hard=view.tokens)


def ask_with(stage: Fold, view: View, goal: Goal, answer: Callable[[Ask], Reply]) -> View:
    proposal = stage.propose(view, goal)
    assert not isinstance(proposal, list)
    proposed = drive(proposal, answer)
    edits = proposed if isinstance(proposed, list) else proposed.edits
    after, _ = take_edits(view, edits, stage.name, strict=True)
    return after


def test_without_counts_the_oldest_units_go_until_the_target_is_met() -> None:
    view = view_of(agent(40))
    after = run(Fold(), view, half(view))
    assert after.tokens <= view.tokens // 2
    assert [item.is_fold for item in after.items[:3]] == [False, True, False]
    assert shown(after)[0] == "Fix the build."
    assert shown(after)[-1] == shown(view)[-1]
    assert after.tokens > view.tokens // 6, "no more is folded than the summary may need"


def test_nothing_is_folded_when_the_view_is_within_its_target() -> None:
    view = view_of(agent(10))
    assert propose(Fold(), view, Goal(target=view.tokens, hard=view.tokens)) == []


def test_the_kept_messages_are_counted_and_the_cut_moves_back_to_a_legal_one() -> None:
    view = view_of([*chat(10), user("list it"), *step("bash", {"command": "ls"}, "a.py"), assistant("done")])
    after = run(Fold(keep_messages=2), view, ANY)
    # Two from the end lies between a call and its result: the whole unit stays.
    assert len(after.items) == 1 + 1 + 3
    assert after.items[0].is_fold
    assert shown(after)[1] == "list it", "the newest user message is protected"


def test_kept_turns_stay_verbatim() -> None:
    view = view_of(chat(10))
    after = run(Fold(keep_turns=3), view, ANY)
    assert [item.raw for item in after.items[1:]] == chat(10)[-6:]
    assert after.items[0].edits[0].fold is not None
    assert after.items[0].edits[0].fold.turn_range == (1, 7)


def test_kept_rounds_of_an_agent_stay_verbatim() -> None:
    view = view_of(agent(10))
    after = run(Fold(keep_rounds=4), view, ANY)
    assert [item.raw for item in after.items[2:]] == agent(10)[-8:]


def test_fewer_messages_than_are_kept_means_nothing_to_do() -> None:
    view = view_of(chat(3))
    assert propose(Fold(keep_messages=50), view, ANY) == []
    assert propose(Fold(keep_turns=6), view, ANY) == []


@pytest.mark.parametrize(("messages", "folds"), [(6, 0), (8, 1)])
def test_up_to_the_least_number_of_messages_nothing_happens(messages: int, folds: int) -> None:
    view = view_of(chat(messages // 2))
    assert len(propose(Fold(keep_messages=2, min_messages=7), view, ANY)) == folds


def test_what_offloading_freed_may_make_folding_needless() -> None:
    view = view_of(chat(20))
    stage = Fold(keep_messages=5, offload_freed_min=15_000)
    enough = Goal(target=10, hard=view.tokens, tokens_freed=15_000)
    assert propose(stage, view, enough) == []
    assert propose(stage, view, Goal(target=10, hard=view.tokens, tokens_freed=14_999)) != []
    assert propose(stage, view, Goal(target=10, hard=view.tokens - 1, tokens_freed=15_000)) != [], "it must fit"


def test_important_units_stay_between_the_summary_and_the_recent() -> None:
    messages = [
        *chat(4),
        user("IMPORTANT: remember, the deadline is `2026-12-01`, must not slip"),
        *chat(4)[1:],
        *chat(4),
    ]
    view = view_of(messages)
    after = run(Fold(keep_turns=2, importance_threshold=0.3), view, ANY)
    kept = [item.raw for item in after.items if not item.is_fold]
    assert messages[8] in kept
    assert after.items[0].is_fold


def test_before_and_after_the_newest_user_message_there_are_separate_folds() -> None:
    view = view_of([*chat(10), *agent(20, ask="Now fix the other one.")])
    after = run(Fold(), view, Goal(target=view.tokens // 4, hard=view.tokens))
    newest = next(at for at, text in enumerate(shown(after)) if text == "Now fix the other one.")
    assert [at for at, item in enumerate(after.items) if item.is_fold] == [newest - 1, newest + 1]
    later = after.items[newest + 1].edits[0].text
    assert "target_" in later
    assert "target_0" not in after.items[newest - 1].edits[0].text


def test_system_and_pinned_messages_inside_stay_in_place() -> None:
    messages = [*chat(5), {"role": "system", "content": "Be brief."}, *chat(8)]
    view = view_of(messages)
    pinned = View(view.items, view.messages, (), view.lens, view.fixed_tokens, frozenset({view.messages[3].id}))
    after = run(Fold(keep_messages=2), pinned, ANY)
    raws = [item.raw for item in after.items if not item.is_fold]
    assert messages[3] in raws
    assert messages[10] in raws


def test_a_large_first_message_is_folded_a_small_one_keeps_the_prefix() -> None:
    small, large = view_of(agent(30)), view_of(agent(30, ask=lines(300)))
    assert shown(run(Fold(), small, half(small)))[0] == "Fix the build."
    # With one user turn the first message is also the newest: protected. A second turn makes it foldable.
    large = view_of([*agent(10, ask=lines(300)), *agent(10)])
    assert run(Fold(), large, Goal(target=1_500, hard=4_000)).items[0].is_fold


def test_a_new_fold_takes_the_earlier_one_in() -> None:
    messages = agent(60)
    view = view_of(messages[:61])
    first = run(Fold(), view, half(view))
    longer = apply(view_of(messages).messages, first.edits, view.lens, fixed_tokens=view.fixed_tokens)
    second = run(Fold(), longer, half(longer))
    folds = [item for item in second.items if item.is_fold]
    assert len(folds) == 1
    edit, earlier = folds[0].edits[0], first.items[1].edits[0]
    assert edit.made_from == (earlier.id,)
    assert edit.level == earlier.level + 1
    assert edit.covers[: len(earlier.covers)] == earlier.covers
    assert earlier.fold is not None
    assert edit.fold is not None
    assert {a.value for a in earlier.fold.artifacts} <= {a.value for a in edit.fold.artifacts}


def test_the_bare_line_of_a_later_rung_is_read_again_so_that_its_values_come_back_into_view() -> None:
    early = [message for n in range(6) for message in step("run", {"n": n}, f"built image_{n}a{n}f77 in {lines(30)}")]
    view = view_of([user("Build all."), *early, user("And now?"), *step("run", {}, lines(40))])
    bare = run(Window(summary_tokens_max=0), view, Goal(target=600, hard=600))
    assert "image_3a3f77" not in "".join(shown(bare))
    later = extend(bare, view_of([user("What next?"), *step("run", {}, lines(60)), assistant("done")]).messages)
    room = Goal(target=1_200, hard=2_000)
    again = run(Fold(standing_share=0.8, summary_share=0.4), later, replace(room, target=later.tokens // 2))
    assert "image_3a3f77" in "".join(shown(again))


def test_a_cut_between_a_question_and_its_answer_lists_nothing_as_open() -> None:
    talk = [said for n in range(30) for said in (user(f"Which paint for room {n}?"), assistant(lines(12, f"room {n}")))]
    view = view_of([*talk, user("Thanks, which brush?")])
    for target in range(view.tokens // 4, view.tokens, 150):
        edits = propose(Fold(), view, Goal(target=target, hard=view.tokens))
        assert "## Open" not in "".join(edit.text for edit in edits)


def test_an_ask_before_another_ask_stays_open_although_the_assistant_began_to_work() -> None:
    talk = [said for n in range(30) for said in (user(f"Which paint for room {n}?"), assistant(lines(12, f"room {n}")))]
    asked = [user("Also count the tins of blue."), user("First fix the lamp, please.")]
    view = view_of([*talk, *asked, *step("bash", {"command": "lamp"}, lines(12))])
    edits = propose(Fold(keep_messages=3), view, Goal(target=view.tokens // 4, hard=view.tokens))
    assert "Also count the tins of blue." in edits[0].text.split("## What the user wants")[1]


def test_a_record_that_lists_an_ask_as_open_is_written_again_once_the_answer_is_there() -> None:
    stage = Fold(standing_share=0.8, summary_tokens_least=1_500, summary_share=0.25)
    talk = [said for n in range(30) for said in (user(f"Which paint for room {n}?"), assistant(lines(12, f"room {n}")))]
    asked = [*talk, user("How many tins of blue do we need?"), user("And which brush? " + "Take your time. " * 400)]
    view = view_of(asked)
    first = propose(stage, view, Goal(target=view.tokens // 4, hard=view.tokens * 3 // 4))
    assert "tins of blue" in first[0].text.split("## Open")[1]
    later = extend(
        apply(view.messages, first, view.lens), view_of([*asked, assistant("Six tins."), *talk]).messages[len(asked) :]
    )
    again = propose(stage, later, Goal(target=later.tokens // 4, hard=later.tokens * 3 // 4))
    assert len(again[0].covers) > len(first[0].covers), "the new record takes the old one in"
    assert "## Open" not in again[0].text


def test_a_record_of_a_line_or_two_is_taken_in_by_the_next_one() -> None:
    stage = Fold(standing_share=0.8, summary_tokens_least=1_500, summary_share=0.25)
    steps = [one for n in range(60) for one in step("bash", {"command": f"make part{n}"}, lines(20, f"part {n}"))]
    view = view_of([user("Build everything."), *steps[:8]])
    small = propose(replace(stage, summary_tokens_max=100), view, Goal(target=view.tokens // 2, hard=view.tokens))
    grown = extend(apply(view.messages, small, view.lens), view_of([user("Build everything."), *steps]).messages[9:])
    assert small[0].tokens_after < 140
    record, *_ = propose(stage, grown, Goal(target=grown.tokens // 4, hard=grown.tokens))
    assert record.made_from == (small[0].id,)


def test_a_lone_fold_is_not_folded_again_and_again() -> None:
    view = view_of(agent(40))
    goal = Goal(target=view.tokens // 3, hard=view.tokens)
    after = run(Fold(), view, goal)
    again = propose(Fold(), after, Goal(target=1, hard=after.tokens))
    once = take_edits(after, again, "fold", strict=True)[0] if again else after
    assert len(propose(Fold(), once, Goal(target=1, hard=once.tokens))) <= 1
    assert once.tokens <= after.tokens


def test_force_does_not_make_a_small_span_beside_a_large_one_grow() -> None:
    view = view_of([*chat(10), user("go"), assistant("ok"), *step("bash", {"command": "ls"}, "a.py")])
    (edit,) = propose(Fold(keep_messages=2), view, ANY)
    assert len(edit.covers) == 20


def test_a_summary_that_would_not_be_smaller_is_not_made_unless_forced() -> None:
    view = view_of([user("hi"), assistant("hello"), user("how are you"), assistant("fine"), user("ok")])
    assert propose(Fold(keep_messages=1), view, Goal(target=1, hard=1_000)) == []
    forced = propose(Fold(keep_messages=1), view, ANY)
    assert len(forced) == 1
    assert forced[0].text


@pytest.mark.parametrize(
    ("stage", "role", "opening"),
    [
        (Fold(keep_messages=50, role="system", opening="[历史对话摘要]", style="short"), "system", "[历史对话摘要]\n"),
        (Fold(keep_messages=5, role="user", opening="[Compressed History]\n\n"), "user", "[Compressed History]\n\n"),
        (Fold(keep_messages=6, role="assistant", opening="[Context Summary]"), "assistant", "[Context Summary]\n"),
        (Fold(keep_turns=6, role="assistant", opening="[COMPACTED_CONTEXT]"), "assistant", "[COMPACTED_CONTEXT]\n"),
    ],
)
def test_each_document_gets_its_role_and_prefix(stage: Fold, role: str, opening: str) -> None:
    view = view_of(chat(60))
    (edit,) = propose(stage, view, ANY)
    assert edit.role == role
    assert edit.text.startswith(opening)


def test_a_fold_carries_its_key_points_and_facts() -> None:
    view = view_of([user("I prefer tabs. Fix it."), assistant("We decided to keep tabs."), *chat(10), user("go on")])
    (first,) = propose(Fold(keep_messages=1), view, ANY)
    assert first.fold is not None
    assert "I prefer tabs. Fix it." in first.fold.key_points
    assert {fact.kind for fact in first.fold.facts} == {"preference", "decision"}
    assert all(fact.handle.startswith("m:") for fact in first.fold.facts)


def test_a_model_writes_the_words_and_the_index_stays_mechanical() -> None:
    asked: list[Ask] = []

    def answer(ask: Ask) -> Reply:
        asked.append(ask)
        return Reply(
            text="## Current Status\nThe targets were made step by step. ⟦end of record⟧\n## Key Decisions\n- None."
        )

    view = view_of(agent(40))
    after = ask_with(Fold(summariser="llm"), view, half(view), answer)
    edit = after.items[1].edits[0]
    assert edit.fold is not None
    assert edit.fold.by == "llm"
    assert "The targets were made step by step. [[end of record]]" in edit.text
    assert "## Exact values" in edit.text
    assert edit.text.count("⟦") == 2
    assert "make target_001" in asked[0].prompt
    assert asked[0].tokens_max > 0


@pytest.mark.parametrize(
    "reply", [Reply(error="time-out"), Reply(text=""), Reply(text=" \n"), Reply(text=lines(4_000))]
)
def test_without_a_usable_answer_the_extract_stands_in(reply: Reply) -> None:
    view = view_of(agent(40))
    after = ask_with(Fold(summariser="llm"), view, half(view), lambda _: reply)
    edit = after.items[1].edits[0]
    assert edit.fold is not None
    assert edit.fold.by == "extract"
    assert after.tokens <= view.tokens // 2
    assert "make target_001" in edit.text


def test_instructions_and_the_earlier_summary_reach_the_model() -> None:
    asked: list[Ask] = []

    def answer(ask: Ask) -> Reply:
        asked.append(ask)
        return Reply(text="## Project Overview\nSummary of many steps.\n## Current Status\nOpen.")

    messages = agent(60)
    view = view_of(messages[:61])
    stage = Fold(summariser="llm", tool_chars_max=50, prompt_chars_max=2_000)
    first = ask_with(stage, view, half(view), answer)
    longer = apply(view_of(messages).messages, first.edits, view.lens, fixed_tokens=view.fixed_tokens)
    goal = Goal(target=longer.tokens // 2, hard=longer.tokens, instructions="keep the module names")
    ask_with(stage, longer, goal, answer)
    assert "keep the module names" in asked[-1].prompt
    assert "Summary of many steps." in asked[-1].prompt
    assert "make target_001" not in asked[-1].prompt, "what is folded already is not asked about again"
    assert len(asked[0].prompt) < 4_500


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="keep_messages"):
        Fold(keep_messages=-1)
    with pytest.raises(ConfigError, match="summary_share"):
        Fold(summary_share=1.5)


STAGES = (
    Fold(),
    Fold(keep_messages=2),
    Fold(keep_turns=1, style="short"),
    Fold(keep_rounds=1, style="truncated", opening="[T]"),
)


@settings(max_examples=up_to(80))
@given(talks(), st.sampled_from(STAGES), st.sampled_from([0.2, 0.6]), st.booleans())
def test_any_fold_of_any_conversation_is_legal_and_the_same_every_time(
    talk: Talk, stage: Fold, share: float, force: bool
) -> None:
    kept = copy.deepcopy(talk.messages)
    view = make_view(talk.wire, talk.messages, talk.system, talk.tools)
    goal = Goal(target=int(view.tokens * share), hard=view.tokens, force=force)
    edits = propose(stage, view, goal)
    assert edits == propose(stage, view, goal)
    assert talk.messages == kept
    after, report = take_edits(view, edits, "fold", is_forced=force, strict=True)
    assert [edit.id for edit in report.edits] == [edit.id for edit in edits]
    known = {strip_digits(fault) for fault in find_violations(talk.wire, talk.messages)}
    assert {strip_digits(fault) for fault in find_violations(talk.wire, [item.raw for item in after.items])} <= known
    cuts = set(find_cuts(view.messages))
    places = {message.id: at for at, message in enumerate(view.messages)}
    for edit in (edit for edit in edits if edit.kind == "fold"):
        spots = [places[message_id] for message_id in edit.covers]
        starts = {at for at in spots if at - 1 not in spots}
        assert starts <= cuts


def strip_digits(fault: str) -> str:
    return "".join("#" if letter.isdigit() else letter for letter in fault)


@pytest.mark.parametrize("name", ["tau_airline", "swe_mini", "agent_native_misc", "zh_dialogues", "bfcl_long_replay"])
def test_recorded_sessions_fold_to_valid_views(shared_data: Path, name: str) -> None:
    for record in read_records(shared_data, name, 4):
        view = view_of(record["messages"])
        goal = Goal(target=int(view.tokens * 0.3), hard=int(view.tokens * 0.8))
        edits = drive_if_needed(Fold(), view, goal)
        after, report = take_edits(view, edits, "fold", strict=True)
        assert [edit.id for edit in report.edits] == [edit.id for edit in edits]
        assert after.tokens <= view.tokens


def drive_if_needed(stage: Fold, view: View, goal: Goal) -> list[Any]:
    proposed = stage.propose(view, goal)
    return proposed if isinstance(proposed, list) else drive(proposed, answer_nothing)


def test_the_story_of_a_long_session_survives_many_small_folds() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "story" / "agent_zh.json"
    work = json.loads(path.read_text("utf-8"))["messages"]
    edits: Sequence[Edit] = ()
    for at in range(2, len(work) + 1, 2):
        edits = compress(work[:at], 2_300, edits=edits).edits
    longest = max((edit for edit in edits if edit.kind == "fold"), key=lambda edit: len(edit.covers))
    assert longest.tokens_after > 250, "beside a large output the record of all that was before it keeps its room"


def test_a_chat_keeps_its_last_exchanges_beside_a_record_that_can_hold_a_story() -> None:
    talk = []
    for n in range(60):
        talk += [user(f"What did shop {n} cost?"), assistant(f"Shop {n} cost {n}5 euros.")]
    view = view_of(talk)
    hard = view.tokens * 2 // 5
    fold = Fold(summary_share=0.25, summary_tokens_least=1_500, standing_share=0.8)
    after = run(fold, view, Goal(target=hard * 2 // 5, hard=hard, soft=hard))
    record = next(item for item in after.items if item.is_fold)
    assert record.tokens > hard // 4
    assert sum(not item.is_fold for item in after.items) >= 8
    assert after.tokens <= hard


def test_a_session_of_an_agent_gets_the_same_room_in_the_format_of_either_provider() -> None:
    openai, anthropic = [user("Fix the build.")], [user("Fix the build.")]
    for number in range(30):
        said, output = f"Step {number}: module_{number} fails, so I read it.", lines(40, f"module {number}")
        openai += step("read", {"path": f"src/module_{number}.py"}, output)
        openai[-2]["content"] = said
        call = {"type": "tool_use", "id": "call_1", "name": "read", "input": {"path": f"src/module_{number}.py"}}
        anthropic += [
            assistant([{"type": "text", "text": said}, call]),
            user([{"type": "tool_result", "tool_use_id": "call_1", "content": output}]),
        ]
    sizes = []
    for wire, messages in (("openai-chat", openai), ("anthropic", anthropic)):
        view = view_of(messages, wire)
        assert works_alone(view)
        [fold] = [item for item in run(Fold(), view, half(view)).items if item.is_fold]
        sizes.append((len(fold.messages), fold.tokens))
    (covered, tokens), (same, about) = sizes
    assert covered == same
    assert abs(tokens - about) <= tokens // 10


def test_an_agent_whose_results_come_as_user_text_gets_the_room_of_an_agent() -> None:
    talk = [user("Fix the parser.")]
    for number in range(30):
        talk += [
            assistant(f"Part {number} fails because setting_{number} has a wrong default."),
            user(f"<returncode>0</returncode>\n<output>\n{lines(30)}\n</output>"),
        ]
    view = view_of(talk)
    assert works_alone(view)
    (edit,) = propose(Fold(), view, Goal(target=view.tokens // 3, hard=view.tokens // 2))
    assert "U> <returncode>" not in edit.text
    assert "(turn 1)" in edit.text
