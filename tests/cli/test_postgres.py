"""The commands over stored sessions on PostgreSQL: the same words, the same ends, another store."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.cli import Shell
from tests.rigs.manager import agent
from tests.rigs.postgres import empty_database, own_server, server_url

SECRET = "zebraquux-hunter2"


@pytest.fixture
def url() -> Iterator[str]:
    with empty_database(server_url()) as address:
        yield address


@pytest.fixture
def shell(tmp_path: Path, url: str) -> Shell:
    """A workspace whose settings name the server, with one folded session."""
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    (folder / "refold.yaml").write_text(f"ledger: {json.dumps(url)}\n", encoding="utf-8")
    history = [*agent(30), {"role": "user", "content": f"the key is {SECRET}"}]
    with ContextCompressionManager(CompressionConfig(window=4_000, reserve=500), folder, ledger=url) as manager:
        manager.prepare_context_sync("s1", history, model="gpt-5")
        assert manager.status("s1").compression_count
    assert not (folder / ".refold" / "ledger.db").exists()
    shell = Shell(folder)
    assert shell.refold("trust").code == 0
    return shell


@pytest.mark.slow
def test_every_command_over_sessions_works_on_the_server(shell: Shell, tmp_path: Path) -> None:
    assert "s1" in shell.refold("sessions").text
    assert shell.refold("verify").text == "1 session verified: no differences\n"
    view = shell.refold("show", "-s", "s1", "--json").text
    assert shell.refold("undo", "-s", "s1").code == 0
    assert shell.refold("show", "-s", "s1", "--json").text != view
    assert shell.refold("redo", "-s", "s1").code == 0
    assert shell.refold("show", "-s", "s1", "--json").text == view
    assert "compressed" in shell.refold("log", "-s", "s1").text
    assert shell.refold("stats").code == 0
    found = shell.refold("recall", SECRET, "--session", "s1", "--json")
    handle = json.loads(found.text)[0]["handle"]
    assert SECRET in shell.refold("expand", handle, "--session", "s1").text
    assert shell.refold("facts", "--session", "s1").code == 0
    assert shell.refold("export", "-s", "s1", "--out", "s1.json").code == 0
    copied = shell.refold("import", "s1.json", "--as", "copy")
    assert copied.code == 0, copied.err
    assert json.loads(shell.refold("show", "-s", "copy", "--json").text) == json.loads(view)
    assert shell.refold("forget", handle, "-s", "s1", "--yes").code == 0
    assert SECRET not in shell.refold("show", "-s", "s1", "--originals", "--json").text
    assert SECRET in shell.refold("show", "-s", "copy", "--originals", "--json").text
    assert shell.refold("delete", "-s", "copy", "--yes").code == 0
    assert shell.refold("sessions", "--json").text.count('"id"') == 1
    assert shell.refold("verify").code == 0
    # From the server into a file, and the other way round.
    home = Shell(tmp_path / "file")
    (home.folder / ".git").mkdir(parents=True)
    (home.folder / "s1.json").write_bytes((shell.folder / "s1.json").read_bytes())
    assert home.refold("import", "s1.json").code == 0
    assert (home.folder / ".refold" / "ledger.db").is_file()
    assert json.loads(home.refold("show", "-s", "s1", "--json").text) == json.loads(view)


def test_a_server_that_lets_nobody_in_is_one_clear_line_without_the_password(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    address = own_server().url(password=SECRET)
    for arguments in (("sessions",), ("recall", "x")):
        ran = shell.refold(*arguments, REFOLD_LEDGER=address)
        assert ran.code == 8
        assert ran.err.count("\n") == 1
        assert "refuses this user or password" in ran.err
        assert SECRET not in ran.err + ran.text
    ran = shell.refold("sessions", REFOLD_LEDGER=address, REFOLD_DEBUG="1")
    assert SECRET not in ran.err + ran.text
    told = shell.refold("config", "explain", "ledger", "--json", REFOLD_LEDGER=address).text
    assert "***" in told
    assert SECRET not in told
