"""Importing does nothing: no output, no file, no process, no connection, no slow library."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import refold
from tests.rigs.source import ROOT, SRC, cite, list_modules, name_module, parse_module

# Runs in a process of its own. The audit hook sees every file opened for writing, folder made, process and socket.
WATCH = """
import importlib, json, sys
try:
    # The page's framework may act at import, for example ask whether IPv6 works here.
    import nicegui
except ImportError:
    pass
acts = []
def watch(event, args):
    if event == "open":
        mode = args[1] if isinstance(args[1], str) else ""
        if any(flag in mode for flag in "wax+"):
            acts.append(f"{event} {args[0]} {mode}")
    elif event in {"os.mkdir", "os.remove", "os.rename", "os.putenv", "subprocess.Popen", "os.system", "socket.connect",
                   "socket.bind", "sqlite3.connect", "webbrowser.open"}:
        acts.append(f"{event} {args[0]!r}")
sys.addaudithook(watch)
report = {"acts": acts, "absent": []}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except Exception as error:
        # An adapter says which version of its framework it needs.
        missing = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if not isinstance(missing, ModuleNotFoundError) or (missing.name or "").split(".")[0] == "refold":
            raise
        report["absent"].append([name, missing.name])
print(json.dumps(report))
"""

# Parts that an extra brings: they may import its libraries at their top, and be absent without it.
EXTRA_PARTS = {"server", "web", "mcp", "integrations", "llm", "recall"}
# One release with another, pinned to each other: declaring the first declares the second.
# Libraries that a declared one brings along and shows in its own interface.
TWINS = {
    "pydantic-core": "pydantic",
    "starlette": "fastapi",
    "yarl": "aiohttp",
    "agents": "openai-agents",
    "pydantic-ai": "pydantic-ai-slim",
    "haystack": "haystack-ai",
    "google": "google-adk",
    "strands": "strands-agents",
    "agent-framework": "agent-framework-core",
}
EXTRA_MODULES = ("refold.ledger.postgres", "refold.cli.repl")


def is_behind_extra(module: str) -> bool:
    parts = module.split(".")
    return module.startswith(EXTRA_MODULES) or (len(parts) > 1 and parts[1] in EXTRA_PARTS)


def run_python(code: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(cwd), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *args],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_importing_every_module_prints_nothing_writes_nothing_and_starts_nothing(tmp_path: Path) -> None:
    names = [name_module(path) for path in list_modules() if path.name != "__main__.py"]
    ran = run_python(WATCH, json.dumps(names), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    *printed, last = ran.stdout.strip().split("\n")
    report = json.loads(last)
    assert printed == []
    assert ran.stderr == ""
    assert report["acts"] == []
    assert list(tmp_path.iterdir()) == []
    absent = [f"{module} needs {library}" for module, library in report["absent"] if not is_behind_extra(module)]
    assert absent == [], "a module of the base install needs a library that is not installed"


def test_import_refold_loads_the_standard_library_only(tmp_path: Path) -> None:
    listing = "import sys, json; {}; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    before = run_python(listing.format("pass"), cwd=tmp_path)
    after = run_python(listing.format("import refold"), cwd=tmp_path)
    assert after.returncode == 0, after.stderr
    loaded = set(json.loads(after.stdout)) - set(json.loads(before.stdout)) - set(sys.stdlib_module_names)
    assert loaded == {"refold"}


def test_compress_loads_no_module_for_files_or_addresses(tmp_path: Path) -> None:
    listing = "import sys, json; {}; print(json.dumps(sorted(sys.modules)))"
    before, after = (run_python(listing.format(code), cwd=tmp_path) for code in ("pass", "from refold import compress"))
    assert after.returncode == 0, after.stderr
    loaded = set(json.loads(after.stdout)) - set(json.loads(before.stdout))
    assert loaded.isdisjoint({"importlib.resources", "pathlib", "random", "shutil", "tempfile", "urllib", "zipfile"})


def test_all_names_every_public_name_once_and_each_loads() -> None:
    assert list(refold.__all__) == sorted(set(refold.__all__))
    assert set(refold._HOMES) < set(refold.__all__)
    for name in (*refold.__all__, *refold.DOCUMENT_NAMES):
        assert getattr(refold, name) is not None
    assert {*refold.__all__, *refold.DOCUMENT_NAMES} <= set(dir(refold))
    assert not set(refold.__all__) & set(refold.DOCUMENT_NAMES)


def test_the_names_a_type_checker_sees_are_the_names_at_run_time() -> None:
    tree = parse_module(SRC / "__init__.py")
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname or alias.name: node.module
        for block in blocks
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    public = {*refold.__all__, *refold.DOCUMENT_NAMES} - {"__version__"}
    homes = {**refold._HOMES, **refold.DOCUMENT_NAMES}
    assert seen == {name: homes.get(name, "refold.errors") for name in public}


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="compres_"):
        refold.compres_  # noqa: B018


def read_declared() -> tuple[set[str], set[str]]:
    """Distributions of the base install, and of base and extras together, in normal form."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = {name_distribution(line) for line in project["dependencies"]}
    extras = project["optional-dependencies"]
    return base, base | {name_distribution(line) for extra in extras if extra != "dev" for line in extras[extra]}


def name_distribution(requirement: str) -> str:
    return normalise(re.split(r"[\[<>=!~; ]", requirement)[0])


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def list_libraries(path: Path) -> list[tuple[ast.AST, str]]:
    """Third-party top-level names that a module imports, wherever in the file."""
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(parse_module(path)):
        if isinstance(node, ast.Import):
            found += [(node, alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node, node.module.split(".")[0]))
    return [(node, name) for node, name in found if name != "refold" and name not in sys.stdlib_module_names]


def test_every_library_that_is_imported_is_declared() -> None:
    base, declared = read_declared()
    providers = packages_distributions()
    undeclared = []
    for path in list_modules():
        allowed = declared if is_behind_extra(name_module(path)) else base
        for node, library in list_libraries(path):
            # A namespace may have other providers here than the framework, which is not installed.
            names = [normalise(name) for name in (*providers.get(library, ()), library)]
            distributions = {TWINS.get(name, name) for name in names}
            # A lazy import inside a function may name an extra: its error message says which.
            top_level = node in parse_module(path).body
            if not distributions & (allowed if top_level else declared):
                undeclared.append(f"{cite(path, node)} {library}")
    assert undeclared == []
