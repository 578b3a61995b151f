"""What a folder that somebody else wrote may decide, and what refold keeps for its user outside of that folder.

A project's file may shape compression. Settings that choose an address, a key, a listener, a record elsewhere or less
protection are the user's: their own file, the environment, the command line. In a project's file they are refused
until the user trusts the file, and again once its content changes. A record (``.refold``) that git tracks, that belongs
to somebody else or that others may open did not come from this user's refold; it is refused until the user adopts it.
Nothing here reads the environment, and git is never run: a repository's own settings could make it run programs.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from refold.errors import ConfigError, Sentence
from refold.ledger.place import LedgerPlace, find_file
from refold.offload import FILE_MODE, FOLDER_MODE, make_folder, write_whole

# Every setting is in one of these tables; tests/tidy/test_trust.py fails for one that is in none.
USER = frozenset(
    (
        *("compact_model", "compact_url", "ledger", "redact", "plugins", "recall.embeddings", "memory.inject"),
        *("chat.base_url", "chat.tools", "mcp.host", "mcp.port", "gateway.host", "gateway.port"),
        *("gateway.openai_upstream", "gateway.anthropic_upstream", "gateway.openai_key", "gateway.anthropic_key"),
        *("gateway.summaries", "gateway.otel", "gateway.otel_metrics", "gateway.body_bytes_max"),
        *("gateway.requests_max", "gateway.tenant_requests_max", "gateway.tenant_streams_max", "gateway.tenant_bytes"),
        *("gateway.tenant_paths", "gateway.connect_timeout_s", "gateway.upstream_stall_s", "gateway.client_stall_s"),
        *("gateway.request_s_max", "gateway.prepare_s_max", "gateway.shutdown_s", "gateway.sessions_known_max"),
        *("gateway.memory_bytes_max", "gateway.worker_bytes_min"),
    )
)
PROJECT = frozenset(
    (
        *("preset", "model", "window", "context_window_tokens", "reserve", "tokenizer", "language", "summariser"),
        *("auto_compress", "context_compression_enabled", "warn_ratio", "trigger_ratio", "compact_trigger"),
        *("context_threshold", "context_compression_threshold", "threshold_rounds", "threshold_tokens", "max_turns"),
        *("economic", "economic_ratio", "economic_tokens", "tune", "compact_on_length", "max_compaction_attempts"),
        *("observations", "target_ratio", "depth", "target_tokens", "compact_target", "retention_count"),
        *("compact_preserve_count", "keep_last", "keep_recent", "keep_last_turns", "importance_threshold"),
        *("max_tool_output", "summary_max_chars", "compact_target_tokens", "compact_trigger_threshold"),
        *("compact_retry_count", "compact_timeout_s", "background", "ladder", "write_files"),
        *("recall.limit", "recall.tokens_max", "recall.inject", "recall.inject_tokens", "memory.inject_tokens"),
        *("chat.model", "chat.system", "chat.summaries", "mcp.session"),
        *("eval.retained", "eval.known", "eval.mutated", "eval.stale", "eval.questions"),
        *("gateway.compress", "gateway.arrival", "gateway.recall_tool", "gateway.cache_marks"),
    )
)
# A stage sees nothing but the conversation, so a project may set the options of its block.
PROJECT_BLOCKS = frozenset(
    (
        *("densify", "truncate", "dedupe", "offload", "mask", "fold", "score", "prune", "window_stage"),
        "clamp",
    )
)
# Values of the user's settings that a project may set as well: they only add protection.
_SAFE: Mapping[str, tuple[str, ...]] = {
    "redact": ("on", "true", "yes"),
    "recall.embeddings": ("on", "true", "off", "false", "offline"),
    "memory.inject": ("off", "false", "no"),
    "gateway.summaries": ("off", "false"),
    "gateway.otel": ("off", "false", "no"),
}
RECORD, PAGES, COMPRESSION = ".refold", "memory", ".compression"
KEYS_FILE, SECRET_FILE, BEACON_FILE = "keys.json", "page.secret", "gateway.json"
_TRUST_FILE, _ADOPTED_FILE = "trust.json", "adopted"
_BYTES_MAX = 10_000_000
_INDEX_BYTES_MAX = 500_000_000
_STAT_BYTES = 40
_HASH_BYTES = (20, 32)


def may_project_set(name: str, value: object, workspace: Path) -> bool:
    """Return whether a project's file may give a setting this value without the user's trust."""
    if name in PROJECT or name.partition(".")[0] in PROJECT_BLOCKS:
        return True
    if name == "ledger":
        return _is_inside(value, workspace)
    return str(value).strip().lower() in _SAFE.get(name, ())


def _is_inside(value: object, workspace: Path) -> bool:
    """Return whether a ledger is a file in the workspace."""
    try:
        place = LedgerPlace(value)
        path = find_file(workspace, place).resolve()
    except (ConfigError, OSError, RuntimeError, ValueError):
        return False
    return place.kind == "file" and path.is_relative_to(workspace.resolve())


class UserFolder:
    """What refold keeps for this user about one workspace, outside of it: trust, keys, its running gateway.

    The folder is named by a hash of the workspace's path, and only its owner may open it. Nothing is created before
    the first write.
    """

    def __init__(self, root: Path, workspace: str | Path) -> None:
        self.workspace = Path(workspace).resolve()
        named = hashlib.sha256(os.fsencode(self.workspace)).hexdigest()[:32]
        self.folder = root / named

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if there is none that this user alone can write."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            with os.fdopen(os.open(self.folder / name, flags), "rb") as file:
                status = os.fstat(file.fileno())
                is_ours = stat.S_ISREG(status.st_mode) and _is_own(status) and not _is_open(status, 0o022)
                return file.read(_BYTES_MAX) if is_ours else None
        except OSError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace a file's content; raise OSError if that fails."""
        make_folder(self.folder)
        write_whole(self.folder / name, content)

    def take_over(self, name: str) -> None:
        """Move a file out of the workspace's record, where earlier versions kept it; its owner was checked before."""
        old = self.workspace / RECORD / name
        with suppress(FileNotFoundError):
            self.write(name, old.read_bytes())
            old.unlink()

    def trusts(self, file: str, digest: str) -> bool:
        """Return whether the user trusts a settings file in the workspace with exactly this content."""
        return self._read_trust().get(file) == digest

    def trust(self, file: str, digest: str) -> None:
        """Trust a settings file as long as it has this content; an empty digest ends the trust."""
        self._write_trust({**self._read_trust(), file: digest})

    def has_adopted(self) -> bool:
        """Return whether the user adopted the record that is in the workspace now."""
        token = self._read_trust().get(RECORD)
        with suppress(OSError, ValueError):
            return bool(token) and (self.workspace / RECORD / _ADOPTED_FILE).read_text("ascii") == token
        return False

    def adopt(self) -> None:
        """Take the workspace's record for the user's own, and close it to others where this user may do so."""
        record, token = self.workspace / RECORD, secrets.token_hex(16)
        make_folder(record)
        for path in (record, *_list_files(record)):
            with suppress(OSError):  # Somebody else's file: it stays as it is.
                path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)
        write_whole(record / _ADOPTED_FILE, token.encode())
        self._write_trust({**self._read_trust(), RECORD: token})

    def revoke(self) -> None:
        """End every trust in this workspace."""
        with suppress(FileNotFoundError):
            (self.folder / _TRUST_FILE).unlink()

    def _read_trust(self) -> dict[str, str]:
        try:
            stored = json.loads(self.read(_TRUST_FILE) or b"{}")
        except ValueError:
            return {}
        return {str(name): str(value) for name, value in stored.items()} if isinstance(stored, dict) else {}

    def _write_trust(self, trusted: Mapping[str, str]) -> None:
        try:
            self.write(_TRUST_FILE, json.dumps({"folder": str(self.workspace), **trusted}, indent=1).encode())
        except OSError as error:
            raise ConfigError(
                "{path} cannot be written: {why}", path=self.folder, why=error.strerror or error
            ) from None


def find_fault(workspace: Path, ledger: LedgerPlace | None = None) -> Sentence | None:
    """Return why the record in a workspace may not be this user's own; None if nothing speaks against it."""
    record = workspace / RECORD
    file = find_file(workspace, ledger)
    roots, own = [record], [record, *_list_files(record)]
    if file.parent != record and _is_inside(str(file), workspace):
        roots.append(file)
        own += sorted(file.parent.glob(f"{file.name}*"))
    # A committed link would lead the files for people out of the workspace; a user's own link is not committed.
    roots += [path for name in (PAGES, COMPRESSION) if (path := workspace / name).is_symlink()]
    for path in roots:
        if os.path.lexists(path) and is_tracked(path):
            return Sentence("{path} is tracked by git", path=path)
    for path in own:
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISLNK(status.st_mode):
            return Sentence("{path} is a link", path=path)
        if not _is_own(status):
            return Sentence("{path} belongs to another user", path=path)
        # Earlier versions created the folder with the usual mode, but never a file that others can read.
        if _is_open(status, 0o022 if stat.S_ISDIR(status.st_mode) else 0o077):
            return Sentence("{path} is open to other users, and refold makes no such file", path=path)
    return None


def find_page_fault(workspace: Path) -> Sentence | None:
    """Return why the daily pages in a workspace may not be this user's own words; None if nothing speaks against it."""
    folder = workspace / PAGES
    if not folder.is_dir():
        return None
    if is_tracked(folder):
        return Sentence("{path} is tracked by git", path=folder)
    for path in (folder, *folder.glob("*.md")):
        with suppress(OSError):
            status = path.stat()
            if not _is_own(status) or _is_open(status, 0o002):
                return Sentence("{path} belongs to another user", path=path)
    return None


def _list_files(record: Path) -> list[Path]:
    """Return the files of a record that decide something; others hold what the user typed and saw."""
    with suppress(OSError):
        return sorted(one for one in record.iterdir() if ".db" in one.name or one.name in (KEYS_FILE, SECRET_FILE))
    return []


def _is_own(status: os.stat_result) -> bool:
    return sys.platform == "win32" or status.st_uid == os.getuid()


def _is_open(status: os.stat_result, bits: int) -> bool:
    return sys.platform != "win32" and bool(status.st_mode & bits)


def is_tracked(path: Path) -> bool:
    """Return whether git tracks a path, or anything below it, by the index of its repository."""
    folder = path.parent.resolve()
    root = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)
    if root is None:
        return False
    wanted = os.fsencode((folder / path.name).relative_to(root).as_posix()).lower()
    home = root / ".git"
    with suppress(OSError, ValueError):
        if home.is_file():  # A worktree or a submodule, whose index is elsewhere.
            home = root / home.read_text(encoding="utf-8", errors="surrogateescape")[:4_096].partition(":")[2].strip()
        for index in (home / "index", *home.glob("sharedindex.*")):
            if index.is_file() and index.stat().st_size <= _INDEX_BYTES_MAX and _lists(index.read_bytes(), wanted):
                return True
    return False


def _lists(index: bytes, wanted: bytes) -> bool:
    """Return whether an index has an entry for a path or below it; names of all versions are understood."""
    if index[:4] != b"DIRC" or len(index) < 12:
        return False
    version, count = struct.unpack_from(">II", index, 4)
    if version < 4 and wanted not in index.lower():
        return False
    for size in _HASH_BYTES:
        with suppress(ValueError, IndexError):  # The other size of a hash.
            for name in _read_names(index, version, count, size):
                if name == wanted or name.startswith(wanted + b"/"):
                    return True
    return False


def _read_names(index: bytes, version: int, count: int, hash_bytes: int) -> Iterator[bytes]:
    """Yield the paths in an index, in lower case; raise ValueError or IndexError if it cannot be read like this."""
    at, name = 12, b""
    for _ in range(count):
        start, at = at, at + _STAT_BYTES + hash_bytes
        at += 4 if version > 2 and index[at] & 0x40 else 2
        if version == 4:  # What the name shares with the one before is left out.
            dropped, at = _read_number(index, at)
            end = index.index(0, at)
            name, at = name[: max(0, len(name) - dropped)] + index[at:end], end + 1
        else:
            end = index.index(0, at)
            name, at = index[at:end], start + ((end - start) // 8 + 1) * 8
        yield name.lower()


def _read_number(index: bytes, at: int) -> tuple[int, int]:
    """Return a number of git's variable length and where it ends."""
    value = index[at] & 0x7F
    while index[at] & 0x80 and value < len(index):
        at += 1
        value = ((value + 1) << 7) | (index[at] & 0x7F)
    return value, at + 1
