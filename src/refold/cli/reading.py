"""Reading a conversation from a file or a pipe, and writing a result in the same dress.

JSON or JSONL, plain or gzip, any UTF encoding. The input is opened for reading only. A result goes to a temporary file
beside its place and is renamed there, so that nobody ever sees half of it; the input's own place is refused.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import secrets
import sys
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path

from refold.errors import FormatError, RefoldError
from refold.readers import is_session_file

STDIN = "-"
BYTES_MAX = 1_000_000_000
BROKEN_SHOWN = 20
_INDENT = re.compile(r"\s*[\[{]\r?\n([ \t]+)")
_GZIP = b"\x1f\x8b"


class OutputError(RefoldError):
    """The result cannot be written where it should go."""

    exit_code = 9


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds, and how it was written: rows (JSONL) or one value, with which indentation."""

    value: object
    place: str
    is_rows: bool = False
    indent: str | None = None
    broken: tuple[str, ...] = ()


def read_document(source: str) -> Document:
    """Read a file, or the standard input for ``-``; raise FormatError that says what is wrong and where."""
    place = "standard input" if source == STDIN else source if len(source) <= 200 else f"{source[:199]}…"
    content = _unzip(_read_bytes(source, place), place)
    if not content.strip():
        raise FormatError(f"{place} is empty; give a list of messages or a request body as JSON")
    return parse_document(_decode(content, place), place)


def _read_bytes(source: str, place: str) -> bytes:
    if source == STDIN:
        if sys.stdin is None or sys.stdin.isatty():
            raise FormatError("nothing is piped into the standard input; name a file, or pipe a conversation in")
        content = sys.stdin.buffer.read(BYTES_MAX + 1)
    else:
        try:
            with Path(source).open("rb") as file:
                content = file.read(BYTES_MAX + 1)
        except IsADirectoryError:
            raise FormatError(f"{place} is a folder; name a file in it") from None
        except FileNotFoundError:
            raise FormatError(f"{place} does not exist; name a file, or '-' for the standard input") from None
        except (OSError, ValueError) as error:
            raise FormatError(f"{place} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > BYTES_MAX:
        raise FormatError(f"{place} is larger than {BYTES_MAX:,} bytes; split it")
    return content


def _unzip(content: bytes, place: str) -> bytes:
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            plain = file.read(BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{place} is a damaged gzip file: {error}") from None
    if len(plain) > BYTES_MAX:
        raise FormatError(f"{place} unpacks to more than {BYTES_MAX:,} bytes; split it")
    return plain


def _decode(content: bytes, place: str) -> str:
    try:
        # A lone surrogate that someone encoded anyway is kept as it is.
        text = content.decode(json.detect_encoding(content), "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(f"{place} is not text (byte {error.start}); give JSON in UTF-8") from None
    if "\0" in text[:4096]:
        raise FormatError(f"{place} is a binary file; give JSON in UTF-8")
    return text.removeprefix("\ufeff")


def parse_document(text: str, place: str) -> Document:
    """Parse one JSON value, or rows of them; the first mistake is told with its line and column."""
    try:
        found = _INDENT.match(text)
        return Document(json.loads(text), place, indent=found[1] if found else None)
    except json.JSONDecodeError as error:
        # What follows a whole first line may be the next row.
        broken: list[str] = []
        rows = _parse_rows(text, place, broken) if error.msg == "Extra data" else None
        if rows is None:
            raise FormatError(f"{place}:{error.lineno}:{error.colno}: not JSON: {_lower(error.msg)}") from None
        return Document(rows, place, is_rows=True, broken=tuple(broken))
    except RecursionError:
        raise FormatError(f"{place}: nested too deeply to be a conversation") from None
    except ValueError as error:
        raise FormatError(f"{place}: not JSON that can be read: {_lower(str(error))[:200]}") from None


def _parse_rows(text: str, place: str, broken: list[str]) -> list[object] | None:
    """Return the rows of JSONL; None if the first line alone is not JSON, so that it is not JSONL at all.

    Agents that are killed leave half a line in their session files. Such lines are noted in ``broken``; in any other
    file they are an error.
    """
    rows: list[object] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if not rows:
                return None
            column = getattr(error, "colno", 1)
            problem = _lower(getattr(error, "msg", str(error)))[:200]
            broken.append(f"{place}:{number}:{column}: not JSON: {problem}")
    if broken and not is_session_file(rows):
        raise FormatError(broken[0])
    return rows


def note_broken(broken: Sequence[str], doing: str = "not read") -> None:
    """Name what was passed over on standard error, the first of it in full."""
    from refold.cli.render import clean_line

    for why in broken[:BROKEN_SHOWN]:
        sys.stderr.write(f"{doing}: {clean_line(why, 400)}\n")
    if len(broken) > BROKEN_SHOWN:
        sys.stderr.write(f"{doing}: {len(broken) - BROKEN_SHOWN:,} more\n")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def format_document(document: Document, value: object) -> bytes:
    """Return a value as JSON text, dressed as the document was."""
    if document.is_rows and isinstance(value, list):
        return b"".join(_dump(row, None) + b"\n" for row in value)
    return _dump(value, document.indent) + b"\n"


def _dump(value: object, indent: str | None) -> bytes:
    separators = (",", ": ") if indent else (", ", ": ")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # A lone surrogate has no UTF-8; its escape is legal JSON.
        return json.dumps(value, indent=indent, separators=separators).encode("ascii")


def write_json(value: object, *, err: bool = False) -> None:
    """Write a value for programs: readable where the stream can show it, escaped where it cannot."""
    stream = sys.stderr if err else sys.stdout
    text = json.dumps(value, indent=2, default=_plain, ensure_ascii=False)
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2, default=_plain)
    stream.write(text + "\n")
    stream.flush()


def _plain(value: object) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def refuse_same_file(source: str, target: str | None, option: str = "--out") -> None:
    """Raise OutputError if the result would replace the input: that file is never changed."""
    if target is None or source == STDIN:
        return
    here, there = Path(source), Path(target)
    with contextlib.suppress(OSError):
        if there.exists() and here.exists() and here.samefile(there):
            raise OutputError(f"{option} {target} is the input file; the input is never changed, name another file")


def write_result(content: bytes, target: str | None, option: str = "--out") -> None:
    """Write a result to a file, all of it or nothing, or to the standard output; ``option`` is what named the file."""
    if target is None or target == STDIN:
        if sys.stdout is None:
            raise OutputError(f"the standard output is closed; name a file with {option}")
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    try:
        if path.is_dir():
            raise OutputError(f"{option} {target} is a folder; name a file in it")
        if target.endswith(".gz"):
            content = gzip.compress(content, mtime=0)
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # A device or a pipe cannot be renamed onto.
            return
        _replace_file(path.resolve(), content)
    except OSError as error:
        raise OutputError(f"{option} {target} cannot be written: {error.strerror or error}") from None


def _replace_file(path: Path, content: bytes) -> None:
    """Put content in the place of a file in one step; a new file has the rights that the user's umask gives."""
    temporary = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
