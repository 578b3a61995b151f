"""Limits of the tree: no addresses, no machine's paths, no lock that records them; and its largest size."""

import ast
import re
import stat
from collections import Counter
from functools import cache
from pathlib import Path

from tests.rigs.source import ROOT, SRC, cite, list_modules, list_tracked, parse_module, walk_module

# Written in pieces, so that this file does not find itself.
REGISTRIES = re.compile(
    "|".join(
        [
            "pypi" + r"\.org",
            "python" + r"hosted\.org",
            "registry" + r"\.npmjs",
            "registry" + r"\.yarnpkg",
            "conda" + r"\.anaconda",
        ]
    )
)
INDEX_OPTION = re.compile(r"--(?:extra-)?" + r"index-url[ =]\S*://|--find-" + r"links[ =]\S*[/:]")
HOMES = re.compile(r"(?<![\w./-])/(?:ho" + r"me|Us" + r"ers|ro" + r"ot)/\w")
# Ratchets: lower the numbers as the package gets simpler.
MODULES_MAX = 346
# The most lines of each package; "refold" are the modules at the top. The numbers only fall.
LINES_MAX = {
    "agent": 1_981,
    "budget": 790,
    "cli": 6_448,
    "config": 2_384,
    "conversation": 1_583,
    "designs": 254,
    "formats": 2_284,
    "integrations": 1_864,
    "ladder": 863,
    "ledger": 4_700,
    "llm": 1_925,
    "manager": 5_915,
    "readers": 1_187,
    "reading": 5_350,
    "recall": 3_298,
    "refold": 2_387,
    "replay": 1_882,
    "server": 7_624,
    "stages": 6_276,
    "testing": 2_133,
    "tokens": 930,
    "web": 5_790,
}
# What a new capability may add to a package: how many lines, and for what. Mending and moving code has no budget.
NEW_LINES: tuple[tuple[str, str, int], ...] = (
    ("manager", "a client that drops or changes a part of its history keeps its session", 32),
    ("recall", "people who begin alike are no relatives", 7),
    ("web", "words of a search are marked in the conversation", 32),
    ("cli", "recall shows units, and searches the family or the workspace", 35),
    ("agent", "recall says in which session something was said", 11),
    ("manager", "recall: only one session", 6),
    ("server", "recall: only one session", 1),
    ("recall", "the family of a session; a workspace is indexed in the background", 136),
    ("recall", "a call with its result, an answer with its question, code as written", 95),
    ("cli", "the switch that summaries by a model need", 15),
    ("ladder", "the newest steps stay whole while there is room", 18),
    ("ledger", "the history of summaries", 42),
    ("refold", "the caller's language over HTTP", 18),
    ("server", "proxy and certificates of the environment", 56),
    ("cli", "wrap loads late, is joined, takes over, notices silence", 195),
    ("cli", "a module for each client", 80),
    ("cli", "wrap knows goose and Kilo; trust covers every provider", 55),
    ("cli", "log --follow, and windows that are too small", 75),
    ("budget", "sizes as people write them, Session, print(prepared), aliases", 15),
    ("integrations", "sizes as people write them, Session, print(prepared), aliases", 15),
    ("manager", "sizes as people write them, Session, print(prepared), aliases", 4),
    ("refold", "sizes as people write them, Session, print(prepared), aliases", 17),
    ("web", "one glance: the picture of the window, sources of record lines, marked finds", 78),
    ("web", "the list names the client", 3),
    ("web", "your last week in one click", 118),
    ("web", "the memory page in the reader's language, with links", 33),
    ("refold", "the memory page in the reader's language, with links", 11),
    ("web", "what a preset changes", 33),
    ("manager", "a recording is played and continued for every face", 124),
    ("manager", "a pinned message leaves its fold", 52),
    ("cli", "import plays a recording", 18),
    ("server", "a wrapped gateway is joined", 13),
    ("server", "tables of a first fold are loaded early", 9),
    ("server", "a client's own compaction reads originals", 62),
    ("conversation", "a client's own compaction reads originals", 1),
    ("server", "switch for summaries, names, languages", 41),
    ("cli", "explain knows .compression", 3),
    ("cli", "names of stages and signs in Chinese", 24),
    ("refold", "names of stages and signs in Chinese", 8),
    ("config", "explain knows .compression", 4),
    ("refold", "explain knows .compression", 1),
    ("cli", "refold eval", 180),
    ("cli", "wrap switches the recall tool on", 15),
    ("cli", "refold trial", 182),
    ("trial", "refold trial", 1_050),
    ("config", "thresholds of refold eval", 30),
    ("evaluation", "refold eval", 1_120),
    ("recall", "examples of a program make no relatives", 16),
    ("stages", "the line of a result that was looked for, and what was looked at", 96),
    ("conversation", "why a line of a note was dropped", 14),
    ("stages", "a recorded talk keeps its dates and names", 19),
    ("stages", "a note is checked by events", 388),
    ("stages", "refusals, errors and parallel calls that a line of a note cites", 98),
    ("stages", "a note of the state, rewritten whole, on the cached conversation", 122),
    ("llm", "a note is asked for on the cached conversation, on three wires", 114),
    ("refold", "a note is asked for on the cached conversation", 7),
    ("cli", "what notes cost", 2),
    ("manager", "what notes cost, and room for them", 13),
    ("replay", "what notes cost", 14),
    ("budget", "what notes cost", 1),
    ("config", "room for notes", 11),
    ("manager", "a note is asked for on the cached conversation, and its price", 14),
    ("reading", "what calls prove, for a note", 11),
    ("ledger", "what was dropped from a note, and its price", 2),
    ("web", "what was dropped from a note", 1),
    ("refold", "a note is asked for on the cached conversation", 7),
    ("cli", "what notes cost", 2),
    ("manager", "what notes cost, and room for them", 13),
    ("replay", "what notes cost", 14),
    ("budget", "what notes cost", 1),
    ("config", "room for notes", 11),
    ("testing", "a provider with a prefix cache", 39),
    ("testing", "a provider that refuses too many cache marks", 9),
    ("manager", "a session is found by content; sub-agents are children", 302),
    ("integrations", "models for deepagents and for runs of OpenAI Agents; no name needed", 115),
    ("server", "several processes: refold serve --workers", 200),
    ("cli", "several processes: refold serve --workers", 16),
    ("formats", "messages of the AI SDK", 126),
    ("testing", "messages of the AI SDK", 28),
    ("testing", "two cases of the contract for conversations without a name", 34),
    ("server", "answers in the interface's description", 53),
    ("integrations", "the proxy's three wires", 9),
    ("integrations", "every option as a type; the extra that is missing", 161),
    ("manager", "one family for each format", 10),
    ("look", "refold look", 700),
    ("cli", "refold look", 118),
    ("cli", "what a fold cost in cache and saved; a small window in the log", 52),
    ("manager", "what a fold cost in cache and saved", 26),
    ("server", "titles of Codex are listed below their conversation", 40),
    ("stages", "instructions and environment of a session stay", 22),
    ("web", "automatic compression is switched on the page", 26),
    ("readers", "histories of pi, Qwen Code, opencode and aider; usage and compactions", 530),
    ("llm", "what has no complete(prompt) is refused when it is handed over", 5),
    ("designs", "what has no complete(prompt) is refused when it is handed over", 1),
    ("designs", "the compressor reads its own earlier summary", 18),
    ("llm", "one small HTTP client for five callers", 50),
    ("refold", "one catalogue of texts: conversation and agent gave up theirs", 20),
)
MANY_ARGUMENTS_MAX = 22
# The size of an adapter: the lines of its module without imports, docstrings, comments and blank lines.
ADAPTER_LINES = range(10, 41)
# Shared by all adapters.
NO_ADAPTERS = {"__init__", "options", "parts", "streamed"}
# Conversations made up for examples and tests speak of files on machines that do not exist.
STORIES = ("examples", "tests")


@cache
def read_text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def find_lines(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        if pattern.search(read_text(path))  # No pattern goes over the end of a line, and most files have nothing.
        for number, line in enumerate(read_text(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_tracked_file_names_a_package_registry() -> None:
    tracked = list_tracked()
    assert find_lines(REGISTRIES, tracked) == []
    assert find_lines(INDEX_OPTION, tracked) == []


def test_no_tracked_file_names_a_path_of_some_machine() -> None:
    tracked = list_tracked()
    told = [path for path in tracked if path.relative_to(ROOT).parts[0] not in STORIES]
    assert find_lines(HOMES, told) == []
    assert find_lines(re.compile(re.escape(str(ROOT)) + r"\b"), told) == []


def test_no_lock_that_records_addresses_is_tracked() -> None:
    names = {path.name for path in list_tracked()}
    assert not names & {"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"}


def test_every_requirement_is_pinned_by_hash() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        entries = re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8").strip())
        assert entries, lock.name
        for entry in entries:
            name = entry.split("\n")[0]
            assert re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+", name), f"{lock.name}: {name}"
            assert "--hash=sha256:" in entry, f"{lock.name}: {name}"


def read_pins(lock: str) -> dict[str, str]:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)", text, re.M))


def test_the_locks_agree_with_each_other() -> None:
    base, dev = read_pins("base.txt"), read_pins("dev.txt")
    assert base.items() <= dev.items()
    build = read_pins("build.txt")
    assert {name: version for name, version in build.items() if name in dev and dev[name] != version} == {}


def test_scripts_that_people_run_are_executable() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert all(f"make {target}\n" in read_text(script) for target in ("check", "test"))


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "helpers", "common", "core", "misc", "base", "stuff"}
    assert [
        str(path.relative_to(ROOT)) for path in list_modules() if path.stem in vague or path.parent.name in vague
    ] == []


def test_no_class_name_is_used_twice() -> None:
    names = Counter(
        node.name for path in list_modules() for node in walk_module(path) if isinstance(node, ast.ClassDef)
    )
    shared = sorted(name for name, count in names.items() if count > 1)
    assert shared == [], "give the class a name that no other class of the package has"


def test_the_package_does_not_grow_in_files() -> None:
    assert len(list_modules()) <= MODULES_MAX, "put the code into the module that uses it"


def test_no_package_grows_in_lines() -> None:
    lines: Counter[str] = Counter()
    for path in list_modules():
        folder, *rest = path.relative_to(SRC).parts
        lines[folder if rest else "refold"] += len(read_text(path).splitlines())
    most = Counter(LINES_MAX)
    for name, _, count in NEW_LINES:
        most[name] += count
    grown = {name: count for name, count in lines.items() if count > most[name]}
    assert grown == {}, "delete more than you add; where a package shrank, lower its number"


def test_every_folder_of_modules_is_a_package() -> None:
    # The layering check does not see into a folder without __init__.py.
    folders = {path.parent for path in list_modules()}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        cite(path, 1) for path in list_modules() if path.stat().st_size and not ast.get_docstring(parse_module(path))
    ]
    assert silent == []


def test_no_function_is_longer_than_sixty_lines() -> None:
    functions = (
        (path, node)
        for path in list_modules()
        for node in walk_module(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    long = [f"{cite(path, node)} {node.name}" for path, node in functions if node.end_lineno - node.lineno >= 60]
    assert long == []


def test_few_functions_take_more_than_four_positional_arguments() -> None:
    # Commands and tools are called by name, by the framework that they are declared for.
    many = [
        f"{cite(path, node)} {node.name}"
        for path in list_modules()
        for node in walk_module(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list
        if len([one for one in (*node.args.posonlyargs, *node.args.args) if one.arg not in ("self", "cls")]) > 4
    ]
    assert len(many) <= MANY_ARGUMENTS_MAX, "pass an object, or take arguments by name:\n" + "\n".join(many)


def count_code(path: Path) -> int:
    """Return how many lines a module has without imports, texts on their own, comments and blank lines."""
    left_out = {
        line
        for node in walk_module(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for line in range(node.lineno, node.end_lineno + 1)
    }
    lines = enumerate(read_text(path).splitlines(), 1)
    return sum(number not in left_out and re.match(r"\s*(#|$)", line) is None for number, line in lines)


def test_an_adapter_is_a_table_and_a_few_hooks() -> None:
    adapters = [path for path in list_modules() if path.parent.name == "integrations" and path.stem not in NO_ADAPTERS]
    sizes = {path.stem: count_code(path) for path in adapters}
    assert len(sizes) > 12
    others = {name: size for name, size in sizes.items() if size not in ADAPTER_LINES}
    assert others == {}, "move what adapters share into refold.integrations"


def test_the_lines_of_an_adapter_are_counted_without_imports_and_explanations(tmp_path: Path) -> None:
    module = tmp_path / "adapter.py"
    module.write_text(
        '"""Says what it is for,\nin two lines."""\n\nimport json\nfrom os import (\n    path,\n)\n\n'
        "# A reason.\nNAME = 1  # counted\n\n\ndef read(\n    one,\n):\n"
        '    """Read."""\n    text = """two\nlines"""\n    return text\n'
    )
    assert count_code(module) == 7
