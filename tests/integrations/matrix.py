"""Runs the contract of every adapter against the oldest and the newest version of its framework.

    make integrations                                 # all of them
    make integrations ARGS="litellm langchain"        # some
    make integrations ARGS="--newest --check litellm" # the newest version alone; the page is left as it is

The frameworks conflict with each other, so each version gets its own environment in ``build/integrations``. Each result
is written into the table of docs/integrations/index.md at once: a run that was interrupted is finished by naming the
frameworks that are left.
"""

from __future__ import annotations

import os
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
VERSIONS = ("oldest", "newest")
HEAD = ("| framework | run | version | cases passed | declared unsupported | failed |", "|---|---|---|---|---|---|")
ORACLE = ("tiktoken", "regex", "requests", "llama-index-core", "psycopg")
# Frameworks require the newest certificates and packages of the proxy that nothing here uses, which a mirror may lack:
# any version of these will do.
ANY_VERSION = ("certifi", "litellm-proxy-extras", "litellm-enterprise")


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework, the packages of its oldest and newest environment, and the package whose version is shown.

    One without an adapter, which works through ``refold.wrap`` or the gateway, has no oldest version.
    """

    name: str
    shown: str
    oldest: tuple[str, ...]
    newest: tuple[str, ...]


FRAMEWORKS = (
    Framework(
        "langchain",
        "langchain",
        ("langchain==1.0.0", "langchain-openai==1.0.0", "langchain-anthropic==1.0.0"),
        ("langchain", "langchain-openai", "langchain-anthropic", "deepagents"),
    ),
    Framework("openai_agents", "openai-agents", ("openai-agents==0.3.0",), ("openai-agents",)),
    Framework(
        "pydantic_ai",
        "pydantic-ai-slim",
        ("pydantic-ai-slim[openai,anthropic]==2.0.0", "anthropic==0.108.0", "openai==2.29.0"),
        ("pydantic-ai-slim[openai,anthropic]",),
    ),
    Framework("litellm", "litellm", ("litellm==1.80.0", "mcp"), ("litellm[proxy]", "mcp")),
    Framework(
        "llama_index",
        "llama-index-core",
        # Older versions of its package for Anthropic know no current model; none works with anthropic 2.
        (
            "llama-index-core==0.14.6",
            "llama-index-llms-openai==0.6.6",
            "llama-index-llms-anthropic==0.12.3",
            "anthropic<2",
        ),
        ("llama-index-core", "llama-index-llms-openai", "llama-index-llms-anthropic", "anthropic<2"),
    ),
    Framework(
        "haystack",
        "haystack-ai",
        ("haystack-ai==2.22.0", "anthropic-haystack==5.0.0", "anthropic<1", "openai<3"),
        ("haystack-ai", "anthropic-haystack"),
    ),
    Framework("crewai", "crewai", ("crewai[anthropic]==1.15.20",), ("crewai[anthropic]",)),
    Framework("adk", "google-adk", ("google-adk==1.30.0", "litellm==1.83.0", "mcp"), ("google-adk", "litellm", "mcp")),
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
    Framework(
        "autogen",
        "autogen-core",
        ("autogen-agentchat==0.6.2", "autogen-ext[openai]==0.6.2"),
        ("autogen-agentchat", "autogen-ext[openai]"),
    ),
    Framework("agno", "agno", ("agno==3.0.0", "openai", "anthropic"), ("agno", "openai", "anthropic")),
    Framework("instructor", "instructor", (), ("instructor", "openai")),
    Framework("smolagents", "smolagents", (), ("smolagents[openai]",)),
    Framework("dspy", "dspy", (), ("dspy",)),
    Framework("claude_agent_sdk", "claude-agent-sdk", (), ("claude-agent-sdk",)),
    Framework("browser_use", "browser-use", (), ("browser-use",)),
)


def find_uv() -> str:
    """Return uv of this environment."""
    return str(Path(sys.executable).with_name("uv"))


def build(name: str, packages: tuple[str, ...], extra: str = "") -> Path:
    """Build an environment with an extra of refold, and return its Python."""
    folder = HOME / name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([find_uv(), "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    install = [find_uv(), "pip", "install", "-q", "--python", str(python)]
    any_version = HOME / "any-version.txt"
    any_version.write_text("\n".join(ANY_VERSION) + "\n")
    subprocess.run(
        [*install, "--upgrade", "--override", str(any_version), "-e", f"{ROOT}{extra}", *TOOLS, *packages], check=True
    )
    subprocess.run([*install, "--no-deps", *ORACLE], check=True)
    return python


def read_version(python: Path, package: str) -> str:
    """Return the version of a package in an environment."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run(framework: Framework, which: str) -> tuple[str, bool]:
    """Return the row of one environment, and whether all of its cases passed."""
    packages = framework.oldest if which == "oldest" else framework.newest
    python = build(f"{framework.name}-{which}", packages, "" if framework.oldest else "[server]")
    names = (framework.name, "pages", "growing", "histories")
    files = [file for name in names if (ROOT / (file := f"tests/integrations/test_{name}.py")).exists()]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--timeout", "900"]
    command += ["-k", framework.name, *files]
    # Some frameworks keep files in the home folder that another version cannot read.
    home = HOME / f"{framework.name}-{which}" / "home"
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[-3_000:], file=sys.stderr)
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}
    # Of the pages, only that of this framework can run here; the others are skipped for another reason.
    declared = sum(map(int, re.findall(r"SKIPPED \[(\d+)\][^\n]*declares: ", done.stdout)))
    cells = [counts.get("passed", 0), declared, counts.get("failed", 0) + counts.get("error", 0)]
    version = read_version(python, framework.shown)
    return f"| {framework.shown} | {which} | {version} | {' | '.join(map(str, cells))} |", done.returncode == 0


def write_row(row: str) -> None:
    """Put a row into the page's table, in the place of an earlier one of that framework and version."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    rows = {tuple(line.split(" | ")[:2]): line for line in table.strip().splitlines()[2:]}
    rows[tuple(row.split(" | ")[:2])] = row
    order = [(f"| {framework.shown}", which) for framework in FRAMEWORKS for which in VERSIONS]
    listed = [rows[key] for key in order if key in rows]
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *HEAD, *listed, f"{END}{after}"]))


def main(words: list[str]) -> int:
    """Run the chosen frameworks and write the table; return 1 if a case failed."""
    names = [word for word in words if not word.startswith("--")]
    unknown = sorted(set(names) - {framework.name for framework in FRAMEWORKS})
    if unknown or not {"--newest", "--check"}.issuperset(set(words) - set(names)):
        print(f"no such framework or option: {', '.join(unknown) or ' '.join(words)}", file=sys.stderr)
        return 2
    is_green = True
    print("\n".join(HEAD))
    for framework in FRAMEWORKS:
        if names and framework.name not in names:
            continue
        for which in VERSIONS[-1:] if "--newest" in words or not framework.oldest else VERSIONS:
            print(f"== {framework.name}, {which}", file=sys.stderr)
            row, passed = run(framework, which)
            print(row)
            is_green = is_green and passed
            if "--check" not in words:
                write_row(row)
    return 0 if is_green else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
