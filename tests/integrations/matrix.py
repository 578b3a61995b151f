"""Runs the contract of every adapter against the oldest and the newest version of its framework.

    make integrations              # all of them
    make integrations ARGS=litellm # one

The frameworks conflict with each other, so each version gets its own environment in ``build/integrations``. The
result is the table in docs/integrations/index.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "integrations"
PAGE = ROOT / "docs" / "integrations" / "index.md"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "numpy")
ORACLE = ("tiktoken", "regex", "requests", "llama-index-core", "psycopg")


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework, the packages of its oldest and newest environment, and the package whose version is shown."""

    name: str
    shown: str
    oldest: tuple[str, ...]
    newest: tuple[str, ...]


FRAMEWORKS = (
    Framework(
        "langchain",
        "langchain",
        ("langchain==1.0.0", "langchain-openai==1.0.0", "langchain-anthropic==1.0.0"),
        ("langchain", "langchain-openai", "langchain-anthropic"),
    ),
    Framework("openai_agents", "openai-agents", ("openai-agents==0.3.0",), ("openai-agents",)),
    Framework(
        "pydantic_ai",
        "pydantic-ai-slim",
        ("pydantic-ai-slim[openai,anthropic]==2.0.0", "anthropic==0.108.0", "openai==2.29.0"),
        ("pydantic-ai-slim[openai,anthropic]",),
    ),
    Framework("litellm", "litellm", ("litellm==1.80.0", "mcp"), ("litellm", "mcp")),
    Framework("adk", "google-adk", ("google-adk==1.30.0", "litellm==1.80.0", "mcp"), ("google-adk", "litellm", "mcp")),
    Framework(
        "strands",
        "strands-agents",
        ("strands-agents[openai,anthropic]==1.62.0",),
        ("strands-agents[openai,anthropic]",),
    ),
    Framework(
        "agent_framework",
        "agent-framework-core",
        ("agent-framework-core==1.0.0", "agent-framework-openai==1.0.0", "agent-framework-anthropic"),
        ("agent-framework-core", "agent-framework-openai", "agent-framework-anthropic"),
    ),
)


def find_uv() -> str:
    """Return uv of this environment."""
    return str(Path(sys.executable).with_name("uv"))


def build(name: str, packages: tuple[str, ...]) -> Path:
    """Build an environment and return its Python."""
    folder = HOME / name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([find_uv(), "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    install = [find_uv(), "pip", "install", "-q", "--python", str(python)]
    subprocess.run([*install, "-e", str(ROOT), *TOOLS, *packages], check=True)
    subprocess.run([*install, "--no-deps", *ORACLE], check=True)
    return python


def read_version(python: Path, package: str) -> str:
    """Return the version of a package in an environment."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run(framework: Framework, which: str) -> tuple[str, bool]:
    """Return the row of one environment, and whether all of its cases passed."""
    python = build(f"{framework.name}-{which}", framework.oldest if which == "oldest" else framework.newest)
    files = [f"tests/integrations/test_{framework.name}.py", "tests/integrations/test_pages.py"]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", framework.name, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout[-3_000:], file=sys.stderr)
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}
    # Of the pages, only that of this framework can run here: the others are no cases of its.
    declared = len(re.findall(r"declares: ", done.stdout))
    cells = [counts.get("passed", 0), declared, counts.get("failed", 0) + counts.get("error", 0)]
    version = read_version(python, framework.shown)
    return f"| {framework.shown} | {version} | {' | '.join(map(str, cells))} |", done.returncode == 0


def main(names: list[str]) -> int:
    """Run the chosen frameworks and write the table; return 1 if a case failed."""
    rows, is_green = [], True
    for framework in FRAMEWORKS:
        if names and framework.name not in names:
            continue
        for which in ("oldest", "newest"):
            print(f"== {framework.name}, {which}", file=sys.stderr)
            row, passed = run(framework, which)
            rows.append(row)
            is_green = is_green and passed
    head = ["| framework | version | cases passed | declared unsupported | failed |", "|---|---|---|---|---|"]
    print("\n".join([*head, *rows]))
    if not names:
        page = PAGE.read_text()
        before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
        PAGE.write_text("\n".join([before, *head, *rows, after]))
    return 0 if is_green else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
