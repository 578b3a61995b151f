"""Finds every pattern of the package, writes texts that are bad for it, and measures how its time grows.

Patterns are found in two ways, so that a new one is covered without being listed: in the values of modules and classes,
however deep in tuples and dicts, and in the source, where ``re`` is called with a literal. Functions that make one
of something else are found, too; they are listed with examples.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import refold
from refold.errors import ConfigError
from refold.reading.rules import read_table
from refold.stages import claims
from refold.stages.record import steer
from tests.rigs.effort import is_quick
from tests.rigs.source import walk_module

# Below this nothing is judged: the clock is too coarse, and nobody waits for it.
FLOOR_S = 0.02
FACTOR = 4
RATIO_MAX = 8.0
CHARS = 8_000
# A first look at every text: a search that takes longer than this is measured. `make test` takes a part of the texts.
LOOK_CHARS, LOOK_S = 1_500, 0.000_3
QUICK_TEXTS = 40
ATOMS_MAX = 7
HEADS_MAX = 6
GUARD_S = 10.0
# A search that takes this long and grows too fast needs no further proof.
_CALLS = frozenset(("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"))
_DEPTH_MAX = 4
GENERAL = (*"\n \taA0_.-/,:='`[(<{#中é", '"', "\\")
_GENERAL_PAIRS = ('"\\', "a ", "a\n", " \n", "a.", "a/", "a-", "1.", "- [", "](", "a@", "中 ", "://")


class TookTooLong(Exception):
    """A run did not end in time."""


@cache
def list_modules() -> list[Any]:
    """Return every module of the package that can be imported here."""
    found = []
    for info in pkgutil.walk_packages(refold.__path__, "refold."):
        if info.name.endswith("__main__"):
            continue
        try:
            found.append(importlib.import_module(info.name))
        except (ImportError, ConfigError):
            continue  # An extra or a framework that is not installed.
    return found


_CLAIMS = read_table("rules/claims.toml")
# Functions that make a pattern from something else than a literal, with examples of what they make. Those without an
# example make the values of a module, which the walk finds, or what is said behind them.
MADE = {
    "refold.agent.workspace.compile_pattern": (),  # The model's own, run in a process that is killed in time.
    "refold.cli.app._translate_usage": (),  # A person's own command line.
    "refold.config.values._check_pattern": (),  # The operator's own; compiled only.
    "refold.conversation.message.choose_observations": (),  # The operator's own, tried at the beginning of a message.
    "refold.evaluation.questions._read_question": (),  # The user's own, over the user's own sessions.
    **{
        f"refold.trial.{name}": ()  # Over texts of tasks that ship with refold, and of bounded size.
        for name in (
            *("service._book_and_pay", "service.make_booking", "service.make_chat", "service.make_detective"),
            *("work._count", "work._edit_limit", "work._rename", "work.make_refactor", "work.make_repair"),
        )
    },
    "refold.llm.openai._find_rejected": (r"\bmax_completion_tokens\b",),
    "refold.llm.redact._named": (),
    "refold.llm.redact._shape": (),
    "refold.patterns.__getattr__": (),  # What lazy_regex was given, which the walk finds.
    "refold.reading.outputs.load_line_rules": (),  # Each is measured in tests/reading/test_outputs.py.
    "refold.reading.shell._find_ending": (r"\n\t*+EOF(?=[\s)'\"]|\Z)",),
    "refold.reading.values._load_sorts": (),  # Compared with one word of at most 200 characters.
    "refold.reading.tools.load_rules": (),  # Compared with the first 300 characters of a command.
    "refold.reading.rules.lazy_form": (),  # Their patterns stand in modules, where the walk finds them.
    "refold.reading.rules.lazy_rule": (),
    "refold.reading.rules._read_rule": (),  # Each is measured in tests/reading/test_rules.py.
    "refold.memory.read_entry": (
        r"## [^\n]+\n\n\*\*Time\*\*: (\S+)\n\*\*Archived\*\*: (\d{1,9})\n\n### Summary\n(.*?)(?:\n### Facts\s*(.*))?",
    ),
    "refold.recall.facts._is_renounced": (r"(?<!\w)3\.14(?!\w)", r"(?<!\w)a\ a(?!\w)"),
    "refold.recall.words.__init__": (r"[,'\\]|aa|aab|ab", r"[,'\\]|\ a|中中"),
    "refold.stages.record.steer._occurs": (
        r"(?<![a-z0-9])port(?:e?s)?(?![a-z0-9])",
        r"(?<![a-z0-9])e(?:e?s)?(?![a-z0-9])",
    ),
    "refold.stages.record.steer.read_focus": tuple(pattern for pattern, _ in steer._SORTS),
    "refold.stages.claims._check_deed": (r"\baa\w*" + claims._NO_VALUE,),
    "refold.stages.claims._holds": (r"(?<![A-Za-z0-9_.])1\.1(?:\.0)?(?![A-Za-z0-9_]|\.\d)",),
    "refold.stages.claims._list_deeds": tuple(deed["pattern"] for deed in _CLAIMS["deed"]),
    "refold.stages.claims._rule": tuple(rule["pattern"] for name, rule in _CLAIMS.items() if name != "deed"),
    "refold.stages.ground.has_like": (r"(?<![\w.-])AB\-\d\d\d(?![\w-])",),
    "refold.stages.ground._look_up": (r"(?<![\d.])113\.56\d{4}", r"(?<![\d.])1\.1\d{4}"),
    "refold.stages.score.find_keyword": (
        r"(?<![A-Za-z0-9_])todo(?![A-Za-z0-9_])",
        r"(?<![A-Za-z0-9_])a\-a(?![A-Za-z0-9_])",
    ),
    "refold.web.pages.recall.draw_marked": (r"(aab|aa|a)", r"(a\ a|\ )"),
}


def find_makers() -> set[str]:
    """Return the functions of the package that hand something else than a literal to ``re``."""
    found = set()
    for module in list_modules():
        for function in walk_module(Path(module.__file__)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                made = (node for node in ast.walk(function) if _is_call_of_re(node))
                if any(not isinstance(node.args[0], ast.Constant) for node in made):
                    found.add(f"{module.__name__}.{function.name}")
    return found


def _is_call_of_re(node: Any) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_regex":
        return True
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS):
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id in ("re", "regex") and bool(node.args)


@cache
def find_patterns() -> dict[str, Any]:
    """Return every compiled pattern of the package by where it is; each text of a pattern once."""
    found: dict[str, Any] = {}
    seen: set[tuple[str, int]] = set()

    def add(where: str, pattern: Any) -> None:
        key = (repr(pattern.pattern), pattern.flags)
        if key not in seen:
            seen.add(key)
            found[where] = pattern

    for module in list_modules():
        for name, value in vars(module).items():
            for where, pattern in _walk(value, f"{module.__name__}.{name}", module.__name__, _DEPTH_MAX):
                add(where, pattern)
        for line, pattern in _read_literals(Path(module.__file__)):
            add(f"{module.__name__}:{line}", pattern)
    for where, examples in MADE.items():
        for at, example in enumerate(examples):
            add(f"{where} {at}", re.compile(example, re.I))
    return found


def _walk(value: Any, where: str, module: str, depth: int) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "finditer") and hasattr(value, "pattern"):
        yield where, value
    elif not depth:
        return
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{where}[{key!r}]", module, depth - 1)
    elif isinstance(value, tuple | list | set | frozenset):
        for at, inner in enumerate(value):
            yield from _walk(inner, f"{where}[{at}]", module, depth - 1)
    elif isinstance(value, type) and value.__module__ == module:
        for name, inner in vars(value).items():
            yield from _walk(inner, f"{where}.{name}", module, depth - 1)
    elif type(value).__module__.startswith("refold.") and hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _walk(getattr(value, name, None), f"{where}.{name}", module, depth - 1)


def _read_literals(file: Path) -> Iterator[tuple[int, Any]]:
    for node in walk_module(file):
        if not _is_call_of_re(node):
            continue
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str | bytes):
            names = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and len(one.attr) <= 10}
            flags = 0
            for name in names & {"I", "M", "S", "X", "IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE", "ASCII"}:
                flags |= getattr(re, name)
            yield node.lineno, re.compile(first.value, flags)


def list_texts(pattern: Any) -> Iterator[Callable[[int], str]]:
    """Return writers of texts, by their length, that a pattern may take long over."""
    atoms, heads = _read_pattern(pattern)
    pairs = (one + other for one in atoms for other in atoms if one != other)
    for piece in dict.fromkeys([*atoms, *GENERAL, *_GENERAL_PAIRS, *heads, *pairs]):
        yield lambda chars, piece=piece: piece * (chars // len(piece))  # type: ignore[misc]
    for head in heads:
        for piece in atoms:
            # A long run after an opening, many openings, and many lines with an opening each.
            yield lambda chars, head=head, piece=piece: head + piece * (chars // len(piece)) + "\x00"  # type: ignore[misc]
            yield lambda chars, one=head + piece * 3: one * (chars // len(one))  # type: ignore[misc]
            yield lambda chars, one=head + piece * 40 + "\n": one * (chars // len(one))  # type: ignore[misc]


def _read_pattern(pattern: Any) -> tuple[list[str], list[str]]:
    """Return what a pattern is made of: single pieces, and the openings before each of its repeats."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    try:
        parsed = parser.parse(
            text, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
        )
    except Exception:  # noqa: BLE001 - the other library knows more than re does
        return list(dict.fromkeys(one for one in text if one.isalnum()))[:8], []
    atoms: dict[str, None] = {}
    heads: dict[str, None] = {}
    _collect(parsed, "", atoms, heads)
    return [one for one in atoms if one][:ATOMS_MAX], [one for one in heads if one and len(one) <= 40][:HEADS_MAX]


def _collect(parsed: Any, head: str, atoms: dict[str, None], heads: dict[str, None]) -> str:
    """Return a text that a pattern may match, noting its pieces on the way."""
    for code, value in parsed:
        if code is sre.LITERAL:
            atoms.setdefault(chr(value))
            head += chr(value)
        elif code in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, _, inner = value
            heads.setdefault(head)
            one = _collect(inner, "", atoms, heads)
            heads.setdefault(head + one)
            head += one * max(1, min(int(least), 8))
        elif code is sre.SUBPATTERN:
            head = _collect(value[3], head, atoms, heads)
        elif code is sre.ATOMIC_GROUP:
            head = _collect(value, head, atoms, heads)
        elif code is sre.BRANCH:
            ends = [_collect(branch, head, atoms, heads) for branch in value[1]]
            head = max(ends, key=len)
        elif code is sre.IN:
            head += _sample(value, atoms)
        elif code is sre.ANY:
            atoms.setdefault("x")
            head += "x"
        elif code is sre.NOT_LITERAL:
            other = "x" if chr(value) != "x" else "y"
            atoms.setdefault(other)
            head += other
        elif code in (sre.ASSERT, sre.ASSERT_NOT):
            _collect(value[1], "", atoms, heads)
    return head


_CATEGORIES = {"DIGIT": "7", "SPACE": " ", "WORD": "w", "NOT_DIGIT": "d", "NOT_SPACE": "s", "NOT_WORD": "%"}


def _sample(members: Any, atoms: dict[str, None]) -> str:
    """Return one character of a class, and note a few more."""
    is_negated = bool(members) and members[0][0] is sre.NEGATE
    wanted: list[str] = []
    for code, value in members:
        if code is sre.LITERAL:
            wanted.append(chr(value))
        elif code is sre.RANGE:
            wanted += [chr(value[0]), chr(value[1])]
        elif code is sre.CATEGORY:
            wanted.append(_CATEGORIES[str(value).removeprefix("CATEGORY_")])
    if is_negated:
        chosen = next((one for one in "x7 -\n%" if one not in wanted), "x")
        for one in (chosen, *wanted[:3]):
            atoms.setdefault(one)
        return chosen
    for one in wanted[:4]:
        atoms.setdefault(one)
    return wanted[0] if wanted else "x"


def runs_of(where: str, pattern: Any, uses: dict[str, set[str]]) -> dict[str, Callable[[str], object]]:
    """Return the ways in which a pattern is run; all of them where its name does not tell."""
    is_bytes = isinstance(pattern.pattern, bytes)

    def give(text: str) -> Any:
        return text.encode("utf-8", "surrogatepass") if is_bytes else text

    runs: dict[str, Callable[[str], object]] = {
        "finditer": lambda text: deque(pattern.finditer(give(text)), maxlen=0),
        "match": lambda text: pattern.match(give(text)),
        "fullmatch": lambda text: pattern.fullmatch(give(text)),
    }
    used = uses.get(where) or uses.get(where.rpartition(".")[2])
    if not used:
        return {"finditer": runs["finditer"], "match": runs["match"]}
    kinds = {name if name in ("match", "fullmatch") else "finditer" for name in used}
    return {name: run for name, run in runs.items() if name in kinds}


def find_uses() -> dict[str, set[str]]:
    """Return the methods that the package calls on a pattern or hands on.

    A private name is used in its own module alone, and is listed with it; a public one by its name.
    """
    uses: dict[str, set[str]] = {}
    for module in list_modules():
        for node in walk_module(Path(module.__file__)):
            if not (isinstance(node, ast.Attribute) and node.attr in _CALLS - {"compile"}):
                continue
            holder = node.value
            name = (
                holder.id if isinstance(holder, ast.Name) else holder.attr if isinstance(holder, ast.Attribute) else ""
            )
            where = f"{module.__name__}.{name}" if name.startswith("_") else name
            uses.setdefault(where, set()).add(node.attr)
    return uses


def measure(run: Callable[[str], object], text: str, repeats: int = 3) -> float:
    """Return the least CPU time of a few runs, of one if it is long; TookTooLong if one does not end."""
    best = float("inf")
    for _ in range(repeats):
        with _guarded():
            best = min(best, _time(run, text))
        if not FLOOR_S / 4 <= best < FLOOR_S * 10:
            break
    return best


def _time(run: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    run(text)
    return time.thread_time() - start


@contextmanager
def _guarded() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, GUARD_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def find_slowest(run: Callable[[str], object], writers: list[Callable[[int], str]]) -> list[Callable[[int], str]]:
    """Return the three texts that deserve most to be measured, by a quick look at all of them; in `make test` one."""
    looks: list[tuple[float, int]] = []
    if is_quick():
        writers = writers[:: -(-len(writers) // QUICK_TEXTS)]
    with _guarded():
        for at, write in enumerate(writers):
            text = write(LOOK_CHARS)
            if _time(run, text) > LOOK_S and (again := min(_time(run, text) for _ in range(2))) > LOOK_S:
                looks.append((again, at))
    return [writers[at] for _, at in sorted(looks, reverse=True)[: 1 if is_quick() else 3]]


def find_growth(run: Callable[[str], object], write: Callable[[int], str]) -> str:
    """Return how a run's time grows if that is worse than its text; empty if it is linear, or too quick to tell.

    Judged only above a floor of CPU time, and only if repeated pairs of sizes agree.
    """
    chars = CHARS // 4
    try:
        while (small := measure(run, write(chars))) < FLOOR_S / FACTOR:
            if chars > 3_000_000 or (chars >= CHARS and small < FLOOR_S / 2_000):
                return ""
            chars *= 2
        ratios = []
        for attempt in range(3):
            # Noise makes a run longer, never shorter: one run is enough to acquit.
            large = measure(run, write(chars * FACTOR), 3 if attempt else 1)
            ratios.append(large / max(small, 1e-9))
            if large < FLOOR_S or ratios[-1] <= RATIO_MAX:
                return ""
            small = measure(run, write(chars))
    except TookTooLong:
        return f"more than {GUARD_S:g} s of CPU at {chars:,} characters or four times that"
    return f"{min(ratios):.1f} times the time for {FACTOR} times the text, from {chars:,} characters on"
