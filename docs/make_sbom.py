"""Write the bill of materials (CycloneDX, JSON) of what ``refold[all]`` installs. ``make sbom`` runs it.

Names, versions and hashes come from the locks in ``requirements/``, licences from ``docs/reference/licences.md``. With
``--licences`` that page is written first, from the metadata of the installed packages; a licence of a package that is
not installed here stays as the page has it.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import metadata
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "licences.md"
_ENTRY = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.M)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.M)
_EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+()-]+| (?:AND|OR) \([^()]+\))*")
# What packages state in words, as the SPDX list names it.
_SPDX = {
    "any-OSI": "any licence of the Open Source Initiative",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "MIT License, Apache License, Version 2.0": "MIT OR Apache-2.0",
    # Docutils; the last one is for an Emacs mode.
    "Public Domain, BSD License, GNU General Public License (GPL)": "public domain, BSD-2-Clause and GPL-3.0",
}
INTRODUCTION = """# Licences of dependencies

What `refold[all]` installs, with the licence that each package states; refold itself is under the MIT licence.
`make sbom` writes the same with versions and hashes as a bill of materials, `build/sbom.cdx.json` (CycloneDX). The base
install needs the packages marked *base*. Of docutils, an Emacs mode alone is under the GPL.
Written by `python docs/make_sbom.py --licences`; a test compares it with the locks.

| package | licence | needed by |
|---|---|---|
"""


def read_lock(name: str) -> dict[str, dict[str, list[str]]]:
    """Return the packages of a lock: their versions (some differ by system), each with the hashes of its files."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    starts = [*(one.start() for one in _ENTRY.finditer(text)), len(text)]
    found: dict[str, dict[str, list[str]]] = {}
    for begin, end in pairwise(starts):
        entry = _ENTRY.match(text, begin)
        assert entry is not None
        found.setdefault(entry[1].lower(), {})[entry[2]] = _HASH.findall(text, begin, end)
    return found


def read_licences() -> dict[str, str]:
    """Return the licence of each package on the page."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return {name: licence for name, licence, _ in _ROW.findall(text)}


def find_licence(name: str) -> str:
    """Return the licence that an installed package states; empty if it is not installed."""
    try:
        stated = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    classes = [
        one.rpartition("::")[2].strip() for one in stated.get_all("Classifier") or [] if one.startswith("License")
    ]
    words = str(stated["License-Expression"] or stated["License"] or ", ".join(classes)).partition("\n")[0].strip()
    return _SPDX.get(words, words)


def write_page() -> str:
    """Return the page of licences."""
    base, known = read_lock("base"), read_licences()
    licences = {name: find_licence(name) or known.get(name, "not stated") for name in sorted(read_lock("all"))}
    rows = [f"| `{name}` | {one} | {'base' if name in base else 'an extra'} |" for name, one in licences.items()]
    return INTRODUCTION + "\n".join(rows) + "\n"


def make_bill() -> dict[str, object]:
    """Return the bill of materials."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = (ROOT / "src" / "refold" / "__init__.py").read_text(encoding="utf-8")
    written = re.search(r'__version__ = "([^"]+)"', source)
    version = project.get("version") or (written[1] if written else "0")
    base, licences = read_lock("base"), read_licences()
    own = f"pkg:pypi/refold@{version}"
    parts = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{number}",
            "name": name,
            "version": number,
            "scope": "required" if name in base else "optional",
            "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
            "licenses": [_write_licence(licences[name])],
            "purl": f"pkg:pypi/{name}@{number}",
        }
        for name, versions in sorted(read_lock("all").items())
        for number, hashes in versions.items()
    ]
    about = {"type": "library", "bom-ref": own, "name": "refold", "version": version, "purl": own}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**about, "licenses": [{"license": {"id": "MIT"}}]}},
        "components": parts,
    }


def _write_licence(stated: str) -> dict[str, object]:
    return {"expression": stated} if _EXPRESSION.fullmatch(stated) else {"license": {"name": stated}}


if __name__ == "__main__":
    if "--licences" in sys.argv[1:]:
        PAGE.write_text(write_page(), encoding="utf-8")
    target = ROOT / "build" / "sbom.cdx.json"
    target.parent.mkdir(exist_ok=True)
    bill = make_bill()
    target.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{target.relative_to(ROOT)}: {len(bill['components'])} packages\n")  # type: ignore[arg-type]
