"""The context tools over MCP, with the official client: a real process over stdio, and a real port."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from refold.testing.postgres import find_port
from tests.agent.test_overflow import write_history
from tests.rigs.agent import make_manager
from tests.rigs.cli import Shell

mcp = pytest.importorskip("mcp", reason="needs refold[mcp]: the official library")
pytest.importorskip("openai", reason="needs refold[llm]: the official clients")

TOOLS = {
    "context_status",
    "context_compress",
    "context_config",
    "context_summary",
    "context_recall",
    "context_expand",
    "context_pin",
    "context_sessions",
    "context_append",
    "context_prepare",
}


@asynccontextmanager
async def connect(folder: Path, *options: str, **environment: str) -> AsyncIterator[Any]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REFOLD_")}
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "refold", "mcp", "--workspace", str(folder), *options],
        env={**kept, "HOME": str(folder), **environment},
    )
    async with mcp.Client(server) as client:
        yield client


@asynccontextmanager
async def connect_in_process(folder: Path, session: str = "") -> AsyncIterator[Any]:
    """Talk to the same server without a process."""
    from refold.mcp import make_server

    with make_manager(folder) as manager:
        async with mcp.Client(make_server(manager, session)) as client:
            yield client


async def call(client: Any, name: str, **arguments: Any) -> str:
    answer = await client.call_tool(name, arguments)
    assert not answer.is_error, answer.content
    return "".join(block.text for block in answer.content)


def fill(folder: Path, session: str = "s") -> None:
    (folder / ".git").mkdir(exist_ok=True)
    with make_manager(folder) as manager:
        manager.append(session, write_history("openai-chat", 30), format="openai-chat")


async def test_every_context_tool_answers_over_stdio(tmp_path: Path) -> None:
    fill(tmp_path)
    async with connect(tmp_path, "--session", "s") as client:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == TOOLS
        assert all(tool.description for tool in listed)
        assert "60 of 60 messages" in await call(client, "context_status")
        assert (await call(client, "context_compress", instructions="keep ports")).startswith("Compressed: ")
        assert (await call(client, "context_summary", limit=1)).startswith("[turns 1–")
        found = await call(client, "context_recall", query="The port of service 4 is 4028")
        handle = re.search(r"⟨(m:[0-9a-f]{8})", found)
        assert handle
        assert "The port of service 4 is 4028." in found
        assert "characters 0–50; continue with offset=50" in await call(
            client, "context_expand", handle=handle[1], limit=50
        )
        assert "is pinned" in await call(client, "context_pin", handle=handle[1])
        assert "Set keep_recent = 4" in await call(client, "context_config", changes={"keepRecent": 4})
        assert (await call(client, "context_sessions")).startswith("s: 60 messages")
    assert json.loads((tmp_path / ".compression" / "config.json").read_text())["keepRecent"] == 4


@pytest.mark.slow
async def test_a_session_is_named_by_argument_by_option_or_by_environment(tmp_path: Path) -> None:
    fill(tmp_path, "older")
    with make_manager(tmp_path) as manager:
        manager.append("newer", [{"role": "user", "content": "hello"}], format="openai-chat")
    async with connect(tmp_path) as client:
        assert "60 of 60 messages" in await call(client, "context_status", session="older")
    async with connect(tmp_path, REFOLD_SESSION="older") as client:
        assert "60 of 60 messages" in await call(client, "context_status")
    (tmp_path / "refold.yaml").write_text("mcp: {session: older}", encoding="utf-8")
    async with connect(tmp_path) as client:
        assert "60 of 60 messages" in await call(client, "context_status")
    async with connect(tmp_path, "--session", "newer", REFOLD_SESSION="older") as client:
        assert "1 of 1 message," in await call(client, "context_status")


async def test_where_several_sessions_exist_one_has_to_be_named(tmp_path: Path) -> None:
    fill(tmp_path, "mine")
    async with connect_in_process(tmp_path) as client:
        assert "60 of 60 messages" in await call(client, "context_status")
        with make_manager(tmp_path) as manager:
            manager.append("somebody else's", [{"role": "user", "content": "secret"}], format="openai-chat")
        for tool, given in (("context_status", {}), ("context_recall", {"query": "secret"}), ("context_compress", {})):
            refused = await client.call_tool(tool, given)
            assert refused.is_error
            told = "".join(block.text for block in refused.content)
            assert "several sessions exist" in told
            assert "'mine'" in told
            assert '"somebody else\'s"' in told
        assert "60 of 60 messages" in await call(client, "context_status", session="mine")


async def test_a_compression_that_a_tool_asked_for_is_not_logged_as_a_persons(tmp_path: Path) -> None:
    fill(tmp_path)
    async with connect_in_process(tmp_path, "s") as client:
        assert (await call(client, "context_compress")).startswith("Compressed: ")
    with make_manager(tmp_path) as manager:
        manager.compress("s")
        events = [one.fields for one in manager.ledger.read_events("s") if one.kind == "compressed"]
    assert [(one.get("by"), one["is_manual"]) for one in events][:1] == [("tool", False)]
    assert "trigger.tool" in json.dumps(events[0])


async def test_messages_are_stored_prepared_and_found(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    async with connect_in_process(tmp_path) as client:
        assert await call(client, "context_status") == "This session has no messages yet."
        messages = [{"role": "user", "content": "端口是 7341"}, {"role": "assistant", "content": "知道了"}]
        said = [await call(client, "context_append", messages=[message], session="新") for message in messages]
        assert said == ["session 新 has 1 message now", "session 新 has 2 messages now"]
        prepared = json.loads(await call(client, "context_prepare", model="gpt-4o", session="新"))
        assert prepared["messages"] == messages
        assert "7341" in await call(client, "context_recall", query="端口", session="新")


async def test_an_error_is_an_answer_and_the_server_continues(tmp_path: Path) -> None:
    fill(tmp_path)
    async with connect_in_process(tmp_path) as client:
        assert (await call(client, "context_expand", handle="nonsense")).startswith("Not found")
        missing = await call(client, "context_expand", handle="m:00000000")
        unknown = "nothing in this conversation has the handle ⟨m:00000000⟩; asking again will not help"
        assert missing == f"Not found: {unknown}"
        assert "give 1 to" in await call(client, "context_append", messages=[])
        assert "no setting" in await call(client, "context_config", changes={"window": 3})
        wrong = await client.call_tool("context_expand", {"handle": 3.5, "offset": "x"})
        assert wrong.is_error
        assert "60 of 60 messages" in await call(client, "context_status")


def post_greeting(port: int, host: str) -> int:
    """Return the status of the first request of a client that calls the server by this name."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}).encode()
    kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", body, {"Host": host, **kinds})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.slow
async def test_it_serves_over_http_on_loopback(tmp_path: Path) -> None:
    fill(tmp_path)
    port = find_port()
    command = [sys.executable, "-m", "refold", "mcp", "--http", "--port", str(port), "--workspace", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        async with mcp.Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert "60 of 60 messages" in await call(client, "context_status")
        # A page in a browser that uses another name for this machine is not a client.
        assert post_greeting(port, f"127.0.0.1:{port}") == 200
        assert post_greeting(port, "evil.example") in (403, 421)
    finally:
        server.terminate()
        server.wait(60)


def test_it_refuses_to_listen_for_other_machines(tmp_path: Path) -> None:
    ran = Shell(tmp_path).refold("mcp", "--http", "--host", "192.0.2.1")
    assert ran.code == 3
    assert "is not this machine" in ran.err


async def test_the_tools_are_described_in_the_users_language(tmp_path: Path) -> None:
    from refold.cli.words import use_language
    from refold.mcp import make_server

    chinese = re.compile("[\u4e00-\u9fff]")
    with make_manager(tmp_path) as manager:
        for name in ("a", "b"):
            manager.append(name, [{"role": "user", "content": "hi"}])
        use_language("zh")
        try:
            server = make_server(manager)
            tools = await server.list_tools()
            with pytest.raises(Exception, match="有多个会话"):
                await server.call_tool("context_status", {})
        finally:
            use_language(None)
    assert {tool.name for tool in tools} == TOOLS
    assert server.instructions is not None
    assert chinese.search(server.instructions)
    for tool in tools:
        assert chinese.search(tool.description or ""), tool.name
        session = tool.input_schema["properties"].get("session")
        assert session is None or chinese.search(session["description"]), tool.name
