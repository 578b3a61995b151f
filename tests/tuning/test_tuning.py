"""Tuning: settings that would have served stored sessions better, applied within bounds, and logged (S1.10)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.config import load_config
from refold.tuning import KNOBS, Figures, _is_better, apply, propose, read_stored, watch
from tests.cli.conftest import make_session
from tests.rigs.cli import Shell

# Acting early and coming down by little: prefixes break again and again.
WASTEFUL = {"model": "claude-opus-5-5", "window": 6_000, "reserve": 500, "trigger_ratio": 0.7, "target_ratio": 0.6}


def fill(workspace: Path, **settings: object) -> ContextCompressionManager:
    manager = ContextCompressionManager(CompressionConfig(**{**WASTEFUL, "economic": False, **settings}), workspace)
    manager.append("long", make_session(16))
    manager.append("short", make_session(1))
    return manager


def test_s1_10_settings_that_cost_less_and_keep_as_much_are_proposed(tmp_path: Path) -> None:
    manager = fill(tmp_path)
    stored = read_stored(manager)
    assert [session.id for session in stored] == ["long"], "five messages say nothing about folding"
    tuning = propose(stored, manager.config)
    assert tuning.changes
    assert tuning.saving > 0.03
    assert tuning.then.is_sound
    assert tuning == propose(stored, manager.config), "the same way every time"
    again = propose(stored, manager.config.replace(**tuning.changes))
    assert again.now.cost == pytest.approx(tuning.then.cost), "what was promised is what holds then"


@pytest.mark.parametrize(
    ("tried", "is_taken"),
    [
        (Figures(80.0, 89.5, 1, 1, is_sound=True), True),
        (Figures(80.0, 88.0, 1, 1, is_sound=True), False),
        (Figures(80.0, 99.0, 1, 1, is_sound=False), False),
        (Figures(100.0, 99.0, 1, 1, is_sound=True), False),
    ],
)
def test_s1_10_what_saves_money_must_fit_be_valid_and_keep_as_much_in_view(tried: Figures, is_taken: bool) -> None:
    now = Figures(100.0, 90.0, 1, 1, is_sound=True)
    assert _is_better(tried, now, now) is is_taken


def test_s1_10_a_preset_that_goes_by_counts_is_tuned_by_its_counts() -> None:
    config = CompressionConfig.preset("importance")
    used = {knob.name for knob in KNOBS if knob.find_values(config)}
    assert {"max_turns", "keep_recent"} <= used
    assert "threshold_rounds" not in used


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_s1_10_nothing_is_ever_set_outside_of_the_stated_bounds(knob: object) -> None:
    from refold.tuning import Knob

    assert isinstance(knob, Knob)
    for held in (knob.least, knob.most, (knob.least + knob.most) / 2):
        value = held if knob.most <= 1 else int(held)
        tried = knob.find_values(CompressionConfig(economic=True, **{knob.name: value}))
        assert all(knob.least <= one <= knob.most for one in tried)
        assert value not in tried


def test_s1_10_an_applied_proposal_is_written_to_the_project_and_logged(tmp_path: Path) -> None:
    (tmp_path / "refold.yaml").write_text("# ours\nwindow: 6000\nreserve: 500\ntarget_ratio: 0.6  # why not\n")
    manager = fill(tmp_path)
    tuning = propose(read_stored(manager), manager.config)
    apply(tmp_path, manager.ledger, tuning, now=1_000.0)
    text = (tmp_path / "refold.yaml").read_text()
    assert text.startswith("# ours\n")
    held = load_config(tmp_path)
    for name, value in tuning.changes.items():
        assert getattr(held, name) == value
    events = [event for event in manager.ledger.read_events(None) if event.kind == "tuned"]
    assert len(events) == 1
    assert events[0].fields["changes"] == dict(tuning.changes)


def test_s1_10_auto_adjusts_by_itself_after_enough_compressions(tmp_path: Path) -> None:
    manager = fill(tmp_path)
    watching = watch(manager, tmp_path, every=2)
    before = manager.config
    for _ in range(2):
        manager.compress("long")
    watching.join(120)
    assert watching.problem == ""
    assert watching.last is not None
    assert watching.last.changes
    assert manager.config == before.replace(**watching.last.changes), "what a caller set in code still holds"
    assert [event.fields["by"] for event in manager.ledger.read_events(None) if event.kind == "tuned"] == ["tune: auto"]


def test_the_page_states_every_bound() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "tuning.md").read_text(encoding="utf-8")
    for knob in KNOBS:
        assert f"| `{knob.name}` | {knob.least:,g} | {knob.most:,g} |" in page


def test_nothing_to_learn_from_is_said_and_nothing_is_written(shell: Shell) -> None:
    ran = shell.refold("tune", "--apply")
    assert ran.code == 4
    assert "tune once there are some" in ran.err
    assert not (shell.folder / "refold.yaml").exists()


@pytest.mark.slow
def test_the_command_proposes_and_changes_nothing_unless_asked(shell: Shell) -> None:
    fill(shell.folder).close()
    settings = "".join(f"{name}: {value}\n" for name, value in WASTEFUL.items()) + "economic: off\n"
    shell.write("refold.yaml", settings)
    told = shell.refold("tune", COLUMNS="80")
    assert told.code == 0, told.err
    assert "nothing was changed; --apply writes the changes" in told.text
    assert (shell.folder / "refold.yaml").read_text() == settings
    words = " ".join(told.text.split())
    for name in re.findall(r"(\w+): [\d.]+ → [\d.]+ \((?:compresses|folds|acts|keeps) ", words):
        assert name in {knob.name for knob in KNOBS}
    assert re.search(r"\w+: [\d.]+ → [\d.]+ \([\w ,]+\) whole bill [\d,]+ → [\d,]+ tokens \(−[\d.]+%\), prefix", words)
    applied = json.loads(shell.refold("tune", "--apply", "--json").out)
    steps = applied["steps"]
    assert {step["name"] for step in steps} == set(applied["changes"])
    assert [step["before"] for step in steps] == [applied["now"], *(step["after"] for step in steps[:-1])]
    assert steps[-1]["after"] == applied["then"]
    assert applied["is_applied"] is True
    assert applied["saving"] > 0
    assert (shell.folder / "refold.yaml").read_text() != settings
