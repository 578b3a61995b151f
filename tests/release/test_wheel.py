"""What is released: wheel and sdist are built, and the installed wheel works where nothing else is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import refold

ROOT = Path(__file__).resolve().parents[2]
# Without an extra: the library, the command line, the ledger, recall by words.
BASE = """
import importlib.util, sys
import refold
from refold import CompressionConfig, ContextCompressionManager

assert importlib.util.find_spec("fastapi") is None, "the base install has no extra in it"
messages = [{"role": "user", "content": "Remember: the port is 8417."}]
for n in range(60):
    messages += [{"role": "assistant", "content": f"answer {n} " * 40}, {"role": "user", "content": f"question {n}"}]
prepared = refold.compress(messages, budget=2_000)
assert prepared.total_tokens <= 2_000
for preset in ("default", "archive", "importance", "offload", "hybrid", "turns"):
    assert CompressionConfig.preset(preset).ladder
with ContextCompressionManager(workspace_path="w") as manager:
    manager.append("s1", messages)
    assert "8417" in manager.recall("s1", "which port")[0].text
    manager.compress("s1")
    assert manager.verify() == []
"""
ALL = """
from refold.agent import Agent
from refold.replay.page import write_page
from refold.testing import ScriptedProvider
from refold.web.app import is_installed

assert is_installed()
import asyncio

async def talk(url):
    agent = Agent(model="scripted-1", base_url=url)
    return [event async for event in agent.run("hello")]

with ScriptedProvider(["good day"]) as provider:
    events = asyncio.run(talk(provider.url + "/v1"))
assert "good day" in str(events)
"""
# A program that `refold wrap` starts: it says which address it was given.
PRINT_ADDRESS = "import os; print(os.environ['OPENAI_BASE_URL'])"
# The goal of docs/reference/dependencies.md, in bytes.
BASE_INSTALL_MAX = 60_000_000
# Read before a fixture leaves one certificate authority: installers need them all.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REFOLD_"))}
# pip takes minutes on a busy machine.
pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path, **variables: object) -> str:
    environment = {**ENVIRONMENT, **{name: str(value) for name, value in variables.items()}}
    ran = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout[-3_000:]}\n{ran.stderr[-3_000:]}"
    return ran.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    program = (
        "import sys; from hatchling import build; "
        "print(build.build_wheel(sys.argv[1])); print(build.build_sdist(sys.argv[1]))"
    )
    run(sys.executable, "-c", program, folder, cwd=ROOT)
    return folder


def make_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def install(bin_folder: Path, *what: object) -> None:
    pip = (bin_folder / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile")
    run(*pip, *what, cwd=bin_folder)


def test_the_wheel_has_all_that_the_package_reads_and_nothing_else(built: Path) -> None:
    wheel = next(built.glob("*.whl"))
    assert refold.__version__ in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    ours = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "refold").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("refold/")} == ours
    assert "refold/py.typed" in names
    assert all(name.startswith(("refold/", "refold-")) for name in names)


def test_the_sdist_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as packed:
        packed.extractall(tmp_path, filter="data")
    source = next(tmp_path.iterdir())
    assert (source / "LICENSE").is_file()
    run(
        sys.executable,
        "-c",
        "import sys; from hatchling import build; build.build_wheel(sys.argv[1])",
        tmp_path,
        cwd=source,
    )
    mine, theirs = (zipfile.ZipFile(next(folder.glob("*.whl"))) for folder in (built, tmp_path))
    assert mine.namelist() == theirs.namelist()
    assert all(mine.read(name) == theirs.read(name) for name in mine.namelist())


def measure_packages(bin_folder: Path) -> int:
    """Return the bytes of the installed packages: without bytecode, and without pip and what comes with it."""
    listed = run(
        bin_folder / "python",
        "-c",
        "import json, importlib.metadata as m\n"
        "print(json.dumps([str(one.locate_file(file)) for one in m.distributions() for file in one.files or ()"
        " if one.name not in ('pip', 'setuptools')]))",
        cwd=bin_folder,
    )
    files = {Path(name).resolve() for name in json.loads(listed)}
    return sum(file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc")


def test_the_base_install_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    bin_folder = make_environment(tmp_path / "env")
    install(bin_folder, "--require-hashes", "-r", ROOT / "requirements" / "base.txt")
    install(bin_folder, "--no-deps", next(built.glob("*.whl")))
    work = tmp_path / "work"
    work.mkdir()
    assert measure_packages(bin_folder) <= BASE_INSTALL_MAX
    run(bin_folder / "python", "-W", "error", "-c", BASE, cwd=work)
    assert refold.__version__ in run(bin_folder / "refold", "--version", cwd=work)
    told = run(bin_folder / "refold", "doctor", "--offline", cwd=work)
    assert "nothing is broken" in told
    assert "pip install 'refold[" in told


def test_the_whole_install_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    bin_folder = make_environment(tmp_path / "env")
    lock = ROOT / "requirements" / "all.txt"
    install(bin_folder, "--require-hashes", "-r", lock)
    install(bin_folder, "--no-deps", next(built.glob("*.whl")))
    work = tmp_path / "work"
    work.mkdir()
    run(bin_folder / "python", "-c", ALL, cwd=work)
    told = run(bin_folder / "refold", "doctor", "--offline", cwd=work)
    assert re.search(r"extras +chat, llm, recall, server, web, mcp\b", told)


@pytest.mark.parametrize(
    ("page", "published"), [("README.md", "Once refold is published"), ("README.zh-CN.md", "发布之后")]
)
def test_the_readme_installs_from_a_checkout_and_marks_what_needs_the_index(page: str, published: str) -> None:
    """The tests below run the marked lines, with the built wheel in place of the name in the index."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.search(r"^pip install '\.\[server,web\]' && refold wrap claude", text, re.M)
    before, _, after = text.partition(published)
    for line in ("pip install refold", "pipx run refold", "uvx refold"):
        assert line not in before
        assert line in after.splitlines()[0]


def test_pip_installs_the_wheel_and_resolves_what_it_needs(built: Path, tmp_path: Path) -> None:
    bin_folder = make_environment(tmp_path / "env")
    install(bin_folder, f"{next(built.glob('*.whl'))}[server]")
    assert refold.__version__ in run(bin_folder / "refold", "--version", cwd=tmp_path)
    said = run(bin_folder / "refold", "wrap", sys.executable, "-c", PRINT_ADDRESS, cwd=tmp_path, HOME=tmp_path)
    assert re.search(r"^http://127\.0\.0\.1:\d+/", said, re.M), said


@pytest.mark.parametrize(
    ("tool", "command"), [("pipx", ("pipx", "run", "--spec")), ("uv", ("uv", "tool", "run", "--from"))]
)
def test_it_runs_without_being_installed(built: Path, tmp_path: Path, tool: str, command: tuple[str, ...]) -> None:
    bin_folder = make_environment(tmp_path / "env")
    install(bin_folder, tool)
    program, *words = command
    places = {"HOME": tmp_path, "PIPX_HOME": tmp_path / "pipx", "UV_TOOL_DIR": tmp_path / "uv"}
    line = (bin_folder / program, *words, next(built.glob("*.whl")), "refold")
    assert "Usage: refold" in run(*line, "--help", cwd=tmp_path, **places)
    session = ROOT / "examples" / "sessions" / "coding_agent.json"
    assert "tokens" in run(*line, "count", session, cwd=tmp_path, **places)
