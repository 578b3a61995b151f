"""S1.11, plugins: stages and summarisers of other people, by entry point or registered, and what they may break."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from refold import CompressionConfig, ContextCompressionManager, compress, plugins
from refold.conversation.message import Message
from refold.conversation.reason import read_reason
from refold.conversation.view import Edit, View
from refold.errors import ConfigError
from refold.ledger.records import Event
from refold.plugins import find_plugins, register_stage, register_summariser, unregister
from refold.stages.stage import Ask, Goal, Proposal, Proposed, When, replace_part
from refold.testing import find_violations
from tests.rigs.model import GOOD, working

LADDER = ("theirs", "fold")


def list_notes(event: Event) -> str:
    """Return the notes of a compression as people read them."""
    summaries: Any = event.fields.get("summaries") or {}
    return f"{read_reason(event.fields.get('notes'))}; {read_reason(summaries.get('note'))}"


PACKAGE = """
from dataclasses import dataclass
from refold.stages.stage import replace_part

@dataclass(frozen=True)
class Theirs:
    name = "theirs"
    when = "batch"
    shown: str = "(log left out)"

    def propose(self, view, goal):
        items = [at for at in range(len(view.items)) if at not in view.protected and view.items[at].role == "tool"]
        made = [replace_part(view.items[at], 0, self.shown, view=view, stage=self.name, reason="log") for at in items]
        return [edit for edit in made if edit]

class Model:
    def complete(self, prompt):
        return "## Project Overview\\n- Read by a plugin.\\n## Current Status\\n- The logs were read."
"""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    for kind, name in list(plugins._registered):
        unregister(kind, name)
    plugins._find_installed.cache_clear()


@dataclass(frozen=True)
class Logs:
    """Puts one line in the place of old tool results."""

    name: ClassVar[str] = "theirs"
    when: ClassVar[When] = "batch"
    shown: str = "(log left out)"

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        old = [item for at, item in enumerate(view.items) if at not in view.protected and item.role == "tool"]
        made = [replace_part(item, 0, self.shown, view=view, stage=self.name, reason="a log") for item in old]
        return [edit for edit in made if edit is not None]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = PACKAGE) -> None:
    """Lay a package with entry points where Python finds it, as pip does."""
    (folder / "their_package.py").write_text(text, encoding="utf-8")
    info = folder / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[refold.stages]\ntheirs = their_package:Theirs\nclamp = their_package:Theirs\n\n"
        "[refold.summarisers]\ntheir_model = their_package:Model\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "their_package", raising=False)
    plugins._find_installed.cache_clear()


def test_s1_11_a_stage_of_an_installed_package_is_a_rung_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    config = CompressionConfig(ladder=LADDER, plugins={"theirs": {"shown": "(gone)"}})
    result = compress(working(30), budget=3_500, config=config)
    assert "(gone)" in str(result.messages)
    report = next(one for one in result.report.stages if one.stage == "theirs")
    assert report.edits
    assert result.total_tokens <= 3_500
    assert find_violations("openai-chat", result.messages) == []


def test_s1_11_a_summariser_of_an_installed_package_writes_the_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    install(tmp_path / "lib", monkeypatch)
    config = CompressionConfig(window=4_000, reserve=500, compact_model="plugin:their_model", background=False)
    manager = ContextCompressionManager(config, tmp_path / "space")
    prepared = manager.prepare_context_sync("s1", working(30))
    assert "Read by a plugin." in str(prepared.messages)
    assert [edit.fold.by for edit in prepared.edits if edit.fold] == ["llm"]
    manager.close()


def test_s1_11_what_is_registered_in_the_process_is_found_and_listed() -> None:
    register_stage(Logs)
    register_summariser("mine", lambda: SimpleNamespace(complete=lambda prompt: GOOD))
    assert [(one.kind, one.name) for one in find_plugins()] == [("stage", "theirs"), ("summariser", "mine")]
    result = compress(working(30), budget=3_500, config=CompressionConfig(ladder=LADDER))
    assert "(log left out)" in str(result.messages)


def raising(self: Any, view: View, goal: Goal) -> Any:
    raise OSError("the plugin's own trouble")


def leaving(self: Any, view: View, goal: Goal) -> Any:
    sys.exit(3)


def talking(self: Any, view: View, goal: Goal) -> Any:
    return ["no edit at all"]


def returning_nothing(self: Any, view: View, goal: Goal) -> Any:
    return None


def editing_what_is_not_there(self: Any, view: View, goal: Goal) -> Any:
    return [Edit("replace", "theirs", ("no such message",), 0, "x"), Edit("fold", "theirs", ("nor this",), text="x")]


def editing_a_part_that_is_not_there(self: Any, view: View, goal: Goal) -> Any:
    return [Edit("replace", "theirs", (view.items[4].message.id,), 99, "x")]


def acting_as_clamp(self: Any, view: View, goal: Goal) -> Any:
    return [Edit("replace", "clamp", (item.message.id,), 0, "") for item in view.items]


def orphaning(self: Any, view: View, goal: Goal) -> Any:
    return [Edit("drop", "theirs", (item.message.id,), 0) for item in view.items if item.role == "tool"]


def folding_everything(self: Any, view: View, goal: Goal) -> Any:
    return [Edit("fold", "theirs", tuple(item.message.id for item in view.items), text="all of it")]


def asking_for_ever(self: Any, view: View, goal: Goal) -> Proposal:
    while True:
        yield Ask("again?", 10)


def failing_between_questions(self: Any, view: View, goal: Goal) -> Proposal:
    yield Ask("well?", 10)
    raise ValueError("\ud800 not even text")


def asking_with_a_string(self: Any, view: View, goal: Goal) -> Any:
    yield "well?"


BAD = [
    raising,
    leaving,
    talking,
    returning_nothing,
    editing_what_is_not_there,
    editing_a_part_that_is_not_there,
    acting_as_clamp,
    orphaning,
    folding_everything,
    asking_for_ever,
    failing_between_questions,
    asking_with_a_string,
]


@pytest.mark.parametrize("behave", BAD)
def test_s1_11_whatever_a_plugin_does_the_context_is_prepared(tmp_path: Path, behave: Any) -> None:
    register_stage(type("Bad", (), {"name": "theirs", "when": "batch", "propose": behave}))  # type: ignore[type-var]
    config = CompressionConfig(ladder=LADDER, window=4_000, reserve=500)
    manager = ContextCompressionManager(config, tmp_path)
    sent = working(30)
    prepared = manager.prepare_context_sync("s1", sent)
    assert prepared.total_tokens <= 3_500
    assert find_violations("openai-chat", prepared.messages) == []
    assert prepared.messages[-2:] == sent[-2:], "the newest step is as it was"
    assert not [edit for edit in prepared.edits if edit.stage == "theirs"]
    assert manager.verify() == []
    if behave is not returning_nothing and behave is not editing_what_is_not_there:
        event = next(one for one in manager.ledger.read_events("s1") if one.kind == "compressed")
        assert "plugin theirs" in list_notes(event), "the record says who failed and how"
    manager.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise RuntimeError('no database')", "no database"),
        ("import not_there_at_all", "not_there_at_all"),
        ("", "Theirs"),
    ],
)
def test_s1_11_a_package_that_does_not_load_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    (tmp_path / "lib").mkdir()
    install(tmp_path / "lib", monkeypatch, text)
    config = CompressionConfig(window=4_000, reserve=500, compact_model="plugin:their_model", ladder=LADDER)
    manager = ContextCompressionManager(config.replace(background=False), tmp_path / "space")
    prepared = manager.prepare_context_sync("s1", working(30))
    assert prepared.total_tokens <= 3_500
    assert {edit.fold.by for edit in prepared.edits if edit.fold} == {"extract"}
    event = next(one for one in manager.ledger.read_events("s1") if one.kind == "compressed")
    notes = list_notes(event)
    assert "plugin theirs of their-package could not be loaded" in notes
    assert "plugin their_model of their-package could not be loaded" in notes
    assert why in notes
    manager.close()


def test_s1_11_a_summariser_that_raises_is_replaced_by_the_extract(tmp_path: Path) -> None:
    def complain(prompt: str) -> str:
        raise ConnectionError("their service is away")

    register_summariser("mine", lambda: SimpleNamespace(complete=complain))
    config = CompressionConfig(
        window=4_000, reserve=500, background=False, compact_model="plugin:mine", compact_retry_count=1
    )
    manager = ContextCompressionManager(config, tmp_path)
    prepared = manager.prepare_context_sync("s1", working(30))
    assert prepared.total_tokens <= 3_500
    assert {edit.fold.by for edit in prepared.edits if edit.fold} == {"extract"}
    manager.close()


def test_s1_11_an_arrival_plugin_shortens_tool_results_and_nothing_else(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Blanks:
        name: ClassVar[str] = "blanks"
        when: ClassVar[When] = "arrival"

        def arrive(self, message: Message) -> list[Edit]:
            if "broken" in str(message.raw):
                raise KeyError("broken")
            shorter = [Edit("replace", "blanks", (message.id,), at, "short") for at in range(len(message.parts))]
            return [*shorter, replace(shorter[0], covers=("other",), id=""), replace(shorter[0], part=7, id="")]

        def propose(self, view: View, goal: Goal) -> Proposed:
            return Proposed([])

    register_stage(Blanks)  # type: ignore[type-var]
    manager = ContextCompressionManager(CompressionConfig(ladder=("blanks", "fold")), tmp_path)
    sent = [*working(2), {"role": "user", "content": "a broken thing"}]
    prepared = manager.prepare_context_sync("s1", sent)
    assert [one["content"] for one in prepared.messages if one["role"] == "tool"] == ["short", "short"]
    assert [one for one in prepared.messages if one["role"] != "tool"] == [one for one in sent if one["role"] != "tool"]
    manager.close()


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"ladder": ("their", "fold")}, "unknown stage 'their' (did you mean 'theirs'?)"),
        ({"ladder": LADDER, "plugins": {"theirs": {"color": 1}}}, "color"),
        ({"plugins": {"other": {}}}, "not installed"),
        ({"plugins": {"theirs": 3}}, "plugins"),
    ],
)
def test_s1_11_a_wrong_name_or_option_is_said_at_the_start(settings: dict[str, Any], wrong: str) -> None:
    register_stage(Logs)
    with pytest.raises(ConfigError) as caught:
        CompressionConfig(**settings)
    assert wrong in str(caught.value)


def test_s1_11_a_summariser_that_nobody_has_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no summariser plugin 'nobody'"):
        ContextCompressionManager(CompressionConfig(compact_model="plugin:nobody"), tmp_path)


@pytest.mark.parametrize("name", ["clamp", "recall", "fold", "", "Two Words", "../x", 3, None])
def test_s1_11_no_plugin_takes_the_place_of_a_built_in_stage(name: object) -> None:
    with pytest.raises(ConfigError):
        register_stage(type("Bad", (), {"name": name, "when": "batch", "propose": raising}))  # type: ignore[type-var]
    assert find_plugins() == []
