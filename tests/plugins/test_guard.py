"""Values that a plugin puts into an edit and that the ledger cannot keep: left out, named, and never stored."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.conversation.reason import read_reason
from refold.conversation.view import Edit, FoldRecord, View
from refold.plugins import register_stage, unregister
from refold.stages.stage import Goal, Proposed, When
from refold.testing import find_violations
from tests.rigs.manager import agent

SOUND = FoldRecord("f:00000000", "short")


class Unreadable:
    def __str__(self) -> str:
        raise RuntimeError("there is no word for it")


class Theirs:
    """Folds the first units into an edit with invalid fields."""

    name: ClassVar[str] = "theirs"
    when: ClassVar[When] = "batch"
    fields: ClassVar[dict[str, Any]] = {}
    note: ClassVar[Any] = ""
    change: ClassVar[Callable[[tuple[str, ...]], tuple[str, ...]]] = staticmethod(tuple)

    def propose(self, view: View, goal: Goal) -> Proposed:
        places = [at for unit in view.free_units()[:4] for at in range(unit.start, unit.stop)]
        covers = tuple(message.id for at in places for message in view.items[at].messages)
        if not covers:  # The ladder first runs with all unsent messages held back.
            return Proposed([], self.note)
        plain: dict[str, Any] = {
            "stage": "x",
            "covers": type(self).change(covers),
            "text": "[short ⟨f:00000000⟩]",
            "fold": SOUND,
        }
        return Proposed([Edit("fold", **{**plain, **self.fields})], self.note)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_stage(Theirs)
    yield
    unregister("stage", "theirs")
    Theirs.fields, Theirs.note, Theirs.change = {}, "", staticmethod(tuple)


def prepare_twice(folder: Path) -> list[str]:
    """Prepare, load from the ledger, prepare again; return what the report said of the plugin."""
    config = CompressionConfig(window=4_000, reserve=500, ladder=["theirs", "fold", "window", "clamp"])
    with ContextCompressionManager(config, folder) as manager:
        report = manager.prepare_context_sync("s", agent(40)).report
    with ContextCompressionManager(config, folder) as manager:
        prepared = manager.prepare_context_sync("s", agent(41))
        assert find_violations("openai-chat", prepared.messages) == []
        assert manager.verify() == []
    return [str(stage.note) for stage in report.stages if stage.stage == "theirs"]


@pytest.mark.parametrize(
    "fields",
    [
        {"fold": "nonsense"},
        {"fold": FoldRecord(3, None, facts=("x",))},  # type: ignore[arg-type]
        {"fold": FoldRecord("f:00000000", "short", turn_range=None)},  # type: ignore[arg-type]
        {"fold": FoldRecord("f:00000000", "short", key_points=None)},  # type: ignore[arg-type]
        {"reason": object()},
        {"reason": b"bytes"},
        {"made_from": None},
        {"made_from": (object(),)},
        {"level": 10**30},
        {"tokens_before": "many"},
        {"before": 7},
    ],
)
def test_an_edit_with_invalid_fields_is_left_out_and_the_session_can_be_read_again(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    Theirs.fields = fields
    assert any("invalid" in note for note in prepare_twice(tmp_path))


def test_a_note_that_cannot_be_written_fails_no_request(tmp_path: Path) -> None:
    Theirs.note = Unreadable()
    assert any("there is no word for it" in note for note in prepare_twice(tmp_path))


def test_a_sound_edit_is_taken(tmp_path: Path) -> None:
    assert set(prepare_twice(tmp_path)) == {""}


COVERS: dict[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    "reversed": lambda covers: covers[::-1],
    "doubled": lambda covers: covers + covers,
    "one twice": lambda covers: (*covers, covers[-1]),
    "two swapped": lambda covers: (covers[1], covers[0], *covers[2:]),
    "one unknown": lambda covers: (*covers, "00" * 16),
    "all unknown": lambda covers: ("00" * 16,),
}


@pytest.mark.parametrize("change", COVERS.values(), ids=COVERS)
def test_a_fold_over_messages_out_of_order_is_refused_and_the_next_rung_continues(
    tmp_path: Path, change: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> None:
    Theirs.change = staticmethod(change)
    config = CompressionConfig(window=4_000, reserve=500, ladder=["theirs", "fold", "window", "clamp"])
    with ContextCompressionManager(config, tmp_path) as manager:
        prepared = manager.prepare_context_sync("s", agent(40))
        report = {stage.stage: stage for stage in prepared.report.stages}
        assert "plugin theirs failed (FormatError: its " in str(report["theirs"].note)
        assert report["theirs"].edits == ()
        assert report["fold"].edits
        assert prepared.total_tokens <= 3_500
        [noted] = [event for event in manager.ledger.read_events("s") if event.kind == "compressed"]
        assert "plugin theirs failed (FormatError: its " in str(read_reason(noted.fields["notes"]))
        assert {one.edit.stage for one in manager.ledger.read_edits("s")} == {"fold"}
        assert manager.verify() == []
