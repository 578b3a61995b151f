"""Requests are answered before the index has caught up, and get what they would get afterwards."""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import CompressionConfig, ContextCompressionManager
from refold.recall.hits import PENDING_MAX
from refold.recall.index import RecallIndex
from refold.recall.words import WordSieve, find_words, query_words
from tests.recall.test_inject_manager import BARE_RECORD, CONFIG, PARROT, QUESTION, prepare, talk, text_of
from tests.rigs.recall import Workspace

TEXTS = [
    "We chose port 5544 for the billing worker, see src/billing/worker.py:12.",
    "O'Brien paid 1,234 on 4 February 2023; the queries were running slowly.",
    '{"path": "C:\\\\Temp\\\\a_b", "userName": "annaKarenina", "n": 12345}',
    "船长的鹦鹉睡在厨房的铜灯下面。价格是一百元。",
    "she went home and bought nothing, v2.3.1-rc1 @alice #42 " + "x" * 90,
    "",
]


class Waiting:
    """Keeps the background from indexing until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        catch_up = RecallIndex.catch_up

        def wait(*values: object, **more: object) -> object:
            self.gate.wait(30)
            return catch_up(*values, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(RecallIndex, "catch_up", wait)


@given(
    st.lists(st.sampled_from(TEXTS) | st.text(max_size=40), min_size=1, max_size=3).map(" ".join), st.text(max_size=30)
)
def test_looking_for_a_few_words_finds_those_that_the_index_would_hold(text: str, more: str) -> None:
    for asked in (*TEXTS, more, "Which queries did O'Brien run? 1234 went"):
        wanted = query_words(asked)
        assert WordSieve(wanted).find(text) == wanted.keys() & set(find_words(text)), asked


@pytest.mark.parametrize("name", ["tau_airline", "swe_mini", "zh_dialogues", "bfcl_long_replay"])
def test_the_same_holds_for_recorded_sessions(name: str, shared_data: Path) -> None:
    with gzip.open(shared_data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        messages = [one for _, line in zip(range(3), lines, strict=False) for one in json.loads(line)["messages"]]
    texts = [str(one["content"])[:2_000] for one in messages if one.get("content")][:60]
    for asked in texts[::6]:
        sieve, wanted = WordSieve(query_words(asked)), query_words(asked).keys()
        for text in texts:
            assert sieve.find(text) == wanted & set(find_words(text))


def test_a_request_does_not_wait_for_the_index_and_quotes_the_span_that_was_just_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting(monkeypatch)
    with ContextCompressionManager(CompressionConfig(**CONFIG, fold=BARE_RECORD), tmp_path) as manager:
        prepare(manager, talk())
        prepared = prepare(manager, [*talk(), {"role": "user", "content": QUESTION}])
        assert PARROT in text_of(prepared.messages[-1])
        assert manager.recalling.index.find_mark("s") is None
        waiting.gate.set()
        assert manager.recalling.upkeep.join()
        mark = manager.recalling.index.find_mark("s")
        assert mark is not None
        assert mark.seq == 45


@pytest.mark.parametrize("indexed", [0, 7, 20, 40])
def test_the_answer_is_the_same_however_far_the_index_is(workspace: Workspace, indexed: int) -> None:
    lines = [f"Step {at} looks at file{at % 7}.py and at the harbour, run {at * 13 % 11}." for at in range(40)]
    lines[11] = "The mooring fee of the harbour is 120 crowns."
    lines[29] = "Actually the mooring fee of the harbour is 140 crowns now."
    ids: list[str] = []
    for at, line in enumerate(lines):
        ids += workspace.add("s", [{"role": ("user", "assistant")[at % 2], "content": line}], float(at + 1))
        if at + 1 == indexed:
            workspace.recall.refresh("s")
    workspace.recall.upkeep.close()
    workspace.recall.upkeep.ask = lambda _: True  # type: ignore[method-assign,assignment]
    found = workspace.recall.inject("s", "What did we say earlier about the mooring fee?", ids)
    workspace.recall.refresh("s")
    assert found == workspace.recall.inject("s", "What did we say earlier about the mooring fee?", ids)
    assert found.snippets[0].text == lines[29]


@pytest.mark.parametrize("indexed", [0, 3, 6])
def test_a_message_with_new_values_only_is_not_searched_for_and_one_with_a_known_value_is(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, indexed: int
) -> None:
    lines = [f"The crane at berth {at} has the code KRN-{at}07 and lifts {at + 3} tons." for at in range(6)]
    ids: list[str] = []
    for at, line in enumerate(lines):
        ids += workspace.add("s", [{"role": ("user", "assistant")[at % 2], "content": line}], float(at + 1))
        if at + 1 == indexed:
            workspace.recall.refresh("s")
    workspace.recall.upkeep.close()
    workspace.recall.upkeep.ask = lambda _: True  # type: ignore[method-assign,assignment]
    newest = "Please paint KRN-407 and KRN-999 green."
    hidden = [*ids]
    # The newest message itself is stored and not indexed yet; it is in view and answers nothing.
    workspace.add("s", [{"role": "user", "content": "Please paint KRN-888 and KRN-999 green."}], 9.0)
    found = workspace.recall.inject("s", newest, hidden)
    assert found.acts
    assert lines[4] in found.snippets[0].unit
    monkeypatch.setattr("refold.recall.recall.SessionSearch.find", None)
    missed = workspace.recall.inject("s", "Please paint KRN-888 and KRN-999 green.", hidden)
    assert not missed.acts
    assert missed.reason.code == "recall.unrelated"


def test_of_very_many_messages_the_newest_hidden_ones_are_read(workspace: Workspace) -> None:
    count = PENDING_MAX + 300
    lines = [f"message {at} about the weather" for at in range(count)]
    lines[count - 100] = "the parrot sleeps in the galley"
    ids = workspace.say("s", *lines)
    workspace.recall.upkeep.ask = lambda _: True  # type: ignore[method-assign,assignment]
    found = workspace.recall.inject("s", "where did you say the parrot sleeps?", ids[:-20])
    assert [one.text for one in found.snippets] == ["the parrot sleeps in the galley"]


def test_what_is_forgotten_is_found_neither_in_the_index_nor_behind_it(workspace: Workspace) -> None:
    filler = [f"message {at} about the weather" for at in range(20)]
    ids = workspace.say("s", "the parrot sleeps in the galley", *filler, "the parrot eats in the cabin", *filler)
    workspace.recall.upkeep.ask = lambda _: True  # type: ignore[method-assign,assignment]
    workspace.ledger.forget("s", ids[:1], 2.0)
    found = workspace.recall.inject("s", "what did you say earlier about the parrot?", ids)
    assert [one.text for one in found.snippets] == ["the parrot eats in the cabin"]


KILLED = """
import os, sys, signal
from pathlib import Path
from refold import CompressionConfig, ContextCompressionManager
from refold.recall.index import RecallIndex
from tests.recall.test_inject_manager import CONFIG, prepare, talk

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

RecallIndex.catch_up = die
manager = ContextCompressionManager(CompressionConfig(**CONFIG), Path(sys.argv[1]))
prepare(manager, talk())
manager.recalling.upkeep.join()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_process_that_dies_between_a_fold_and_its_index_leaves_nothing_unfound(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join((str(root / "src"), str(root)))
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env={**os.environ, "PYTHONPATH": path})
    assert ended.returncode == -signal.SIGKILL
    config = CompressionConfig(**CONFIG, fold=BARE_RECORD)
    with (
        ContextCompressionManager(config, tmp_path) as first,
        ContextCompressionManager(config, tmp_path) as second,
    ):
        assert any(one.edit.kind == "fold" for one in first.ledger.read_edits("s"))
        history = [*talk(), {"role": "user", "content": QUESTION}]
        prepared = prepare(first, history)
        assert PARROT in text_of(prepared.messages[-1])
        assert prepare(second, history).messages == prepared.messages
        assert first.recalling.upkeep.join()
        assert second.recalling.upkeep.join()
        assert first.recalling.verify_index("s") == []
        mark = first.recalling.index.find_mark("s")
        assert mark is not None
        assert mark.seq == len(history)
