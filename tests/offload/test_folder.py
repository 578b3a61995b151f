"""Offloaded files: whole or not there, private, and never outside the session's own folder."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import LedgerError
from refold.offload import OffloadFolder, name_folder
from refold.stages.offload import OffloadFile

NAME = "0123456789abcdef.txt"


def file_in(folder: OffloadFolder, text: str = "the whole output", name: str = NAME) -> OffloadFile:
    return OffloadFile(f"{folder.relative}/{name}", text)


def test_a_file_is_written_privately_and_read_back(tmp_path: Path) -> None:
    folder = OffloadFolder(tmp_path, "s1")
    file = file_in(folder, "lone \ud83d 你好\n")
    assert folder.write([file]) == [file.path]
    assert folder.read(file.path) == file.text
    place = tmp_path / file.path
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert [path.name for path in place.parent.iterdir()] == [NAME]


def test_what_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    folder = OffloadFolder(tmp_path, "s1")
    folder.write([file_in(folder)])
    assert folder.write([file_in(folder)]) == []
    (tmp_path / folder.relative / NAME).write_text("half", encoding="utf-8")
    assert folder.write([file_in(folder)]) == [file_in(folder).path]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "offloaded/s1/../../secret.txt",
        "offloaded/s1/../s2/0123456789abcdef.txt",
        "offloaded/s2/0123456789abcdef.txt",
        "offloaded/s1/sub/0123456789abcdef.txt",
        "offloaded/s1/name.txt",
        "offloaded/s1/",
        "0123456789abcdef.txt",
        "",
    ],
)
def test_a_path_outside_the_sessions_own_folder_is_never_read_written_or_removed(tmp_path: Path, path: str) -> None:
    folder, other = OffloadFolder(tmp_path, "s1"), OffloadFolder(tmp_path, "s2")
    other.write([file_in(other)])
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    assert folder.read(path) is None
    gone, warnings = folder.remove([path])
    assert gone == []
    assert len(warnings) == 1
    with pytest.raises(LedgerError, match="nothing was written"):
        folder.write([OffloadFile(path, "text")])
    assert (tmp_path / "secret.txt").exists()
    assert other.read(file_in(other).path) == "the whole output"


def test_a_link_in_the_place_of_a_file_or_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / NAME).write_text("not ours", encoding="utf-8")
    workspace = tmp_path / "workspace"
    folder = OffloadFolder(workspace, "s1")
    folder.write([file_in(folder)])
    place = workspace / folder.relative / NAME
    place.unlink()
    place.symlink_to(outside / NAME)
    assert folder.read(file_in(folder).path) is None
    folder.write([file_in(folder)])
    assert not place.is_symlink()
    assert (outside / NAME).read_text(encoding="utf-8") == "not ours"
    linked = OffloadFolder(workspace, "s2")
    (workspace / linked.relative).symlink_to(outside)
    assert linked.read(f"{linked.relative}/{NAME}") is None
    assert linked.list_files() == []
    linked.remove_all()
    with pytest.raises(LedgerError, match="is a link"):
        linked.write([file_in(linked)])
    assert (outside / NAME).read_text(encoding="utf-8") == "not ours"


def test_removing_a_session_leaves_what_is_not_ours(tmp_path: Path) -> None:
    folder = OffloadFolder(tmp_path, "s1")
    folder.write([file_in(folder)])
    assert folder.remove_all() == []
    assert not (tmp_path / folder.relative).exists()
    folder.write([file_in(folder)])
    stranger = tmp_path / folder.relative / "notes.md"
    stranger.write_text("mine", encoding="utf-8")
    folder.remove_all()
    assert stranger.exists()


@pytest.mark.skipif(os.geteuid() == 0 and not hasattr(os, "chflags"), reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    folder = OffloadFolder(tmp_path, "s1")
    with pytest.raises(LedgerError, match="nothing was changed"):
        folder.write([file_in(folder)])


def test_a_failure_in_the_middle_takes_back_what_was_written(tmp_path: Path) -> None:
    folder = OffloadFolder(tmp_path, "s1")
    second = "fedcba9876543210.txt"
    (tmp_path / folder.relative).mkdir(parents=True)
    (tmp_path / folder.relative / second).mkdir()
    with pytest.raises(LedgerError, match="nothing was changed"):
        folder.write([file_in(folder), file_in(folder, name=second)])
    assert folder.read(file_in(folder).path) is None


def test_a_file_that_cannot_be_removed_is_reported_and_raises_nothing(tmp_path: Path) -> None:
    folder = OffloadFolder(tmp_path, "s1")
    (tmp_path / folder.relative / NAME).mkdir(parents=True)
    gone, warnings = folder.remove([f"{folder.relative}/{NAME}"])
    assert gone == []
    assert "cannot be removed" in warnings[0]


@given(st.text(min_size=1, max_size=256))
def test_any_session_id_is_one_safe_folder_name(session_id: str) -> None:
    name = name_folder(session_id)
    assert name == name_folder(session_id)
    assert len(name) <= 80
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    assert name[0] != "-"


@given(st.lists(st.text(min_size=1, max_size=40), min_size=2, max_size=20, unique=True))
def test_two_sessions_never_share_a_folder(session_ids: list[str]) -> None:
    assert len({name_folder(session_id) for session_id in session_ids}) == len(session_ids)


def test_a_session_called_like_anothers_folder_gets_its_own() -> None:
    folder = name_folder("a b")
    assert name_folder(folder) != folder
    assert len({name_folder(name) for name in ("s1", "S1", "s1 ", "s1/", "con", "CON", "..", ".")}) == 8
