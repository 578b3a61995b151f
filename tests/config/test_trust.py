"""Whose settings and whose record: git's index, modes and owners, keys of earlier versions, trust after saving."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from refold.config import load_config
from refold.config.load import list_refused, open_user_folder, read_file, trust_file
from refold.config.save import save_settings
from refold.config.trust import BEACON_FILE, KEYS_FILE, SECRET_FILE, find_fault, is_tracked
from refold.errors import ConfigError
from refold.manager import ContextCompressionManager
from refold.server.auth import KeyRing
from refold.server.beacon import find_running, read_beacon
from refold.testing import ScriptedProvider
from tests.rigs.cli import Shell
from tests.rigs.server import start_rig

posix = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="asks git")


def git(folder: Path, *words: str) -> None:
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PATH": os.environ["PATH"]}
    who = ("-c", "user.name=m", "-c", "user.email=m@example.org")
    subprocess.run(["git", *who, *words], cwd=folder, env=alone, check=True, capture_output=True, timeout=60)


@pytest.fixture
def home(empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return empty_home


def write_own(home: Path, text: str) -> None:
    path = home / ".config" / "refold" / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@needs_git
@pytest.mark.parametrize(
    "made",
    [
        pytest.param([("init", "-q")], id="plain"),
        pytest.param([("init", "-q"), ("config", "index.version", "4")], id="shortened names"),
        pytest.param([("init", "-q", "--object-format=sha256")], id="long hashes"),
        pytest.param([("init", "-q"), ("config", "core.splitIndex", "true")], id="split"),
    ],
)
def test_what_git_tracks_is_found_in_every_kind_of_index(tmp_path: Path, made: list[tuple[str, ...]]) -> None:
    tmp_path = tmp_path / "repository"
    tmp_path.mkdir()
    for words in made:
        git(tmp_path, *words)
    for name in (".ref", ".refold-notes", "sub/.refold/ledger.db", "z/ü"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    git(tmp_path, "add", "-f", ".")
    assert not is_tracked(tmp_path / ".refold")
    assert is_tracked(tmp_path / "sub" / ".refold")
    assert is_tracked(tmp_path / "sub" / ".refold" / "ledger.db")
    (tmp_path / ".refold").mkdir()
    (tmp_path / ".refold" / "keys.json").write_text("{}")
    assert not is_tracked(tmp_path / ".refold"), "it is there, but not tracked"
    git(tmp_path, "add", "-f", ".refold")
    git(tmp_path, "add", "-f", "--intent-to-add", ".")
    assert is_tracked(tmp_path / ".refold")
    git(tmp_path, "commit", "-q", "-m", "all")
    git(tmp_path, "worktree", "add", "-q", "../beside")
    assert is_tracked(tmp_path.parent / "beside" / ".refold")


@needs_git
def test_a_record_is_not_committed_by_accident(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with ContextCompressionManager(None, tmp_path) as manager:
        manager.append("s", [{"role": "user", "content": "hi"}])
        git(tmp_path, "add", "-A")
    assert not is_tracked(tmp_path / ".refold")
    ContextCompressionManager(None, tmp_path).close()


@pytest.mark.parametrize(
    "index", [b"", b"DIRC", b"DIRC\0\0\0\2\xff\xff\xff\xff.refold/x\0", b"DIRC\0\0\0\4\0\0\1\0" + b"\xff" * 99]
)
def test_an_index_that_cannot_be_read_is_no_error(tmp_path: Path, index: bytes) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(index)
    assert not is_tracked(tmp_path / ".refold")


@posix
def test_a_record_that_others_may_write_or_own_or_that_is_a_link_is_not_ours(tmp_path: Path, home: Path) -> None:
    work = Path.cwd()
    with ContextCompressionManager(None, work) as manager:
        manager.append("s", [{"role": "user", "content": "hi"}])
    assert find_fault(work) is None
    record = work / ".refold"
    record.chmod(0o770)
    assert "open to other users" in str(find_fault(work))
    record.chmod(0o755)
    assert find_fault(work) is None, "earlier versions made the folder so"
    (record / "ledger.db").chmod(0o640)
    with pytest.raises(ConfigError, match=r"ledger\.db is open to other users"):
        ContextCompressionManager(None, work)
    assert Shell(work).refold("trust", HOME=str(home)).code == 0
    ContextCompressionManager(None, work).close()
    record.rename(tmp_path / "elsewhere")
    record.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in str(find_fault(work))
    if os.getuid() == 0:
        record.unlink()
        (tmp_path / "elsewhere").rename(record)
        os.chown(record / "ledger.db", 12_345, -1)
        assert "belongs to another user" in str(find_fault(work))


def test_keys_and_the_pages_secret_of_an_earlier_version_move_out_of_the_workspace(home: Path) -> None:
    work = Path.cwd()
    stored, key = KeyRing(work).add("alice")
    (work / ".refold").mkdir(mode=0o755)
    shutil.move(KeyRing(work).path, work / ".refold" / KEYS_FILE)
    (work / ".refold" / SECRET_FILE).write_text("s" * 64)
    (work / ".refold" / SECRET_FILE).chmod(0o600)
    assert KeyRing(work).find_key(key) == stored
    assert open_user_folder(work).read(SECRET_FILE) == b"s" * 64
    assert [one.name for one in (work / ".refold").iterdir()] == []
    assert KeyRing(work).find_key(key) == stored


def test_trust_is_for_one_content_and_ends_with_a_change(home: Path) -> None:
    work = Path.cwd()
    file = work / "refold.yaml"
    file.write_text("window: 5000\nredact: off\n")
    with pytest.raises(ConfigError, match=r"refold\.yaml:2: redact would let"):
        load_config(work)
    assert load_config(work, skips_refused=True).redact
    read = read_file(file)
    assert read is not None
    trust_file(read)
    assert not load_config(work).redact
    file.write_text("window: 5000\nredact: off\n ")
    with pytest.raises(ConfigError):
        load_config(work)


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("redact: on", False),
        ("redact: false", True),
        ("ledger: .refold/other.db", False),
        ("ledger: ../outside.db", True),
        ("ledger: ~/talks.db", True),
        ("ledger: /var/talks.db", True),
        ("ledger: link/talks.db", True),
        ("recall: {embeddings: off}", False),
        ("recall: {embeddings: {url: 'http://x', model: m}}", True),
        ("memory: {inject: on}", True),
        ("plugins: {mine: {url: x}}", True),
        ("compression: {compactUrl: 'http://x', compactModel: m}", True),
        ("gateway: {summaries: off, arrival: on}", False),
        ("gateway: {unheard_of: 1}", True),
        ("gateway: 7", False),
        ("chat: {model: gpt-4o}", False),
        ("mcp: {port: 1}", True),
    ],
)
def test_a_project_may_shape_compression_and_add_protection(
    tmp_path: Path, home: Path, text: str, is_refused: bool
) -> None:
    work = Path.cwd()
    (work / "link").symlink_to(tmp_path)
    (work / "refold.yaml").write_text(text)
    read = read_file(work / "refold.yaml")
    assert read is not None
    assert bool(list_refused(read, work)) is is_refused


def test_saving_keeps_trust_and_never_gives_it_to_what_was_refused(home: Path) -> None:
    work = Path.cwd()
    save_settings(work, {"compact_model": "gpt-6-luna", "window": 9_000})
    assert load_config(work).compact_model == "gpt-6-luna", "the user has set it, on the page"
    (work / "refold.yaml").write_text("gateway:\n  openai_upstream: http://evil.example\n")
    with pytest.raises(ConfigError, match="refold trust"):
        save_settings(work, {"window": 8_000})
    assert (work / "refold.yaml").read_text() == "gateway:\n  openai_upstream: http://evil.example\n"


def test_what_is_refused_is_shown(home: Path) -> None:
    work = Path.cwd()
    (work / "refold.yaml").write_text("window: 5000\nledger: postgresql://u:hunter2@db/x\ngateway:\n  port: 1\n")
    shell = Shell(work)
    told = shell.refold("config", "explain", HOME=str(home))
    assert told.code == 0, told.err
    assert "window" in told.text
    assert "ledger" not in told.text
    assert "refold.yaml:2  ledger: postgresql://u:***@db/x" in told.err
    assert "refold.yaml:4  gateway.port: 1" in told.err
    checks = json.loads(shell.refold("doctor", "--offline", "--json", HOME=str(home)).text)["checks"]
    settings = next(one for one in checks if one["name"] == "settings")
    assert (settings["state"], settings["remedy"]) == ("broken", "refold trust")
    assert "ledger, gateway.port" in settings["found"]


def test_the_users_own_file_needs_no_trust(home: Path) -> None:
    write_own(home, "redact: off\ncompact_model: m\ngateway: {port: 7001}\n")
    assert not load_config(Path.cwd()).redact


@posix
def test_a_beacon_is_believed_only_if_it_is_ours_runs_and_is_here(home: Path, tmp_path: Path) -> None:
    work = Path.cwd()
    with start_rig(work) as rig, rig.application.announce(rig.url):
        assert find_running(work) is not None
        kept = open_user_folder(work)
        written = json.loads(kept.read(BEACON_FILE) or b"")
        for change in ({"url": "http://192.0.2.1:80"}, {"pid": 0}, {"pid": 2**22 + 1}, {"pid": -1}):
            kept.write(BEACON_FILE, json.dumps({**written, **change}).encode())
            assert read_beacon(work) is None, change
        kept.write(BEACON_FILE, json.dumps(written).encode())
        assert read_beacon(work) is not None
        (kept.folder / BEACON_FILE).chmod(0o666)
        assert read_beacon(work) is None
    with ScriptedProvider() as stranger:
        kept.write(BEACON_FILE, json.dumps({**written, "url": stranger.url}).encode())
        assert read_beacon(work) is not None
        assert find_running(work) is None, "it cannot prove to be the gateway of this folder"
