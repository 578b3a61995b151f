"""Settings files as they should not be: each is refused in one sentence that names the file, at once."""

import os
from pathlib import Path

import pytest

from refold.config import load_config
from refold.config.layers import read_yaml
from refold.errors import ConfigError

MERGES = "compression:\n  m0: &m0 {k0: 1, k1: 1, k2: 1}\n" + "".join(
    f"  m{at + 1}: &m{at + 1} {{<<: [{', '.join([f'*m{at}'] * 20)}]}}\n" for at in range(12)
)
LISTS = "ladder: &a0 [x, x, x, x]\n" + "".join(
    f"k{at + 1}: &a{at + 1} [{', '.join([f'*a{at}'] * 9)}]\n" for at in range(12)
)


@pytest.fixture
def project(tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in that is its own repository, with an empty home."""
    (tmp_path / "work" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def refuse(project: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(project, environ={"HOME": str(project.parent / "nobody")})
    assert str(refused.value).startswith("refold.yaml")
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MERGES, "aliases"),
        (LISTS, "aliases"),
        ("plugins: &a\n  x: *a\n", "aliases"),
        ("window: 9000\nmodel: 2026-13-45\n", "refold.yaml:2: not valid YAML: '2026-13-45'"),
        ("preset: default\nwindow: " + "9" * 5_000, "refold.yaml:2: not valid YAML: '999"),
        ("window: 9000\nmodel: a\0b\n", "refold.yaml:2: not valid YAML: the character '\\x00'"),
        ("window: 9000\n3: 4\n", "refold.yaml:2: unknown setting '3'"),
        ("window: 9000\nfold:\n  on: 4\n", "refold.yaml:3: unknown setting 'True'"),
        ("gatewy:\n  port: 3\n", "refold.yaml:1: unknown setting 'gatewy' (did you mean 'gateway'?)"),
        ("ladder: !!set {mask, fold}\n", "refold.yaml:1: ladder is"),
    ],
    ids=["merges", "lists", "cycle", "date", "digits", "nul", "number", "switch", "block", "set"],
)
def test_a_file_that_cannot_be_meant_is_refused_with_its_place(project: Path, text: str, says: str) -> None:
    (project / "refold.yaml").write_text(text)
    assert says in refuse(project)


@pytest.mark.parametrize("what", ["folder", "pipe", "dangling", "loop"])
def test_a_settings_file_that_is_not_a_file_is_an_error_and_not_overlooked(project: Path, what: str) -> None:
    path = project / "refold.yaml"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("elsewhere.yaml" if what == "dangling" else "refold.yaml")
    assert "a settings file is a text" in refuse(project)


def test_a_settings_file_masked_by_a_link_to_nothing_at_all_is_empty(project: Path) -> None:
    (project / "refold.yaml").symlink_to(os.devnull)
    assert load_config(project, environ={}).source("window") is None


def test_a_home_that_is_not_a_path_is_ignored(project: Path) -> None:
    assert load_config(project, environ={"HOME": "/" + "a" * 5_000}).source("window") is None


def test_what_a_merge_key_names_may_be_overridden() -> None:
    settings, lines = read_yaml("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  x: 3\n", "file")
    assert settings["b"] == {"x": 3, "y": 2}
    assert lines["b.x"] == 4
