"""The artifact index: exact values of a span, ranked, within a budget, each a substring of what was said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.conversation import Artifact
from refold.reading.values import classify_word, find_values
from refold.stages.extract import find_artifacts, merge_artifacts, rank, write_index
from refold.stages.extract.actions import find_actions
from refold.stages.extract.index import ARTIFACTS_MAX, find_meaning, find_useful
from refold.tokens import counter_for
from tests.effort import up_to
from tests.laws.strategies import Talk, talks
from tests.stages.sessions import assistant, step, user, view_of

COUNT = counter_for(None).count_text


def values_of(text: str, **options: bool) -> dict[str, str]:
    return {value: sort for sort, value in find_values(text, **options)}


def artifacts_of(messages: list[dict[str, Any]]) -> list[Artifact]:
    return find_artifacts(view_of(messages).messages)


def list_values(messages: list[dict[str, Any]]) -> list[str]:
    return [artifact.value for artifact in artifacts_of(messages)]


@pytest.mark.parametrize(
    ("text", "value", "sort"),
    [
        ("see src/app/server.py:12:4: error", "src/app/server.py", "file"),
        ("wrote /etc/nginx/nginx.conf.", "/etc/nginx/nginx.conf", "file"),
        ("tail app.log and result.json", "app.log", "file"),
        ("saved response.json beside session.db", "response.json", "file"),
        ("row = client.db", "client.db", "identifier"),
        ("run tests/test_a.py::TestA::test_b now", "tests/test_a.py::TestA::test_b", "file"),
        ("reservation XEWRD9 is yours", "XEWRD9", "id"),
        ("user mia_li_3668", "mia_li_3668", "id"),
        ("commit 4f2a91c3d", "4f2a91c3d", "id"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000", "id"),
        ("ticket JIRA-4512", "JIRA-4512", "id"),
        ("colour #8abeb7", "#8abeb7", "id"),
        ("on 2024-05-20 at noon", "2024-05-20", "date"),
        ("pay $1,250.50 now", "$1,250.50", "money"),
        ("took 250ms", "250ms", "number"),
        ("version 2.31.0rc1 is out", "2.31.0rc1", "version"),
        ("listens on localhost:8080", "localhost:8080", "address"),
        ("mail ana.b@example.com please", "ana.b@example.com", "email"),
        ("https://example.com/a?b=1.", "https://example.com/a?b=1", "url"),
        ("call get_user_details()", "get_user_details", "identifier"),
        ("class MyModelAdmin:", "MyModelAdmin", "identifier"),
        ("use django.db.models", "django.db.models", "identifier"),
        ("MAX_RETRY_COUNT = 3", "MAX_RETRY_COUNT", "identifier"),
        ("门票150元", "150元", "number"),
        ("定于2024年5月20日出发", "2024年5月20日", "number"),
    ],
)
def test_each_kind_of_exact_value_is_found_whole(text: str, value: str, sort: str) -> None:
    assert values_of(text).get(value) == sort


@pytest.mark.parametrize("text", ["the quick brown fox", "Hello there", "e.g. this", "and/or that", "看一下这个吧", ""])
def test_ordinary_words_are_not_values(text: str) -> None:
    assert values_of(text) == {}


def test_names_in_quotes_and_capitals_are_taken_from_what_people_say() -> None:
    found = values_of(
        "please greet Michael Thompson, subject 'Tire Pressure Issue', tag #RoadTrip 《活着》", with_names=True
    )
    assert {"Michael Thompson", "Tire Pressure Issue", "#RoadTrip", "活着"} <= set(found)


def test_a_common_word_in_quotes_is_not_a_name_but_in_backticks_it_is_a_name_of_the_code() -> None:
    text = """Answer "yes." or 'available' or “no”; call `dedent`, say 'Cheers!', title "Harbour view"."""
    assert set(values_of(text, with_names=True)) == {"dedent", "Cheers!", "Harbour view"}


def test_the_text_between_two_quoted_phrases_is_not_a_phrase() -> None:
    assert "and then" not in values_of('say "first thing" and then "second thing"', with_names=True)


def test_line_numbers_keys_of_records_and_sed_scripts_are_layout() -> None:
    assert set(values_of("   1741\tdef find_me_1():")) == {"find_me_1"}
    assert set(values_of('[{"flight_number": "HAT052", "date": "2024-05-20"}]')) == {"HAT052", "2024-05-20"}
    assert set(values_of("sed -n '1740,1750p' src/a.py")) == {"src/a.py"}
    assert set(values_of("sed -n '/class Year/,/as_sql/p' src/a.py")) == {"src/a.py"}


def test_the_address_of_an_object_is_not_an_id_and_a_decorator_is_not_a_name() -> None:
    assert not values_of("<Package object at 0x78effdf94340>")
    code = "Ask @alice about this:\n    @property\n    def end(self): ..."
    assert set(values_of(code, with_names=True)) == {"@alice"}


def test_a_line_of_code_is_not_a_label_of_the_number_below_it() -> None:
    printed = "else:\n  1572 pass\nport: 8412"
    noted = {value: find_meaning("number", value, printed)[0] for value in ("1572", "8412")}
    assert noted == {"1572": "", "8412": "port"}


def test_a_statement_does_not_end_inside_a_word() -> None:
    told = "TS1343: The 'import.meta' meta-property is only allowed when the module option is es2020."
    assert find_meaning("id", "TS1343", told) == ("", "")


def test_that_a_file_was_read_later_does_not_undo_that_it_was_written() -> None:
    written, read = (Artifact("file", "src/a.py", "m:1", note, 1.0) for note in ("written", "read"))
    assert merge_artifacts([written], [read])[0].note == "written"
    assert merge_artifacts([read], [written])[0].note == "written"


def test_values_that_a_person_and_a_call_named_rank_before_those_of_a_long_listing() -> None:
    listing = "\n".join(f"lib/module_{number}.py" for number in range(300))
    messages = [
        user("the order is ORD77812"),
        *step("bash", {"command": "find lib"}, listing),
        *step("get_order", {"order_id": "ORD77812"}, '{"status": "open"}'),
    ]
    assert list_values(messages)[0] == "ORD77812"


def test_files_are_noted_as_read_written_and_deleted() -> None:
    messages = [
        user("go"),
        *step("read_file", {"path": "src/a.py"}, "x"),
        *step("str_replace_editor", {"command": "create", "path": "src/b.py", "file_text": "x = 1"}, "ok"),
        *step("bash", {"command": "sed -i '' 's/a/b/' src/c.py && rm old.txt"}, ""),
        *step("bash", {"command": "cat <<'EOF' > made.py\nif a > b.c:\n    pass\nEOF"}, ""),
        *step("apply_patch", {"input": "*** Begin Patch\n*** Delete File: gone.py\n*** End Patch"}, "Done"),
        *step("bash", {"command": "git mv one.py two.py"}, ""),
        *step("bash", {"command": "sed -i '3c\\\\\n    if typ:\\\\\n        f(\"it\\'s\")' src/d.py"}, ""),
    ]
    notes = {artifact.value: artifact.note for artifact in artifacts_of(messages) if artifact.note}
    assert notes == {
        "src/a.py": "read",
        "src/b.py": "written",
        "src/c.py": "written",
        "old.txt": "deleted",
        "made.py": "written",
        "gone.py": "deleted",
        "one.py": "deleted",
        "two.py": "written",
        "src/d.py": "written",
    }


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("<returncode>2</returncode>\n<output>\n</output>", 2),
        ('{"exit_code": 1}', 1),
        ("boom\nexit code: 127", 127),
        ("fine", None),
    ],
)
def test_a_command_is_recorded_with_its_exit_status(output: str, status: int | None) -> None:
    (action,) = find_actions(view_of([user("go"), *step("bash", {"command": "make all"}, output)]).messages)
    assert (action.command, action.exit_status) == ("make all", status)


@pytest.mark.parametrize(
    ("command", "is_look"),
    [
        ("cd app && ls -la", True),
        ("grep -rn 'a; b' src | sort | head -5", True),
        ("git --no-pager diff HEAD~1", True),
        ("cd app && python check.py", False),
        ("cat notes.txt && pytest -q", False),
        ("cat rows.csv | python load.py", False),
        ("openssl req -new", False),
    ],
)
def test_a_chain_of_commands_is_a_look_only_if_each_of_them_is(command: str, *, is_look: bool) -> None:
    (action,) = find_actions(view_of([user("go"), *step("bash", {"command": command}, "TypeError: no")]).messages)
    assert action.is_look == is_look


def test_the_outcome_of_an_installation_is_not_its_warning() -> None:
    output = "Successfully installed Sphinx-4.2\nWARNING: Running pip as the 'root' user can break permissions"
    (action,) = find_actions(view_of([user("go"), *step("bash", {"command": "pip install -e ."}, output)]).messages)
    assert action.outcome == "Successfully installed Sphinx-4.2"


def test_results_pair_with_the_newest_open_call_when_ids_repeat() -> None:
    messages = [user("go"), *step("bash", {"command": "one"}, "1 first"), *step("bash", {"command": "two"}, "2 second")]
    assert [action.outcome for action in find_actions(view_of(messages).messages)] == ["1 first", "2 second"]


def test_the_index_writes_a_handle_once_for_the_values_of_a_message_and_stays_within_its_budget() -> None:
    records = "\n".join(f"function_{number:04}_of_module calls helper_{number:04}_twice" for number in range(200))
    artifacts = artifacts_of([user("list them"), *step("functions", {}, records)])
    for tokens_max in (0, 1, 20, 100, 400):
        index = write_index(artifacts, tokens_max, COUNT)
        assert COUNT(index.text) <= tokens_max
    handle = index.shown[0].handle[:8]
    assert index.text.count(handle) == 1
    assert len(index.shown) > 20


def test_what_the_reader_sees_anyway_is_not_written_again() -> None:
    artifacts = [Artifact("id", "ORD1234", weight=2.0), Artifact("file", "src/a.py", weight=1.0)]
    assert write_index(artifacts, 100, COUNT, seen="… ORD1234 …").text == "files: src/a.py"


def test_a_value_within_a_longer_one_costs_nothing() -> None:
    artifacts = [Artifact("file", "src/core/app.py", weight=9.0), Artifact("file", "app.py", weight=1.0)]
    assert write_index(artifacts, 100, COUNT).text == "files: src/core/app.py"


def test_a_later_fold_takes_the_earlier_artifacts_in_and_ranks_them_again() -> None:
    earlier = [Artifact("id", "OLD111", "m:1", weight=1.0), Artifact("id", "BOTH22", "m:1", "written", weight=1.0)]
    later = [Artifact("id", "BOTH22", "m:2", weight=0.5), Artifact("id", "NEW333", "m:2", weight=0.9)]
    merged = merge_artifacts(earlier, later)
    assert [artifact.value for artifact in merged] == ["BOTH22", "NEW333", "OLD111"]
    assert (merged[0].handle, merged[0].note) == ("m:2", "written")


def test_equal_weights_have_one_order() -> None:
    artifacts = [Artifact("id", value) for value in ("C3333", "A1111", "B2222")]
    assert [artifact.value for artifact in rank(artifacts)] == ["A1111", "B2222", "C3333"]


@settings(max_examples=up_to(60))
@given(talks())
def test_every_artifact_is_a_substring_of_what_was_said(talk: Talk) -> None:
    view = view_of(talk.messages, talk.wire)
    said = [part.text for message in view.messages for part in message.parts]
    loose = [text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"') for text in said]
    for artifact in find_artifacts(view.messages):
        assert any(artifact.value in text for text in (*said, *loose))


def test_that_all_is_there_is_not_a_value_but_the_amount_is() -> None:
    assert values_of("pods 1/1 ready, tests 38/40, files 40/40, ok") == {"38/40": "number"}


def test_a_measure_is_not_cut_out_of_a_code() -> None:
    assert values_of("板材YL-0472米色，长3.5米") == {"YL-0472": "id", "3.5米": "number"}


@settings(max_examples=up_to(100))
@given(st.text(max_size=400))
def test_any_text_can_be_read_for_values(text: str) -> None:
    assert all(value in text for _, value in find_values(text, with_names=True))


@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, "a/" * 500_000, "1-" * 500_000, "'\"`" * 300_000, "<<x\n" * 200_000, "@a." * 300_000]
)
def test_a_line_of_a_megabyte_is_read_and_what_is_remembered_is_bounded(text: str) -> None:
    found = artifacts_of([user("go"), *step("bash", {"command": text[:100_000]}, text)])
    assert len(found) <= ARTIFACTS_MAX


def test_no_values_no_index() -> None:
    assert artifacts_of([user("hello"), assistant("hi")]) == []
    assert write_index([], 100, COUNT).text == ""


@pytest.mark.parametrize("word", ["yield", "Run", "-rA", "./.a", "else:", ".#"])
def test_a_single_word_or_sign_is_not_a_name_worth_listing(word: str) -> None:
    names = [Artifact("name", value, "m:4f2a91c3") for value in (word, "Paradise Rock", "全家福")]
    assert [one.artifact.value for one in find_useful(names, COUNT, lambda _: "")] == ["Paradise Rock", "全家福"]


@pytest.mark.parametrize("noise", ["1724-1732", "2007-2021", "float64", "uint8", "utf-8", "E.g", "I/O"])
def test_lines_of_a_file_types_and_abbreviations_are_no_values(noise: str) -> None:
    assert classify_word(noise) is None


@pytest.mark.parametrize(
    "value", ["010-51398615", "1234-5678", "2024-0117-33", "sha256:4f2a91c3d0", "FACT-028", "PY-313", "INT-42"]
)
def test_numbers_in_groups_and_codes_are_values(value: str) -> None:
    assert classify_word(value) is not None


def test_a_line_of_code_states_nothing_about_a_name() -> None:
    text = "    password1 = forms.CharField(\nFACT-028 = port 7028 (tcp)\n"
    assert find_meaning("id", "password1", text) == ("", "")
    assert find_meaning("id", "FACT-028", text) == ("", "port 7028 (tcp)")
