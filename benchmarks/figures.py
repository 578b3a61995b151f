"""Figures that README and docs quote: benchmarks keep them in a file, ``docs/make_figures.py`` writes pages from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path


def keep_figures(path: Path, made: Mapping[str, object]) -> None:
    """Put tables into the file, in place of earlier ones with the same names, with the day and the command."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    command = " ".join(["python", *(word for word in sys.argv if not word.startswith("/"))])
    day = datetime.now(UTC).date().isoformat()
    for name, table in made.items():
        kept[name] = {"day": day, "by": command, "table": table}
    lines = [f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in sorted(kept.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
