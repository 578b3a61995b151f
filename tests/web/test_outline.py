"""The rows of a session for each way of looking, computed from path and edits alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from refold.conversation.view import Edit, FoldRecord
from refold.ledger.records import MessagePath, StoredEdit
from refold.web.rows import OutlineRow, find_change, make_outline

IDS = tuple(f"m{number}" for number in range(8))
PATH = MessagePath(IDS, tuple(f"d{number}" for number in range(8)), 1)
FOLD = Edit("fold", "fold", IDS[1:4], text="three", fold=FoldRecord("f:1", "three"))
MASK = Edit("replace", "mask", (IDS[5],), part=0, text="[masked]")


def stored(*edits: Edit, active: bool = True) -> list[StoredEdit]:
    return [StoredEdit(edit, "b", active, 1.0) for edit in edits]


def list_keys(rows: list[OutlineRow]) -> list[str]:
    return [row.key for row in rows]


def test_the_model_sees_a_fold_in_the_place_of_what_it_covers() -> None:
    rows = make_outline(PATH, stored(FOLD, MASK), "sees", open_folds=(), redoable=())
    assert list_keys(rows) == ["m0", f"f:{FOLD.id}", "m4", "m5", "m6", "m7"]
    assert rows[3].edits == (MASK,)


def test_an_open_fold_is_followed_by_its_originals() -> None:
    rows = make_outline(PATH, stored(FOLD), "sees", open_folds={FOLD.id}, redoable=())
    assert [row.message_id for row in rows if row.is_inside] == ["m1", "m2", "m3"]


def test_what_was_said_is_every_message_with_what_became_of_it() -> None:
    rows = make_outline(PATH, stored(FOLD, MASK), "said", open_folds=(), redoable=())
    assert list_keys(rows) == list(IDS)
    assert [row.message_id for row in rows if row.edit] == ["m1", "m2", "m3"]


def test_the_difference_shows_folds_and_what_they_hide() -> None:
    rows = make_outline(PATH, stored(FOLD), "difference", open_folds=(), redoable=())
    assert len(rows) == 9


def test_an_undone_fold_leaves_a_trace_as_long_as_it_can_be_redone() -> None:
    undone = stored(FOLD, active=False)
    assert list_keys(make_outline(PATH, undone, "sees", open_folds=(), redoable={FOLD.id}))[:3] == [
        "m0",
        f"u:{FOLD.id}",
        "m1",
    ]
    assert list_keys(make_outline(PATH, undone, "sees", open_folds=(), redoable=())) == list(IDS)


def test_an_undone_fold_of_folds_leaves_its_trace_above_the_older_fold() -> None:
    whole = Edit("fold", "fold", IDS[1:6], text="five", fold=FoldRecord("f:2", "five"), made_from=(FOLD.id,))
    edits = stored(FOLD) + stored(whole, active=False)
    rows = make_outline(PATH, edits, "sees", open_folds=(), redoable={whole.id})
    assert list_keys(rows)[:4] == ["m0", f"u:{whole.id}", f"f:{FOLD.id}", "m4"]


def test_a_fold_whose_whole_span_stands_behind_another_leaves_no_trace() -> None:
    whole = Edit("fold", "fold", IDS[1:6], text="five", fold=FoldRecord("f:2", "five"))
    edits = stored(FOLD, active=False) + stored(whole)
    rows = make_outline(PATH, edits, "sees", open_folds=(), redoable={FOLD.id})
    assert list_keys(rows) == ["m0", f"f:{whole.id}", "m6", "m7"]


@given(st.lists(st.sampled_from(IDS), unique=True), st.lists(st.sampled_from(IDS), unique=True))
def test_a_change_turns_one_outline_into_the_other(before: list[str], after: list[str]) -> None:
    old, new = ([OutlineRow("message", key, key) for key in keys] for keys in (before, after))
    change = find_change(old, new)
    if change is None:
        assert old == new
        return
    stop = change.start + change.added
    assert old[: change.start] + new[change.start : stop] + old[change.start + change.removed :] == new
