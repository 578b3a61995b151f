"""A file to import that somebody cut, forged or made up: a typed error, and the ledger is as it was."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.cli.transfer import run_import
from refold.errors import FormatError
from refold.ledger.codec import decode_edit, dump_json
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from refold.manager.status import export_session, import_session
from tests.rigs.effort import first_of
from tests.rigs.transfers import FOLDING, OFFLOADING, make_session

NOW = 2_000_000_000.0
Told = dict[str, Any]


@pytest.fixture(scope="module", params=[FOLDING, OFFLOADING], ids=["folding", "offloading"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("made")
    manager = make_session(folder, SqliteLedger(folder / "ledger.db"), "s1", request.param)
    value = export_session(manager.ledger, "s1")
    manager.close()
    return json.loads(json.dumps(value))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteLedger]:
    """A ledger in which nothing is ever stored."""
    ledger = SqliteLedger(tmp_path_factory.mktemp("empty") / "ledger.db")
    yield ledger
    ledger.close()


def edit_of(told: Told, kind: str = "fold") -> Told:
    return next(one for one in told["edits"] if one["edit"]["kind"] == kind)  # type: ignore[no-any-return]


def nest(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


CHANGES: dict[str, Callable[[Told], object]] = {
    "no messages": lambda told: told.update(messages=[]),
    "messages the other way round": lambda told: told["messages"].reverse(),
    "a message less": lambda told: told["messages"].pop(3),
    "a message twice": lambda told: told["messages"].append(told["messages"][2]),
    "a digest of its own": lambda told: told["messages"][1].update(digest="ab" * 16),
    "an id of its own": lambda told: told["messages"][1].update(id="ab" * 16),
    "an id that is no hex": lambda told: told["messages"][1].update(id="../../etc/passwd"),
    "no parent": lambda told: told["messages"][4].update(parent=""),
    "a forged content": lambda told: told["messages"][2]["raw"].update(content="forged"),
    "content that is no object": lambda told: told["messages"][2].update(raw=["x"]),
    "a role nobody has": lambda told: told["messages"][2].update(role="root"),
    "tokens beyond all": lambda told: told["messages"][2].update(tokens=10**40),
    "tokens below nothing": lambda told: told["messages"][2].update(tokens=-1),
    "tokens that are a switch": lambda told: told["messages"][2].update(tokens=True),
    "half a token": lambda told: told["messages"][2].update(tokens=0.5),
    "a time without end": lambda told: told["messages"][2].update(created_at=float("inf")),
    "a time that is none": lambda told: told.update(created_at=float("nan")),
    "a time after all dates": lambda told: told["events"][0].update(created_at=1e300),
    "a path twice": lambda told: told["path"].extend(told["path"]),
    "a path to nowhere": lambda told: told["path"].append("00" * 16),
    "a path of numbers": lambda told: told.update(path=[1, 2]),
    "a path that is a text": lambda told: told.update(path="abc"),
    "an edit twice": lambda told: told["edits"].append(told["edits"][0]),
    "an edit that says something else": lambda told: edit_of(told)["edit"].update(text="forged"),
    "an edit over nothing": lambda told: edit_of(told).update(covers=[]),
    "an edit over one message twice": lambda told: edit_of(told)["covers"].append(edit_of(told)["covers"][0]),
    "an edit over another session": lambda told: edit_of(told)["covers"].append("00" * 16),
    "an edit of a batch that is not there": lambda told: edit_of(told).update(batch="nobody's"),
    "an edit that is half active": lambda told: edit_of(told).update(is_active=0),
    "a fold of nonsense": lambda told: edit_of(told)["edit"].update(fold={"handle": 3}),
    "a fold with more fields": lambda told: edit_of(told)["edit"].update(more=1),
    "a fold without a kind": lambda told: edit_of(told)["edit"].pop("kind"),
    "a summary that is a number": lambda told: edit_of(told)["edit"]["fold"].update(summary=7),
    "a level beyond all": lambda told: edit_of(told)["edit"].update(level=10**30),
    "origins that are a number": lambda told: edit_of(told)["edit"].update(made_from=7),
    "a batch twice": lambda told: told["batches"].append(told["batches"][0]),
    "a batch less": lambda told: told["batches"].pop(),
    "a batch without a name": lambda told: told["batches"][0].update(id=""),
    "a batch of a number": lambda told: told["batches"][0].update(id=7),
    "a fact of nobody": lambda told: told["facts"].append(
        {"kind": "todo", "text": "x", "handle": "", "batch": "nobody's", "created_at": 1.0}
    ),
    "a fact of no kind": lambda told: told["facts"].append(
        {"kind": "lie", "text": "x", "handle": "", "batch": told["batches"][0]["id"], "created_at": 1.0}
    ),
    "an event of a list": lambda told: told["events"][0].update(fields=[]),
    "an event deeper than any": lambda told: told["events"][0].update(fields={"x": nest(100_000)}),
    "a setting deeper than any": lambda told: told["settings"].update(x=nest(100_000)),
    "settings that are a list": lambda told: told.update(settings=[]),
    "a calibration of words": lambda told: told["settings"].update(calibration=[["m", "a", "b", "c"]]),
    "a calibration beyond all": lambda told: told["settings"].update(calibration=[["m", 10**400, 0.1, 1.0]]),
    "usage beyond all": lambda told: told["usage"][0].update(input_tokens=10**30),
    "usage without figures": lambda told: told["usage"][0].pop("output_tokens"),
    "a format nobody speaks": lambda told: told.update(wire="../x"),
    "a model that is a list": lambda told: told.update(model=[]),
    "a name that is too long": lambda told: told.update(id="x" * 300),
    "a name that is a number": lambda told: told.update(id=7),
    "no name": lambda told: told.update(id=""),
    "a version to come": lambda told: told.update(refold_session=3),
    "a version that is a switch": lambda told: told.update(refold_session=True),
}


def check_refused(ledger: Ledger, value: object) -> FormatError:
    with pytest.raises(FormatError) as refused:
        import_session(ledger, value, now=NOW)
    assert ledger.list_sessions() == []
    assert ledger.read_events(None) == []
    assert len(str(refused.value)) < 600
    return refused.value


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_forged_file_is_refused_and_nothing_is_stored(
    told: Told, change: Callable[[Told], object], empty: SqliteLedger
) -> None:
    forged = copy.deepcopy(told)
    change(forged)
    check_refused(empty, forged)
    assert empty.verify() == []


def test_a_ledger_that_refused_every_forged_file_takes_the_true_one(told: Told, tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    for change in CHANGES.values():
        forged = copy.deepcopy(told)
        change(forged)
        with pytest.raises(FormatError):
            import_session(ledger, forged, now=NOW)
    assert import_session(ledger, told, now=NOW) == "s1"
    assert ledger.verify() == []
    ledger.close()


@pytest.mark.parametrize("change", ["messages the other way round", "tokens beyond all", "an edit twice"])
def test_a_server_refuses_it_too(told: Told, change: str, ledger: Ledger) -> None:
    forged = copy.deepcopy(told)
    CHANGES[change](forged)
    check_refused(ledger, forged)


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/etc/passwd", "offloaded/other/../s1/x.txt", "C:\\x.txt"])
def test_a_placeholder_that_names_a_file_elsewhere_is_refused(told: Told, path: str, tmp_path: Path) -> None:
    one = next((one for one in told["edits"] if one["edit"]["stage"] == "offload"), None)
    if one is None:
        pytest.skip("nothing of this session was offloaded")
    forged = copy.deepcopy(told)
    at = told["edits"].index(one)
    changed = forged["edits"][at]
    changed["edit"]["text"] = f"Tool result is at: {path} (3 lines)"
    changed["id"] = decode_edit(dump_json(changed["edit"]), tuple(changed["covers"])).id
    check_refused(SqliteLedger(tmp_path / "ledger.db"), forged)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, held in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(held, (*path, key))


ODD: list[Any] = [
    None, True, 0, -1, 1, 7, 2**53, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "0" * 32,
    "\ud800", "\x00", "../" * 9, "user", "fold", [], [1, 2], ["x"], {}, {"role": "user", "content": "x"},
]  # fmt: skip


def forge(told: Told, dice: random.Random) -> Told:
    """Change a few places of an exported session."""
    forged = copy.deepcopy(told)
    for _ in range(dice.randint(1, 3)):
        path = dice.choice([path for path in places(forged) if path])
        holder: Any = forged
        for key in path[:-1]:
            holder = holder[key]
        way = dice.choice(["put", "put", "drop", "double", "swap"])
        if way == "put":
            holder[path[-1]] = copy.deepcopy(dice.choice(ODD))
        elif way == "drop":
            del holder[path[-1]]
        elif isinstance(holder, list) and way == "double":
            holder.insert(path[-1], copy.deepcopy(holder[path[-1]]))
        elif isinstance(holder, list):
            other = dice.randrange(len(holder))
            holder[other], holder[path[-1]] = holder[path[-1]], holder[other]
    return forged


def check_forged(told: Told, seed: int, folder: Path) -> bool:
    """Import a forged session; True if it was taken, and then it is sound in every way."""
    forged = forge(told, random.Random(seed))
    with ContextCompressionManager(CompressionConfig(), folder) as manager:
        try:
            name = import_session(manager.ledger, forged, now=NOW)
        except FormatError:
            assert manager.ledger.list_sessions() == []
            return False
        manager.verify(name, repair=True)
        assert manager.verify() == []
        manager.read_view(name)
        out = dump_json(export_session(manager.ledger, name))
        manager.ledger.delete_session(name)
        import_session(manager.ledger, json.loads(out), now=NOW)
        assert dump_json(export_session(manager.ledger, name)) == out
        manager.ledger.delete_session(name)
    return True


@pytest.mark.parametrize("seeds", first_of((range(25), range(25, 100), range(1_000, 1_100)), 1), ids=str)
def test_whatever_is_changed_in_a_file_it_is_refused_or_it_is_a_sound_session(
    told: Told, seeds: range, tmp_path: Path
) -> None:
    taken = [check_forged(told, seed, tmp_path) for seed in seeds]
    assert len(seeds) < 10 * sum(taken) < 9 * len(seeds)


NO_FIGURES = [float("nan"), float("inf"), -float("inf"), 1e300, -5, None, "7", True, [], {}]


def test_a_session_with_forged_figures_in_its_settings_can_be_continued(told: Told, tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(window=8_000, model="m"), workspace_path=tmp_path) as manager:
        for at, wrong in enumerate(NO_FIGURES):
            forged = copy.deepcopy(told)
            forged["settings"] |= {
                "carry": [wrong] * 10,
                "reported": {"model": "m", "input_tokens": wrong, "counted_tokens": wrong, "marker": wrong},
                "windows": {"m": [wrong, wrong]},
                "room": [wrong, wrong],
                "brake": {"misses": wrong, "messages": wrong, "tokens": wrong, "model": "m", "why": wrong},
                "counted": wrong,
            }
            name = manager.import_session(forged, f"s{at}")
            manager.append(name, [{"role": "user", "content": "go on"}])
            assert manager.prepare_context_sync(name).messages, wrong
            assert manager.status(name).tokens > 100, wrong


@pytest.mark.slow
def test_three_thousand_forged_files(told: Told, tmp_path: Path) -> None:
    for seed in range(10_000, 13_000):
        check_forged(told, seed, tmp_path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_file_that_was_cut_off_or_is_not_text_is_refused_by_the_command(
    told: Told, tmp_path: Path, share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.dumps(told).encode()
    wrongs = {"cut": content[: int(len(content) * share)], "binary": bytes(range(256)) * 40, "deep": b"[" * 200_000}
    for name, wrong in wrongs.items():
        (tmp_path / name).write_bytes(wrong)
        with pytest.raises(FormatError):
            run_import([str(tmp_path / name)], None, str(tmp_path), as_json=False)
    assert (
        not (tmp_path / ".refold").exists()
        or ContextCompressionManager(workspace_path=tmp_path).ledger.list_sessions() == []
    )
    assert capsys.readouterr().out == ""
