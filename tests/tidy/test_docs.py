"""Whatever a user can name has its place in the documents: stages, errors, commands, settings, events, extras."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import refold
from refold import errors
from refold.manager.notices import KINDS
from refold.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def read(*names: str) -> str:
    return "\n".join((DOCS / name).read_text(encoding="utf-8") for name in names)


def test_every_stage_has_a_page_that_says_its_name() -> None:
    for name in STAGES:
        assert read(f"reference/stages/{name}.md").startswith(f"# {name}\n")


def test_every_error_is_in_the_reference_and_can_be_imported_from_the_top() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RefoldError)]
    assert len(kinds) >= 10
    page = read("reference/names.md")
    for kind in kinds:
        assert getattr(refold, kind.__name__) is kind
        assert f"### {kind.__name__}\n" in page


def test_every_event_that_can_be_listened_to_is_on_the_managers_page() -> None:
    page = read("how-to/manager.md")
    for kind in KINDS:
        assert f"`{kind}`" in page


def test_every_extra_is_on_the_page_of_dependencies_and_the_architecture_names_every_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = read("reference/dependencies.md")
    for extra in extras.keys() - {"all", "dev"}:
        assert f"| `{extra}` |" in page
    tree = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for folder in (ROOT / "src" / "refold").iterdir():
        if folder.is_dir() and (folder / "__init__.py").exists():
            assert f"{folder.name}/" in tree, f"ARCHITECTURE.md does not name {folder.name}/"
        elif folder.suffix == ".py" and folder.stem not in ("__init__", "__main__"):
            assert folder.name in tree, f"ARCHITECTURE.md does not name {folder.name}"


def test_the_architecture_names_files_that_exist_and_leaves_no_file_of_the_shell_out() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tree = page.partition("src/refold/\n")[2].partition("\ntests/")[0]
    package = ROOT / "src" / "refold"
    for entry in re.split(r"\n(?=  \S)", tree):
        folders = re.findall(r"(\w+)/", entry[:20]) or ["."]
        found = {path.name for folder in folders for path in (package / folder).rglob("*.py")}
        named = set(re.findall(r"\b\w+\.py\b", entry))
        assert named <= found, f"ARCHITECTURE.md names {sorted(named - found)} in {folders}, where no such file is"
        if set(folders) <= {"manager", "server", "web", "cli", "mcp", "ledger", "recall"}:
            beside = {path.name for folder in folders for path in (package / folder).glob("*.py")} - {"__init__.py"}
            assert beside <= named | {"context_server.py"}, f"ARCHITECTURE.md leaves out {sorted(beside - named)}"
