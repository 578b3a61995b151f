"""The direction of the arrows, and the purity of the core, checked by machine."""

import ast
import subprocess
import sys

import pytest

from tests.rigs.source import ROOT, cite, list_core_modules, list_modules, parse_module, write_dotted

CLOCKS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "datetime.datetime.now",
    "datetime.date.today",
}
# hash() of a string differs from process to process; open, print and input are IO; the rest runs text as code.
IMPURE_BUILTINS = {"open", "print", "input", "breakpoint", "exec", "eval", "compile", "hash", "__import__"}
PURE_EXCEPTION = "__hash__"  # A value's own hash is asked for by sets and dicts, and never leaves the process.


@pytest.mark.slow
def test_the_layers_import_only_downwards() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
            "--no-logo",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"run `make check` to see this again:\n{ran.stdout}{ran.stderr}"
    assert "0 broken" in ran.stdout


def find_impure_calls(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    """Calls that reach out of the process or differ between two runs."""
    allowed = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == PURE_EXCEPTION
        for inner in ast.walk(node)
    }
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in allowed:
            called = write_dotted(node.func)
            if called in IMPURE_BUILTINS or called in CLOCKS:
                found.append((node, f"{called}()"))
    return found


def test_the_core_calls_nothing_that_differs_between_two_runs() -> None:
    found = [
        f"{cite(path, node)} {what}"
        for path in list_core_modules()
        for node, what in find_impure_calls(parse_module(path))
    ]
    assert not found, "the pure core takes such values as arguments:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "impure"),
    [
        ("x = datetime.now()", ["datetime.now()"]),
        ("def f():\n    return hash('a')", ["hash()"]),
        ("class A:\n    def __hash__(self):\n        return hash(self.key)", []),
        ("re.compile('a')", []),
        ("with open('x') as f: pass", ["open()"]),
    ],
)
def test_the_purity_check_sees_what_it_should(source: str, impure: list[str]) -> None:
    assert [what for _, what in find_impure_calls(ast.parse(source))] == impure


def find_environment_reads(tree: ast.Module) -> list[ast.AST]:
    """Places that read an environment variable, the command line's own way (``envvar=``) included."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        dotted = write_dotted(node) if isinstance(node, ast.Attribute) else ""
        taken = (
            {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) and node.module == "os" else set()
        )
        if dotted in {"os.environ", "os.environb", "os.getenv"} or taken & {"environ", "environb", "getenv"}:
            found.append(node)
        elif isinstance(node, ast.keyword) and node.arg == "envvar":
            found.append(node.value)
    return found


def test_only_the_config_loader_reads_the_environment() -> None:
    # The command line's words go by the terminal's locale, also where loading the settings would take too long.
    allowed = {("config", "load.py"), ("cli", "words.py")}
    found = [
        cite(path, node)
        for path in list_modules()
        if path.parts[-2:] not in allowed
        for node in find_environment_reads(parse_module(path))
    ]
    assert not found, "settings come as arguments; only config/load.py reads the environment:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source", ["os.environ['A']", "os.getenv('A')", "from os import environ", "Option(envvar='A')"]
)
def test_the_environment_check_sees_every_way_to_read_it(source: str) -> None:
    assert find_environment_reads(ast.parse(source))
