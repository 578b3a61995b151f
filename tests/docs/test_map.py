"""The map of the five documents: every snippet runs alone, and every name that a row gives exists."""

import importlib
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

import refold
from refold.agent import Agent, AgentLimits
from refold.agent import events as agent_events
from refold.agent.context_tools import ContextTools
from refold.cli.main import app, load_commands
from refold.cli.repl.keyboard import COMMAND_LIST
from refold.config import PRESETS, CompressionConfig
from refold.ladder.report import Report
from refold.server.api import sessions, sidecar
from refold.server.settings import GatewaySettings
from refold.stages import STAGES
from tests.docs.blocks import read_blocks

ROOT = Path(__file__).parents[2]
PAGES = {"en": ROOT / "docs" / "documents.md", "zh": ROOT / "docs" / "zh" / "documents.md"}
BLOCKS = [
    pytest.param(block.text, id=f"{language}:{block.line}")
    for language, page in PAGES.items()
    for block in read_blocks(page.read_text("utf-8"))
    if block.language == "python"
]
_SPAN = re.compile(r"`([^`]+)`")
_CALL = re.compile(r"\([^`]*\)?$")
# What the columns name that is text or a file of a user, not a name of ours.
LITERAL = {"refold.yaml", ".refold/ledger.db", "offloaded/SESSION/", "offloaded/会话/", "{error}"}
# Names that a row says are not there.
ABSENT = {"_compress_context"}
MANAGER, ROWS = refold.ContextCompressionManager, ("messages", "sessions", "compression_count")


@pytest.mark.slow
@pytest.mark.parametrize("text", BLOCKS)
def test_every_snippet_runs_alone(text: str, tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "documents.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page


def list_spans(page: Path) -> list[str]:
    """Return the code spans of the right column of every row."""
    rows = [line.strip("| ").split(" | ") for line in page.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [span for row in rows if len(row) == 2 for span in _SPAN.findall(row[1])]


def list_arguments() -> set[str]:
    functions = (MANAGER.__init__, MANAGER.prepare_context, refold.ContextCompressor.__init__)
    return {name for one in functions for name in inspect.signature(one).parameters}


def list_bare() -> set[str]:
    """Return every name that a row may give without saying whose it is."""
    kinds = (refold.PreparedContext, refold.CompressionResult, refold.CompactResult, refold.ContextSummary, Report)
    members = (MANAGER, refold.ContextCompressor, refold.ContextSummary, refold.TokenCounter, ContextTools)
    return {
        *(one.name for kind in kinds for one in fields(kind)),
        *(name for one in members for name in dir(one)),
        *CompressionConfig.known.settings,
        *CompressionConfig.known.blocks,
        *(*STAGES, *PRESETS, *ROWS, *agent_events.KINDS, "refold", "provider", "openai", "anthropic"),
    }


def is_known(span: str) -> bool:
    """Return whether a code span names something that exists."""
    name = _CALL.sub("", span)
    head, _, tail = name.partition(".")
    if span in LITERAL or span.startswith(("REFOLD_", "... [")):
        return True
    if method := re.match(r"(GET|POST|DELETE) (/\S+)", span):
        routes = [*sessions.router.routes, *sidecar.router.routes]
        path = method[2].replace("NAME", "{name:path}")
        return any(getattr(route, "path", "") == path and method[1] in route.methods for route in routes)  # type: ignore[attr-defined]
    if span.startswith("/"):
        return span[1:].split()[0] in {command.name for command in COMMAND_LIST}
    if span.startswith("refold "):
        load_commands()
        return span.split()[1] in get_command(app).commands  # type: ignore[attr-defined]
    if span.startswith("refold["):
        return f"\n{span[7:-1]} = [" in (ROOT / "pyproject.toml").read_text("utf-8")
    if ("/" in span and ":" not in span) or span.endswith(".py"):
        return any((base / span).exists() for base in (ROOT, ROOT / "src" / "refold"))
    if span.endswith("="):
        return span[:-1] in list_arguments()
    if ": " in span:
        return span.partition(":")[0] in CompressionConfig.known.settings
    return is_member(name, head, tail) if tail else name in list_bare() or is_importable(name)


def is_importable(name: str) -> bool:
    return hasattr(refold, name) or name in ("Agent", "AgentLimits", "complete")


def is_member(name: str, head: str, tail: str) -> bool:
    owners: dict[str, object] = {"manager": MANAGER, "agent": Agent, "prepared": refold.PreparedContext}
    if head in CompressionConfig.known.blocks:
        return tail in CompressionConfig.known.blocks[head]
    if head == "gateway":
        return tail in GatewaySettings.model_fields
    if head == "config":
        return tail in sidecar.ChatConfig.model_fields
    if head in owners or hasattr(refold, head.rstrip("()")):
        owner = owners.get(head) or getattr(refold, head.rstrip("()"))
        return hasattr(owner, tail.partition(".")[0]) or tail.partition(".")[0] in getattr(owner, "__annotations__", {})
    module, _, last = name.rpartition(".")
    try:
        found = importlib.import_module(module)
    except ImportError:
        module, _, owner_name = module.rpartition(".")
        found = getattr(importlib.import_module(module), owner_name)
    return hasattr(found, last)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_name_in_a_row_exists(page: Path) -> None:
    spans = list_spans(page)
    assert len(spans) > 90
    assert sorted({span for span in spans if span not in ABSENT and not is_known(span)}) == []
    assert AgentLimits(steps_max=3).steps_max == 3
    assert not any(is_known(one) for one in ABSENT)


def test_both_pages_name_the_same() -> None:
    spans = [{_CALL.sub("", span).split()[0] for span in list_spans(page)} - LITERAL for page in PAGES.values()]
    assert sorted(spans[0] ^ spans[1]) == []


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_readme_links_to_the_map(readme: str) -> None:
    assert f"{'docs/zh' if 'zh' in readme else 'docs'}/documents.md)" in (ROOT / readme).read_text("utf-8")
