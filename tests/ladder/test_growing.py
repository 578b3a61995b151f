"""Sessions that grow turn by turn: how often they are folded, when, and what stays verbatim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import refold
from refold.config import CompressionConfig
from refold.prepared import PreparedContext
from refold.tokens import counter_for
from tests.rigs.effort import first_of
from tests.rigs.stages import assistant, lines, step, user

EXCHANGES = 4
ENGLISH = (
    "Could you compare option {n} with the one before it? I care about the price and about how long it lasts.",
    "Option {n} costs {m} euros and lasts about {k} years. Compared with the one before, it is heavier, needs less "
    "care, and its spare parts are sold in most towns. I would take it if you travel rarely; otherwise the lighter one "
    "is the better choice, because repairs on the road are simple and cheap. The guarantee covers {k} years.",
)
CHINESE = (
    "第 {n} 个方案和上一个相比怎么样？我最关心价格和使用寿命，另外也想知道售后是否方便。",
    "第 {n} 个方案的价格是 {m} 元，大约可以用 {k} 年。和上一个相比，它更重一些，但平时几乎不需要保养，"
    "零件在大多数城市都能买到。如果您很少出门，我建议选这个；如果经常出差，轻便的那个更合适，"
    "因为路上维修简单，费用也低。两个方案的保修期都是 {k} 年。",
)
LANGUAGES = [pytest.param(CHINESE, id="chinese"), pytest.param(ENGLISH, id="english", marks=pytest.mark.slow)]


@dataclass
class Sent:
    """One prepared request: the history it was made of, the tokens that were due, and what came out."""

    history: list[Any]
    due: int
    prepared: PreparedContext

    @property
    def is_folded(self) -> bool:
        return bool(self.prepared.report and self.prepared.report.stages)


def talk(words: tuple[str, str], turns: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for n in range(turns):
        numbers = {"n": n, "m": 300 + n * 37 % 500, "k": 3 + n % 9}
        said += [user(words[0].format(**numbers)), assistant(words[1].format(**numbers))]
    return [*said, user(words[0].format(n=turns, m=0, k=0))]


def work(steps: int) -> list[dict[str, Any]]:
    made = [user("Fix the failing tests of the billing service.")]
    for n in range(steps):
        made += step("bash", {"command": f"sed -n '1,80p' src/billing_{n:02}.py"}, lines(15 + n * 11 % 35, f"b{n:02}"))
    return made


def grow(folder: Path, messages: Sequence[Any], model: str = "gpt-4o", **settings: Any) -> Iterator[Sent]:
    """Prepare every request of a session with one manager."""
    manager = refold.ContextCompressionManager(CompressionConfig(**settings), folder)
    for at in range(1, len(messages) + 1):
        if at == len(messages) or (messages[at]["role"] == "assistant" and messages[at - 1]["role"] != "assistant"):
            prepared = manager.prepare_context_sync("s", list(messages[:at]), model=model)
            before = prepared.report.tokens_before if prepared.report else prepared.total_tokens
            yield Sent(list(messages[:at]), before, prepared)
    manager.close()


def count(messages: Sequence[Any]) -> int:
    counter = counter_for("gpt-4o")
    return sum(counter.count_text(message["content"] or "") + 4 for message in messages)


@pytest.mark.parametrize("words", LANGUAGES)
@pytest.mark.parametrize("window", first_of([8_000, 12_000], 1))
def test_after_a_fold_the_last_exchanges_of_a_chat_are_verbatim(
    words: tuple[str, str], window: int, tmp_path: Path
) -> None:
    folds = [one for one in grow(tmp_path, talk(words, window // 32), window=window, reserve=0) if one.is_folded]
    assert len(folds) >= 3, "the third fold has two records before it"
    target = CompressionConfig().tiers().target * window
    for one in folds:
        recent = one.history[-2 * EXCHANGES - 1 :]
        assert count(recent) < target / 2, "the test is about exchanges that fit"
        assert one.prepared.messages[-len(recent) :] == recent
        assert one.prepared.total_tokens <= target
        kept = [message for message in one.prepared.messages if message in one.history]
        assert count(kept) > 0.3 * target, "records do not crowd the conversation out"


@pytest.mark.parametrize("words", LANGUAGES)
def test_a_chat_is_folded_when_its_window_is_full_or_half_full_if_that_saves(
    words: tuple[str, str], tmp_path: Path
) -> None:
    window, messages = 10_000, talk(words, 200)
    for economic, least, freed in ((False, 0.97, 0.5), (True, 0.5, 0.2)):
        sent = list(grow(tmp_path / str(economic), messages, window=window, reserve=0, economic=economic))
        folds = [one for one in sent if one.is_folded]
        assert all(one.due >= least * window for one in folds)
        assert 1 <= len(folds) <= count(messages) / (freed * window) + 1


@pytest.mark.parametrize("window", first_of([10_000, 12_000, 20_000], 1))
def test_an_agent_in_a_small_window_rewrites_its_prefix_rarely(window: int, tmp_path: Path) -> None:
    messages = work(window // 150)
    sent = list(grow(tmp_path, messages, window=window, reserve=0))
    folds = [one for one in sent if one.is_folded]
    assert folds
    assert all(one.due >= 0.5 * window for one in folds), "nothing is folded in a view that is half empty"
    assert len(folds) <= count(messages) / (0.4 * window) + 1
    assert len(folds) <= len(sent) / 4
    assert all(one.prepared.total_tokens >= 0.3 * window for one in folds), "the view is not emptied"


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-5"])
def test_a_session_of_60_000_tokens_in_a_window_of_200_000_is_never_compressed(model: str, tmp_path: Path) -> None:
    window = {"window": 200_000} if model != "claude-sonnet-4-5" else {}
    sizes = []
    for one in grow(tmp_path, work(170), model, **window):
        assert one.prepared.messages == one.history
        assert not one.prepared.edits
        sizes.append(one.prepared.total_tokens)
    assert 45_000 < max(sizes) <= 60_000, "the test is about sessions of nearly 60,000 tokens"


DOCUMENT_LINES = 1_800


def ask_about_documents(documents: int, questions: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for n in range(documents):
        said += [user(f"Here is document {n}:\n{lines(DOCUMENT_LINES, f'd{n}')}"), assistant("ok")]
    return [*said, *talk(ENGLISH, questions)]


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5"])
def test_documents_that_a_person_pasted_are_not_folded_to_save_money(model: str, tmp_path: Path) -> None:
    messages = ask_about_documents(5, 6)
    for one in grow(tmp_path, messages, model):
        assert one.prepared.messages == one.history
    assert one.prepared.total_tokens > 60_000, "below, nothing is folded to save money anyway"


def test_the_newest_documents_stay_when_the_window_is_full(tmp_path: Path) -> None:
    messages = ask_about_documents(3, 80)
    sent = list(grow(tmp_path, messages, window=44_000, reserve=0))
    fold = next(one for one in sent if one.is_folded)
    assert fold.prepared.total_tokens <= 22_000, "half of the window"
    assert messages[4] in fold.prepared.messages
    assert messages[0] not in fold.prepared.messages
