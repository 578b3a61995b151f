"""Chained ids: known messages keep theirs, no id occurs twice, parents come before children."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from refold.conversation.message import ROOT, chain_id
from refold.ledger.align import chain_path, chain_tail
from refold.ledger.records import MessagePath, Splice

HISTORIES = st.lists(st.lists(st.sampled_from("xyqrab"), max_size=9), min_size=1, max_size=12)


def apply_splices(ids: tuple[str, ...], splices: tuple[Splice, ...]) -> tuple[str, ...]:
    for splice in reversed(splices):
        ids = ids[: splice.start] + splice.ids + ids[splice.stop :]
    return ids


def test_an_id_follows_from_content_and_parent() -> None:
    chained = chain_path(MessagePath(), ["d1", "d2"])
    first = chain_id(ROOT, "d1")
    assert chained.ids == (first, chain_id(first, "d2"))
    assert [(link.at, link.parent) for link in chained.new] == [(0, ROOT), (1, first)]
    assert chained.splices == (Splice(0, 0, chained.ids),)


def test_a_tail_is_chained_without_the_rest() -> None:
    whole = chain_path(MessagePath(), ["d1", "d2", "d3"])
    assert tuple(link.id for link in chain_tail(whole.ids[0], ["d2", "d3"])) == whole.ids[1:]


# Inserting a message right after its parent, while the same one is kept further on, must not give one id twice.
@example([["x", "y"], ["x", "r", "y"], ["x", "y", "r", "y"]])
@example([["x", "y"], ["x", "r", "y"], ["x", "y", "r", "y"], ["x", "y", "r", "y", "y"]])
@given(HISTORIES)
def test_over_any_row_of_histories_ids_are_single_and_parents_come_first(histories: list[list[str]]) -> None:
    path = MessagePath()
    parents: dict[str, str] = {}
    contents: dict[str, str] = {}
    for history in histories:
        chained = chain_path(path, history)
        for link in chained.new:
            assert link.id == chain_id(link.parent, history[link.at])
            assert chained.ids[link.at] == link.id
            parents[link.id], contents[link.id] = link.parent, history[link.at]
        assert apply_splices(path.ids, chained.splices) == chained.ids
        assert len(set(chained.ids)) == len(history)
        assert [contents[message_id] for message_id in chained.ids] == history
        place = {message_id: at for at, message_id in enumerate(chained.ids)}
        assert all(place.get(parents[message_id], -1) < at for message_id, at in place.items())
        path = MessagePath(chained.ids, tuple(history), path.version + 1)
