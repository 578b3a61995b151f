"""The documentation as a site: built from the same Markdown, in both languages, with a search and no broken link."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, project_root: Path) -> Path:
    """The site of a copy of the tree, as ``make docs`` builds it; a broken link or anchor fails the build."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "examples", "benchmarks", "deploy", "requirements"):
        shutil.copytree(project_root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".refold"))
    for path in project_root.iterdir():
        if path.is_file() and (path.suffix in (".md", ".yaml", ".yml", ".txt") or path.name in ("Makefile", "LICENSE")):
            shutil.copy(path, folder)
    ran = subprocess.run(["make", "docs"], cwd=folder, capture_output=True, text=True, check=False)
    if "No matching distribution" in ran.stderr or "Could not fetch" in ran.stderr:
        pytest.skip("the package index cannot be reached; the site needs mkdocs-material")
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3_000:]
    return folder / "build" / "site"


@pytest.mark.slow
def test_the_site_has_every_page_in_both_languages_and_a_search(site: Path, project_root: Path) -> None:
    for page in (project_root / "docs").rglob("*.md"):
        assert (site / page.relative_to(project_root)).with_suffix(".html").exists(), page
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {one["location"].partition("#")[0] for one in found["docs"]}
    assert {"docs/how-to/deploy.html", "docs/zh/index.html"} <= places
    start = (site / "docs" / "index.html").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in start
    assert 'hreflang="zh"' in start
    assert "fonts.googleapis" not in start, "nothing is loaded from outside"


def test_links_that_lead_nowhere_fail_the_build(project_root: Path) -> None:
    settings = yaml.safe_load((project_root / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["validation"]["links"]["not_found"] == "warn"
    assert settings["validation"]["links"]["anchors"] == "warn"
    assert "mkdocs build --quiet --strict" in (project_root / "Makefile").read_text(encoding="utf-8")
