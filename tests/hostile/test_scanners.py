"""Hand-written scanners are linear too, through the functions that the rest of the program calls."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pytest

import refold
from refold.conversation.message import Message, Part
from refold.formats import detect, parse_messages
from refold.formats.canonical import digest_message
from refold.llm.redact import redact_text
from refold.reading.calls import read_call, read_fenced_call, read_result
from refold.reading.events import Action, Verb
from refold.reading.outputs import find_lines, looks_like_log
from refold.reading.read import read, read_all
from refold.reading.sentences import find_ends, shorten_text, split_sentences
from refold.reading.values import find_values, read_values
from refold.reading.words import read_words
from refold.recall.words import find_words
from refold.stages.densify import Densify
from refold.stages.ground import Ground
from refold.stages.mask import shorten_arguments
from refold.stages.score import score_message
from refold.stages.truncate import Truncate
from refold.stages.verify import verify_words
from tests.rigs.patterns import find_growth

# A text that was read before would be remembered.
NUMBERS = count()
TEXTS: dict[str, Callable[[int], str]] = {
    "newlines": lambda chars: "\n" * chars,
    "spaces": lambda chars: " " * chars,
    "one letter": lambda chars: "a" * chars,
    "capitals": lambda chars: "AB" * (chars // 2),
    "digits": lambda chars: "1234567890" * (chars // 10),
    "backslashes": lambda chars: "\\" * chars,
    "quotes and backslashes": lambda chars: '"\\' * (chars // 2),
    "open brackets, then quotes": lambda chars: "[" * 101 + '"\\' * (chars // 2),
    "open brackets": lambda chars: "[" * chars,
    "braces and quotes": lambda chars: '{"a":' * (chars // 5),
    "dots": lambda chars: "a." * (chars // 2),
    "slashes": lambda chars: "a/" * (chars // 2),
    "dashes": lambda chars: "a-" * (chars // 2),
    "backticks": lambda chars: "`a " * (chars // 3),
    "errors": lambda chars: "E   error: failed\n" * (chars // 18),
    "checkboxes": lambda chars: "- [ " * (chars // 4),
    "heredocs": lambda chars: "cat <<EOF " * (chars // 10),
    "commands": lambda chars: "\n;rm -rf " * (chars // 9),
    "records": lambda chars: json.dumps([{"id": at, "x": [at] * 3, "y": "z" * 9} for at in range(chars // 40)]),
    "nested": lambda chars: "[" * 60 + "1,2,3 " * (chars // 6) + "]" * 60,
    "log": lambda chars: "2026-01-01 10:00:00 INFO x=1 y=2 worker[12]: done\n" * (chars // 50),
    "bracketed log": lambda chars: "[a [b [c [d " * (chars // 12),
    "addresses": lambda chars: "https://a.b/c?" * (chars // 14),
    "mail": lambda chars: "a@b." * (chars // 4),
    "keys": lambda chars: "sk-ABCDEF0123456789" * (chars // 19),
    "lists": lambda chars: "a:\n- b:\n" * (chars // 8),
    "fences": lambda chars: "```x\na\n" * (chars // 7),
    "headings": lambda chars: "# a\n**b**\n" * (chars // 10),
    "wrapped lines": lambda chars: ("word " * 14 + "\n") * (chars // 71),
    "open blocks": lambda chars: "<reminder>\n" * (chars // 11),
    "sentences": lambda chars: "Maybe it fails because of e.g. that. " * (chars // 37),
    "tags": lambda chars: "x<warning>" * (chars // 10),
    "Chinese": lambda chars: "是吗 " * (chars // 3),
}


def _parse(raws: list[Any]) -> list[Message]:
    return parse_messages(detect(raws), raws)


def _call(text: str, name: str = "bash") -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": text}}
    return [
        {"role": "user", "content": "Look at it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]


def _result(text: str) -> list[dict[str, Any]]:
    return [*_call('{"command": "make"}')[:2], {"role": "tool", "tool_call_id": "c", "content": text}]


def _older(text: str) -> list[dict[str, Any]]:
    """A hostile answer with enough after it that it is folded."""
    said = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": text}]
    for turn in range(4):
        said += [{"role": "user", "content": f"And {turn}?"}, {"role": "assistant", "content": f"It is {turn}."}]
    return [*said, {"role": "user", "content": "Go on."}]


def _read_result(text: str, verb: Verb) -> object:
    return read_result(Part("result", text), 0, Action(verb=verb, tool="bash" if verb == "test" else "lookup"))


SCANNERS: dict[str, Callable[[str], object]] = {
    "a command": lambda text: read_call(Part("call", json.dumps({"command": text}), name="bash"), 0),
    "a script": lambda text: read_call(Part("call", json.dumps({"command": f"python -c '{text}'"}), name="bash"), 0),
    "sed": lambda text: read_call(Part("call", json.dumps({"command": f"sed -i '{text}' a.py"}), name="bash"), 0),
    "arguments of an edit": lambda text: read_call(
        Part("call", json.dumps({"path": "a", "old_str": text}), name="edit"), 0
    ),
    "a patch": lambda text: read_call(Part("call", f"*** Begin Patch\n{text}", name="apply_patch"), 0),
    "broken arguments": lambda text: read_call(Part("call", text, name="bash"), 0),
    "a call in words": read_fenced_call,
    "a run of tests": lambda text: _read_result(text, "test"),
    "an answer": lambda text: _read_result(text, "fetch"),
    "values with owners": lambda text: read_values(Part("text", text), 0, "result"),
    "values that are said": lambda text: read_values(Part("text", text), 0, "person"),
    "telling lines": lambda text: find_lines(text, 0, len(text), is_log=True),
    "digest of arguments": lambda text: digest_message(_call(text)[1]),
    "parse": lambda text: _parse(_call(text)),
    "actions": lambda text: list(read_all(_parse(_call(json.dumps({"command": f"{next(NUMBERS)} {text}"}))))),
    "errors of a result": lambda text: list(read_all(_parse(_result(f"{next(NUMBERS)} {text}")))),
    "values": find_values,
    "values and names": lambda text: find_values(text, with_names=True),
    "sentences": split_sentences,
    "ends of sentences": lambda text: list(find_ends(text, 0, len(text))),
    "shortened": lambda text: shorten_text(text, len(text) // 2),
    "a person's words": lambda text: read_words(Part("text", text), 0, "person"),
    "the assistant's words": lambda text: read_words(Part("text", text), 0, "assistant"),
    "events": lambda text: read(_parse([{"role": "user", "content": f"{next(NUMBERS)} {text}"}])[0]),
    "words": find_words,
    "secrets": redact_text,
    "log or not": looks_like_log,
    "truncate": lambda text: Truncate().cut(text, "m:00000000"),
    "densify": lambda text: Densify().rewrite(text, "m:00000000", "bash"),
    "arguments": lambda text: shorten_arguments(json.dumps({"a": text, "b": [text]}), "m:0", "en", 100),
    "score": lambda text: score_message("user", _parse([{"role": "user", "content": text}])[0].parts),
}


ALL = pytest.param(True, marks=pytest.mark.slow)
some_or_all = pytest.mark.parametrize("is_all", [False, ALL], ids=["some", "all"])


def choose(kinds: Iterable[str], at: int, is_all: bool) -> list[str]:
    """Return every kind, or two in `make test`, others for each ``at``."""
    listed = list(kinds)
    return listed if is_all else [listed[(at * 2 + more) % len(listed)] for more in range(2)]


@some_or_all
@pytest.mark.parametrize("name", SCANNERS)
def test_a_scanner_is_linear(name: str, is_all: bool) -> None:
    kinds = choose(TEXTS, list(SCANNERS).index(name), is_all)
    faults = {kind: growth for kind in kinds if (growth := find_growth(SCANNERS[name], TEXTS[kind]))}
    assert faults == {}


def test_a_row_of_names_without_an_end_is_read_in_linear_time() -> None:
    def run(text: str) -> object:
        asked = _call('{"topic": "pods"}', "lookup")[:2]
        text = f"{next(NUMBERS)} {text}"
        return list(read_all(_parse([*asked, {"role": "tool", "tool_call_id": "c", "content": text}])))

    assert find_growth(run, lambda chars: "AB" + "  AB" * (chars // 4) + "!") == ""


@some_or_all
@pytest.mark.parametrize("make", [_result, _older, _call], ids=["a tool's output", "an older answer", "arguments"])
def test_compressing_is_linear_in_a_hostile_message(make: Callable[[str], list[dict[str, Any]]], is_all: bool) -> None:
    numbers = count()

    def run(text: str) -> object:
        try:
            # Another text each time: a short one that was read before would be remembered, a long one would not.
            return refold.compress(make(f"{next(numbers)} {text}"), 1_500)
        except refold.RefoldError:
            return None  # Refused is quick as well.

    kinds = ("newlines", "quotes and backslashes", "errors", "records", "checkboxes", "log", "one letter", "Chinese")
    chosen = choose(kinds, (_result, _older, _call).index(make), is_all)
    faults = {kind: growth for kind in chosen if (growth := find_growth(run, TEXTS[kind]))}
    assert faults == {}


@pytest.mark.parametrize("line", ["a\n", "U> fix\nfoo\n", "U> ee\n"], ids=["one sentence", "quotations", "letters"])
def test_checking_a_hostile_summary_is_linear(line: str) -> None:
    def run(words: str) -> object:
        said = _parse([{"role": "user", "content": "fix the bees " * (len(words) // 13)}])
        return verify_words(words, Ground(said))

    assert find_growth(run, lambda chars: "The user said go\n" + line * (chars // len(line))) == ""


@pytest.mark.parametrize("scan", [pytest.param(find_words, marks=pytest.mark.slow), find_values])
def test_long_words_are_not_kept_in_memory(scan: Callable[[str], object]) -> None:
    scan("warm up")
    gc.collect()
    tracemalloc.start()
    for number in range(8):
        scan(f"{number}a-" * 5_000)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 75_000
