"""The page of dependencies names exactly what the project declares."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_requirement_name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0]


def read_rows(page: str) -> set[tuple[str, str]]:
    """(group, library) of every row; the group is the heading's for base and development, else the extra's."""
    rows = set()
    group = ""
    for line in page.splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ").split()[0].lower()
        cells = re.findall(r"`([\w.-]+)`", line.split("|")[1] + line.split("|")[2]) if line.startswith("| `") else []
        if group == "extras" and cells:
            rows.add((cells[0], cells[1]))
        elif cells:
            rows.add((group, cells[0]))
    return rows


def test_every_dependency_has_its_line_and_every_line_its_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {**project["optional-dependencies"], "base": project["dependencies"]}
    groups["development"] = groups.pop("dev")
    declared = {
        (group, name)
        for group, requirements in groups.items()
        for name in map(read_requirement_name, requirements)
        if name != "refold"
    }
    assert read_rows((ROOT / "docs" / "reference" / "dependencies.md").read_text(encoding="utf-8")) == declared
