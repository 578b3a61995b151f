"""Every block of README and docs runs, and every make target they name exists."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import (
    CONSOLE_LANGUAGES,
    name_make_targets,
    read_blocks,
    read_commands,
    read_make_targets,
    run_command,
    run_python,
)

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    path
    for path in [
        ROOT / "README.md",
        ROOT / "README.zh-CN.md",
        ROOT / "ARCHITECTURE.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    if path.exists()
]


def name_document(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def reader(tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A reader's terminal: an empty folder with examples/ in it, nothing of this machine's settings."""
    folder = tmp_path / "project"
    folder.mkdir()
    if (ROOT / "examples").is_dir():
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("REFOLD_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    for name, value in {
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.name == "README.md" else pytest.mark.slow) for path in DOCUMENTS],
    ids=name_document,
)
def test_a_document_does_what_it_shows(path: Path, reader: dict[str, str]) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in read_blocks(path.read_text(encoding="utf-8")):
        if block.reason_not_run:
            continue
        where = f"{name_document(path)}:{block.line}"
        try:
            if block.language in {"python", "py"}:
                run_python(block, namespace, name_document(path))
            elif block.language in CONSOLE_LANGUAGES:
                for command in read_commands(block):
                    where = f"{name_document(path)}:{command.line}"
                    run_command(command, Path.cwd(), reader)
        except Exception as error:
            error.add_note(f"in {where}")
            raise


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_document)
def test_every_make_target_a_document_names_exists(path: Path) -> None:
    targets = read_make_targets((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert {"run", "test", "check"} <= targets
    assert name_make_targets(path.read_text(encoding="utf-8")) - targets == set()


def test_the_readme_and_the_architecture_stay_short() -> None:
    for name, lines_max in {"README.md": 120, "README.zh-CN.md": 120, "ARCHITECTURE.md": 200}.items():
        path = ROOT / name
        if not path.exists():
            pytest.skip(f"{name} is not there")
        assert path.read_text(encoding="utf-8").count("\n") <= lines_max, name


def test_make_run_starts_from_a_session_that_is_there() -> None:
    sample = re.search(r"^SAMPLE \?= (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert sample
    assert (ROOT / sample[1]).is_file()


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_install_lines_name_extras_and_a_command_that_exist(name: str) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / name).read_text(encoding="utf-8")
    # pipx run and uvx start the command that is called like the package.
    assert project["name"] in project["scripts"]
    assert all(line in text for line in ("pip install refold", "pipx run refold", "uvx refold", "refold wrap claude"))
    named = {extra for group in re.findall(r"refold\[([\w,]+)\]", text) for extra in group.split(",")}
    assert named <= set(project["optional-dependencies"])


def test_the_first_block_of_the_readme_shows_figures_and_no_ellipsis() -> None:
    first = read_blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert first.tolerance > 0
    assert "..." not in first.text
    assert "refold compress" in first.text
