"""The same figures on every face: page, list, commands, HTTP, metrics, headers and the tools of an agent.

Sent, saved, folded away, compressions and the bill have one definition each. The sample, an imported session and a
session of the gateway are compared, also after an undo.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from refold import CompressionConfig, ContextCompressionManager
from refold.agent.context_tools import ContextTools
from refold.cli.main import app as cli
from refold.manager.notices import list_folds
from refold.mcp import make_server
from refold.server.api.interface import Access
from refold.server.auth import Caller
from refold.server.settings import GatewaySettings
from refold.web.context import read_context
from refold.web.conversation import read_moments
from refold.web.data import list_sessions, read_overview, read_snapshot
from refold.web.rows import describe_rows, make_outline
from refold.web.sample import NAME, SamplePlayer, make_sample
from refold.web.transfer import FileImport, import_files
from tests.rigs.histories import agent_messages
from tests.rigs.server import Rig, make_body, make_dialog, start_rig, wait_for

SYSTEM = {"role": "system", "content": "You look after the orders of a timber yard. Answer in one sentence."}
TOOL = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Find an order by its number",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}


@pytest.fixture
def rig(tmp_path: Path, empty_home: Path) -> Iterator[Rig]:
    config = {"window": 20_000, "reserve": 2_000, "economic": False}
    with start_rig(tmp_path / "work", config=config) as made:
        yield made


def open_access(manager: ContextCompressionManager) -> Access:
    application: Any = SimpleNamespace(manager=manager, settings=GatewaySettings())
    return Access(application, Caller(""))


def run_json(*arguments: str) -> Any:
    done = CliRunner().invoke(cli, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def check_faces(manager: ContextCompressionManager, name: str) -> None:
    """Fail if two faces say different things of a session."""
    access = open_access(manager)
    status, figures = manager.status(name), manager.figures(name)
    listed = next(one.row for one in list_sessions(access, "", 1_000).sessions if one.name == name)
    assert (listed.messages, listed.tokens, listed.compression_count) == (
        status.messages,
        status.tokens_original,
        status.compression_count,
    )
    context = read_context(access, name)
    assert context.status == status
    assert sum(context.parts.values()) == status.tokens

    assert figures.folded_away == status.folded_away
    assert len(figures.folds) == status.compression_count
    assert manager.statistics(name).compressions == status.compression_count
    overview = read_overview(access, name)
    assert (overview.bill, overview.tokens_freed, len(overview.folds)) == (
        figures.bill,
        status.folded_away,
        status.compression_count,
    )
    # A session without reported usage has moments that we counted; they are in no bill.
    moments = [one for one in read_moments(access, read_snapshot(access, name)) if not one.is_counted]
    assert sum(one.tokens for one in moments) == figures.bill.tokens
    assert sum(one.tokens_raw for one in moments) == figures.bill.tokens_raw
    assert sum(one.folds for one in moments) <= status.compression_count

    place = ("--workspace", str(manager.workspace_path))
    told = run_json("stats", "--session", name, *place)
    assert (told["compressions"], told["folded_away"]) == (status.compression_count, status.folded_away)
    assert told["bill"]["tokens"] == figures.bill.tokens
    assert told["bill"]["dollars_saved"] == pytest.approx(figures.bill.dollars_saved)
    row = next(one for one in run_json("sessions", *place) if one["id"] == name)
    assert (row["tokens"], row["compression_count"]) == (status.tokens_original, status.compression_count)
    said = CliRunner().invoke(cli, ["show", "--session", name, *place]).stdout.replace("\n", " ")
    assert f"{status.tokens:,} of {status.hard:,} tokens" in said
    how = (
        f"in {status.compression_count} compression" if status.compression_count else "by shortening outputs on arrival"
    )
    assert f"{status.folded_away:,} tokens folded away {how}" in said

    text = ask_mcp(manager, name)
    assert text == ContextTools(manager, name).context_status()
    assert f"{status.tokens:,} of {status.hard:,} tokens" in text
    assert f"{status.folded_away:,} tokens folded away" in text
    assert f"{status.compression_count} compression" in text
    assert f"{status.messages_folded:,} compressed" in text
    assert status.messages_folded == sum(one.is_compressed for one in manager.ledger.read_messages(name))


def ask_mcp(manager: ContextCompressionManager, name: str) -> str:
    """Return what the MCP server says about a session, through its own door."""
    server = make_server(manager)
    blocks = asyncio.run(server.call_tool("context_status", {"session": name}))
    return "".join(str(getattr(block, "text", "")) for block in getattr(blocks, "content", blocks))


def test_the_sample_has_the_same_figures_everywhere(tmp_path: Path, empty_home: Path) -> None:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        assert make_sample(manager)
        check_faces(manager, NAME)
        status = manager.status(NAME)
        assert status.window == 16_000, "its window is part of its settings"
        newest = manager.ledger.read_usage(NAME, limit=1)[0]
        assert (newest.path_length, newest.counted_tokens) == (status.messages, status.tokens), "tools are counted"
        manager.undo(NAME)
        check_faces(manager, NAME)
        expected = manager.compress(NAME, dry_run=True)
        done = manager.compress(NAME)
        assert (done.previous_tokens, done.current_tokens) == (expected.previous_tokens, expected.current_tokens)


def test_a_session_that_was_never_compressed_says_what_was_shortened_on_arrival(
    tmp_path: Path, empty_home: Path, project_root: Path
) -> None:
    place = ("--workspace", str(tmp_path))
    file = project_root / "examples" / "sessions" / "responses_agent.json"
    assert CliRunner().invoke(cli, ["import", str(file), *place]).exit_code == 0
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        status = manager.status("responses_agent")
        assert status.folded_away > 0 == status.compression_count
        check_faces(manager, "responses_agent")
    told = CliRunner().invoke(cli, ["stats", "--session", "responses_agent", *place]).stdout
    assert f"{status.folded_away:,} tokens, by shortening outputs on arrival" in " ".join(told.split())


def test_the_timeline_of_an_imported_session_counts_as_its_gauge_does(
    tmp_path: Path, empty_home: Path, project_root: Path
) -> None:
    """A message with several tool results, each shortened on arrival, frees what it frees once."""
    file = project_root / "examples" / "sessions" / "anthropic_thinking.json"
    assert CliRunner().invoke(cli, ["import", str(file), "--workspace", str(tmp_path)]).exit_code == 0
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        access = open_access(manager)
        seen = read_snapshot(access, "anthropic_thinking")
        status = manager.status("anthropic_thinking")
        assert sum(one.edit.tokens_freed for one in seen.edits) == status.folded_away > 0
        moments = read_moments(access, seen)
        tail = [one.tokens for one in access.ledger.read_messages("anthropic_thinking")][moments[-1].messages :]
        assert moments[-1].tokens == pytest.approx(status.tokens - sum(tail), abs=5)
        assert moments[0].tokens == moments[0].tokens_raw, "nothing had been shortened before the first answer"


@pytest.mark.slow
def test_a_process_that_only_watches_expects_the_next_compression_where_the_others_do(
    tmp_path: Path, empty_home: Path
) -> None:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as watching:
        assert make_sample(watching)
        watching.status(NAME)
        playing = SamplePlayer(watching)
        while playing.play_step():
            pass
        playing.manager.compress(NAME)
        with ContextCompressionManager(CompressionConfig(), tmp_path) as other:
            assert watching.status(NAME) == other.status(NAME)


@pytest.mark.slow  # The sample is compared above, which is one of these.
@pytest.mark.parametrize("file", ["coding_agent.json", "anthropic_thinking.json", "responses_agent.json"])
def test_an_imported_session_has_the_same_figures_everywhere(
    tmp_path: Path, empty_home: Path, project_root: Path, file: str
) -> None:
    folder = tmp_path / "dropped"
    folder.mkdir()
    shutil.copy(project_root / "examples" / "sessions" / file, folder)
    config = CompressionConfig(window=16_000, reserve=2_000)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "refold.yaml").write_text("window: 16000\nreserve: 2000\n")
    with ContextCompressionManager(config, tmp_path / "work") as manager:
        imported = FileImport()
        import_files(open_access(manager), folder, imported)
        (name,) = imported.names
        assert imported.bill == manager.figures(name).bill
        assert imported.bill.tokens < 0.8 * imported.bill.tokens_raw
        assert manager.status(name).compression_count >= 1
        check_faces(manager, name)


@pytest.mark.slow  # tests/ladder/test_fold_size.py shows it for the record.
def test_the_size_of_a_fold_is_that_of_its_originals_on_every_face(rig: Rig) -> None:
    """Also if it took in earlier folds, whose records were much smaller than the originals."""
    dialog = make_dialog(45, words=250)
    for stop in range(1, len(dialog) + 1, 4):
        sent = rig.post("openai-chat", make_body("openai-chat", dialog[:stop]), x_refold_session="agent")
    manager, access = rig.manager, open_access(rig.manager)
    stored = manager.ledger.read_edits("agent")
    tokens = {one.id: one.tokens for one in manager.ledger.read_messages("agent")}
    sizes = {
        one.edit.fold.handle: (sum(tokens[name] for name in one.edit.covers), one.edit.tokens_after)
        for one in stored
        if one.edit.fold is not None
    }
    largest = max((one.edit for one in stored), key=lambda edit: len(edit.covers))
    assert largest.made_from, "it took earlier folds in"
    assert largest.fold is not None
    handle, (before, after) = largest.fold.handle, sizes[largest.fold.handle]
    assert before > 2 * largest.tokens_before, "what was in view is much less"
    sentence = f"{len(largest.covers):,} messages, {before:,} → {after:,} tokens"

    seen = read_snapshot(access, "agent")
    rows = make_outline(seen.path, seen.edits, "sees", open_folds=(), redoable=())
    cards = {row["handle"]: row for row in describe_rows(access, seen, "sees", rows) if row["kind"] == "fold"}
    assert (cards[handle]["before"], cards[handle]["after"]) == (before, after)
    events = [event for event in manager.ledger.read_events("agent", limit=1_000) if event.kind == "compressed"]
    told = {one.handle: (one.tokens_before, one.tokens_after) for event in events for one in list_folds(event)}
    assert told == sizes
    listed = {one["handle"]: one for one in rig.http.get("/api/sessions/agent/edits").json()["edits"]}
    assert (listed[handle]["tokens_before"], listed[handle]["tokens_after"]) == (before, after)

    place = ("--session", "agent", "--workspace", str(manager.workspace_path))
    shown = {one["fold"]["handle"]: one for one in run_json("show", "--edits", *place) if one["fold"]}
    assert (shown[handle]["tokens_before"], shown[handle]["tokens_after"]) == (before, after)
    assert sentence in " ".join(CliRunner().invoke(cli, ["log", *place]).stdout.split())
    in_view = [one for one in stored if one.edit.fold is not None and one.edit.fold.handle in cards]
    covered = sum(sizes[one.edit.fold.handle][0] for one in in_view if one.edit.fold is not None)
    statistics = manager.statistics("agent")
    assert (statistics.archived, statistics.archived_tokens) == (sum(len(o.edit.covers) for o in in_view), covered)
    assert run_json("stats", *place)["archived_tokens"] == covered
    came = int(sent.headers["x-refold-tokens"].split("->")[0])
    assert came == pytest.approx(manager.status("agent").tokens_original, abs=20), "the header, too, counts originals"


@pytest.mark.slow
def test_a_session_of_the_gateway_has_the_same_figures_in_headers_and_metrics(rig: Rig) -> None:
    dialog = make_dialog(40, words=250)
    before = after = 0
    for stop in range(1, len(dialog) + 1, 2):
        body = make_body("openai-chat", [SYSTEM, *dialog[:stop]], tools=[TOOL])
        answer = rig.post("openai-chat", body, x_refold_session="agent")
        assert answer.status_code == 200
        came, went = answer.headers["x-refold-tokens"].split("->")
        before, after = before + int(came), after + int(went)
    manager = rig.manager
    requests = len(rig.provider.requests)
    wait_for(lambda: manager.figures("agent").bill.requests == requests)
    figures = manager.figures("agent")
    assert figures.folds, "it was compressed"
    text = rig.http.get("/metrics").text
    assert read_metric(text, "refold_tokens_before_total") == before
    assert read_metric(text, "refold_tokens_after_total") == after
    assert read_metric(text, "refold_compressions_total") == len(figures.folds)
    stored = manager.ledger.read_usage("agent", limit=1_000)
    assert sum(one.counted_tokens for one in stored) == after, "what was counted is what the header says"
    told = rig.http.get("/api/sessions/agent/stats").json()
    assert told["compressions"] == len(figures.folds)
    check_faces(manager, "agent")
    # Another process knows what was sent beside the messages, and the window that it was prepared for.
    with ContextCompressionManager(CompressionConfig(), manager.workspace_path) as other:
        seen, known = other.status("agent"), manager.status("agent")
        assert (seen.tokens, seen.tools_tokens, seen.hard) == (known.tokens, known.tools_tokens, known.hard)
        assert seen.tools_tokens > 0
        check_faces(other, "agent")
    # The provider's own count is used, and the size without refold is estimated from it.
    assert figures.bill.tokens_raw - figures.bill.tokens == pytest.approx(before - after, rel=0.02)


def read_metric(text: str, name: str) -> int:
    found = re.search(rf"^{name} ([\d.e+]+)$", text, re.M)
    assert found, name
    return int(float(found[1]))


def test_the_marks_of_the_gauge_are_in_order_and_the_nearest_is_the_one_that_the_status_names(tmp_path: Path) -> None:
    config = CompressionConfig(window=30_000, reserve=0, target_ratio=0.04, economic_ratio=0.05)
    with ContextCompressionManager(config, tmp_path) as manager:
        for end in range(3, 40, 2):
            manager.prepare_context_sync("s", agent_messages(60)[: end + 1], model="claude-sonnet-4-5")
        status = manager.status("s")
        assert status.saves_money
        tiers = read_context(open_access(manager), "s").tiers
    assert [name for name, _ in tiers] == ["saves", "warn", "soft", "hard"]
    assert [tokens for _, tokens in tiers] == sorted(tokens for _, tokens in tiers)
    assert dict(tiers)["saves"] == status.acts_at
