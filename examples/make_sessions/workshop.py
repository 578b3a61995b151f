"""A pretend working copy: files in memory, read, searched, edited and diffed as a coding agent's tools would.

Its answers come from the files it holds, so a read after an edit shows the edit. It never touches the disk.
"""

from __future__ import annotations

import difflib
import hashlib
import re


class Workshop:
    """Files as of the last commit, and as they are now."""

    def __init__(self, files: dict[str, str]) -> None:
        self.committed = dict(files)
        self.files = dict(files)

    def read_file(self, path: str, start: int = 1, end: int | None = None) -> str:
        """The file with line numbers, or the message a tool gives when there is none."""
        if path not in self.files:
            return f"error: no such file: {path}"
        lines = self.files[path].splitlines()
        chosen = lines[start - 1 : end]
        return "\n".join(f"{number:>5}\t{line}" for number, line in enumerate(chosen, start))

    def write_file(self, path: str, content: str) -> str:
        """Replace or create a file."""
        verb = "updated" if path in self.files else "created"
        self.files[path] = content
        return f"{verb} {path} ({len(content.splitlines())} lines, {len(content.encode())} bytes)"

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace one exact occurrence."""
        count = self.files[path].count(old)
        if count != 1:
            return f"error: old_text occurs {count} times in {path}; it must occur once"
        line = self.files[path][: self.files[path].index(old)].count("\n") + 1
        self.files[path] = self.files[path].replace(old, new)
        return f"edited {path} at line {line}"

    def search(self, pattern: str) -> str:
        """Lines that match, with path and number."""
        hits = [
            f"{path}:{number}:{line}"
            for path in sorted(self.files)
            for number, line in enumerate(self.files[path].splitlines(), 1)
            if re.search(pattern, line)
        ]
        return "\n".join(hits) if hits else "no matches"

    def diff(self) -> str:
        """What changed since the last commit, as git prints it."""
        pieces = []
        for path in sorted(set(self.files) | set(self.committed)):
            before, after = self.committed.get(path), self.files.get(path)
            if before == after or after is None:
                continue
            head = f"diff --git a/{path} b/{path}\n"
            if before is None:
                head += f"new file mode 100644\nindex 0000000..{_blob(after)}\n"
            else:
                head += f"index {_blob(before)}..{_blob(after)} 100644\n"
            old_name = "/dev/null" if before is None else f"a/{path}"
            body = difflib.unified_diff(
                (before or "").splitlines(), after.splitlines(), old_name, f"b/{path}", lineterm=""
            )
            pieces.append(head + "\n".join(body))
        return "\n".join(pieces)

    def commit(self, branch: str, subject: str) -> tuple[str, str]:
        """Commit all and return the short hash and what git prints."""
        changed = [path for path in self.files if self.files[path] != self.committed.get(path)]
        digest = hashlib.sha1((subject + self.diff()).encode()).hexdigest()[:9]
        self.committed = dict(self.files)
        return digest, f"[{branch} {digest}] {subject}\n {len(changed)} files changed"


def _blob(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()[:7]
