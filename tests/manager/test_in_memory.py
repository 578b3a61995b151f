"""Requests prepared in memory beside those prepared from the ledger: both show and store the same."""

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import CompressionConfig, ContextCompressionManager, HandleUnknown
from refold.errors import LedgerError
from refold.ledger.sqlite import SqliteLedger
from refold.manager.append import Request
from refold.manager.usage import ReportedUsage
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.effort import up_to

SESSION = "s"
WIRES = ("openai-chat", "anthropic", "openai-responses")
SMALL: dict[str, Any] = {"window": 3_000, "reserve": 300}
CONFIGS: dict[str, dict[str, Any]] = {
    "default": {**SMALL},
    "counted": {"threshold_rounds": 14, "retention_count": 4, "economic": False},
    "off": {**SMALL, "auto_compress": False},
    "quiet": {**SMALL, "recall": {"inject": "off"}, "truncate": {"lines_max": 20}},
    "always": {**SMALL, "recall": {"inject": "always"}},
}


class Clock:
    """Stands still during a request, so that both ways store the same times."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Way:
    """One session, in a workspace of its own, that is sent to in one of three ways."""

    def __init__(self, folder: Path, wire: str, config: dict[str, Any], clock: Clock) -> None:
        self.folder, self.wire, self.clock = folder, wire, clock
        self.config = CompressionConfig(model="gpt-4o", **config)
        self.fast = 0
        self.history: list[Any] = []
        self.restart()

    def restart(self) -> None:
        if hasattr(self, "manager"):
            self.manager.close()
        self.manager = ContextCompressionManager(self.config, self.folder, clock=self.clock)

    def send_whole(self, new: list[Any], reports: list[ReportedUsage], system: str) -> list[Any]:
        for one in reports:
            self.manager.observe_usage(SESSION, one.usage, finish_reason=one.finish_reason, is_overflow=one.is_overflow)
        self.manager.append(SESSION, new, format=self.wire)
        return self.prepare(system)

    def prepare(self, system: str) -> list[Any]:
        prepared = self.manager.prepare_context_sync(SESSION, system_prompt=system, model="gpt-4o", format=self.wire)
        return prepared.messages

    def send_history(self, new: list[Any], reports: list[ReportedUsage], system: str) -> list[Any]:
        """Send the whole history, as a stateless client does."""
        for one in reports:
            self.manager.observe_usage(SESSION, one.usage, finish_reason=one.finish_reason, is_overflow=one.is_overflow)
        self.history += new
        prepared = self.manager.prepare_context_sync(SESSION, self.history, system, model="gpt-4o", format=self.wire)
        return prepared.messages

    def send_fast(self, new: list[Any], reports: list[ReportedUsage], system: str) -> list[Any]:
        """Send what is new, as the gateway does."""
        path = self.manager.ledger.read_path(SESSION)
        follows = (len(path.ids), path.digests[-1] if path.ids else "")
        request = Request(SESSION, new, system, None, "gpt-4o", self.wire, follows=follows, reports=reports)
        now = self.manager.prepare_now(request)
        if now is None:
            return self.send_whole(new, reports, system)
        shown = [item.raw for item in now.view.items] if now.view else []
        assert self.manager.store_prepared([now.extension], may_wait=True) == [True]
        self.fast += now.view is not None
        return shown if now.view else self.prepare(system)

    def describe(self) -> dict[str, Any]:
        """Return all that the ledger has of the session, except for random names."""
        ledger = self.manager.ledger
        row = ledger.read_session(SESSION)
        assert row is not None
        return {
            "row": dataclasses.asdict(row),
            "path": ledger.read_path(SESSION),
            "messages": ledger.read_messages(SESSION),
            "edits": [
                (one.edit, one.is_active, bool(one.batch_id), one.created_at)
                for one in ledger.read_edits(SESSION, active_only=False)
            ],
            "batches": [dataclasses.replace(one, id="") for one in ledger.read_batches(SESSION)],
            "usage": ledger.read_usage(SESSION, limit=1_000),
            "events": [(one.kind, one.created_at, one.fields) for one in ledger.read_events(SESSION)],
            "facts": [dataclasses.replace(one, batch_id="") for one in ledger.read_facts(SESSION)],
        }


class FailingOnce:
    """A ledger that cannot be written once."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        if name == "extend" and self.fails:
            self.fails = False
            raise LedgerError("the connection was lost")
        return getattr(self._ledger, name)


@pytest.mark.parametrize("fails", [True, False])
def test_a_question_that_is_not_stored_yet_is_not_taken_for_one_that_another_process_stored(
    tmp_path: Path, *, fails: bool
) -> None:
    ledger = FailingOnce(SqliteLedger(tmp_path / "ledger.db"))
    one, other = (ContextCompressionManager(workspace_path=tmp_path / name, ledger=ledger) for name in ("one", "two"))
    told = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    one.prepare_context_sync(SESSION, told, model="gpt-4o")
    path = ledger.read_path(SESSION)
    ours, theirs = ({"role": "user", "content": f"What does {name}.py do?"} for name in ("ours", "theirs"))
    now = one.prepare_now(Request(SESSION, [ours], model="gpt-4o", follows=(2, path.digests[-1])))
    assert now is not None
    ledger.fails = fails
    if fails:
        with pytest.raises(LedgerError, match="lost"):
            one.store_prepared([now.extension], may_wait=True)
    other.append(SESSION, [theirs])  # The path now has the version that ours would have given it.
    one.prepare_context_sync(SESSION, [*told, ours], model="gpt-4o")
    stored = [json.loads(message.raw) for message in ledger.read_messages(SESSION)]
    assert stored == [*told, ours]
    assert not ledger.verify()


def convert(messages: list[dict[str, Any]], wire: str) -> list[Any]:
    if wire == "anthropic":
        return list(to_anthropic(messages)["messages"])
    return list(to_responses(messages)["input"]) if wire == "openai-responses" else messages


def make_messages(kind: str, number: int, size: int) -> list[dict[str, Any]]:
    if kind == "say":
        return [
            {"role": "assistant", "content": f"Done with {number}."},
            {"role": "user", "content": f"What did we say earlier about log {size}, and about entry {number}?"},
        ]
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    text = "\n".join(f"{number}:{line} worker {line * 7 + number} wrote log {line}" for line in range(size))
    return [
        {"role": "assistant", "content": f"I look at {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": text},
    ]


REPORTS = st.builds(
    lambda tokens, reason, over: ReportedUsage({"prompt_tokens": tokens, "completion_tokens": 9}, reason, over),
    st.integers(0, 4_000),
    st.sampled_from((None, "stop", "length")),
    st.sampled_from((False, False, False, True)),
)
SENDS = st.tuples(
    st.sampled_from(("say", "step", "step", "step")),
    st.sampled_from((1, 3, 10, 40, 90)),
    st.lists(REPORTS, max_size=2),
    st.sampled_from(("You are careful.", "You are careful.", "You are quick.")),
    st.sampled_from((1.0, 40.0, 4_000.0)),
)
BETWEEN = st.tuples(st.sampled_from(("undo", "redo", "pin", "unpin", "compress", "restart")), st.integers(0, 30))
HISTORIES = st.lists(st.one_of(SENDS, SENDS, SENDS, BETWEEN), min_size=2, max_size=14)


def change(way: Way, what: str, at: int) -> str:
    """Do something to a session between two requests; return what came of it."""
    manager, path = way.manager, way.manager.ledger.read_path(SESSION)
    deeds: dict[str, Callable[[], object]] = {
        "undo": lambda: manager.undo(SESSION),
        "redo": lambda: manager.redo(SESSION),
        "pin": lambda: manager.pin(SESSION, f"m:{path.digests[at % len(path.digests)][:8]}"),
        "unpin": lambda: manager.unpin(SESSION, f"m:{path.digests[at % len(path.digests)][:8]}"),
        "compress": lambda: manager.compress(SESSION).current_tokens,
        "restart": way.restart,
    }
    try:
        return str(deeds[what]())
    except HandleUnknown as error:
        return str(error)


def check_alike(history: list[Any], wire: str, config: str, folder: Path) -> int:
    """Send one history in each way, comparing after every request; return how many were prepared in memory at once."""
    clock = Clock()
    fast, whole, again = (Way(folder / name, wire, CONFIGS[config], clock) for name in ("fast", "whole", "again"))
    sends = (fast.send_fast, whole.send_whole, again.send_history)
    try:
        first = convert([{"role": "user", "content": "Why does the build of release 4.17.2 fail?"}], wire)
        shown = [send(first, [], "You are careful.") for send in sends]
        assert shown[0] == shown[1] == shown[2]
        for number, op in enumerate(history):
            if len(op) == 2:
                assert change(fast, *op) == change(whole, *op) == change(again, *op)
                continue
            kind, size, reports, system, seconds = op
            clock.now += seconds
            new = convert(make_messages(kind, number, size), wire)
            shown = [send(new, reports, system) for send in sends]
            assert json.dumps(shown[0]) == json.dumps(shown[1]) == json.dumps(shown[2])
            wanted = whole.describe()
            for way in (fast, again):
                seen = way.describe()
                for key, value in wanted.items():
                    assert seen[key] == value, f"{key} after request {number}, {way.folder.name}"
        assert fast.manager.verify() == again.manager.verify() == []
        return fast.fast
    finally:
        for way in (fast, whole, again):
            way.manager.close()


@settings(max_examples=up_to(80, quick=6))
@given(HISTORIES, st.sampled_from(WIRES), st.sampled_from(sorted(CONFIGS)))
def test_every_way_shows_the_same_bytes_and_leaves_the_same_record(history: list[Any], wire: str, config: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_alike(history, wire, config, Path(folder))


def test_plain_requests_go_the_fast_way_also_while_a_change_waits_until_it_pays(tmp_path: Path) -> None:
    reports = [ReportedUsage({"prompt_tokens": 700, "completion_tokens": 5})]
    history = [
        ("step", 3, reports if number % 3 else [*reports, *reports], "You are careful.", 1.0) for number in range(30)
    ]
    # A price that makes removing dear: for a while it is put off, and that is logged once.
    fast = check_alike(history, "anthropic", "default", tmp_path)
    assert fast > 10


def test_an_edit_of_arrival_that_was_undone_stays_undone_when_its_message_comes_again(tmp_path: Path) -> None:
    config = CompressionConfig(truncate={"lines_max": 20})
    history = [{"role": "user", "content": "Look, please."}, *make_messages("step", 1, 90)]
    with ContextCompressionManager(config, tmp_path) as manager:
        manager.prepare_context_sync(SESSION, history)
        (edit,) = manager.ledger.read_edits(SESSION)
        assert edit.edit.stage == "truncate"
        manager.undo(SESSION, edit.edit.id)
        manager.prepare_context_sync(SESSION, history[:2])
        shown = manager.prepare_context_sync(SESSION, history)
        assert shown.messages == history
        assert not shown.edits
        assert not manager.ledger.read_edits(SESSION)
