"""An agent in TypeScript: the AI SDK and a typed client against a gateway, as the page for Node shows them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.server import Rig

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("REFOLD_NODE", ROOT / "build" / "node"))
MODULES = HOME / "node_modules"
# The model calls a tool forty times; its prompts are kept, as a provider would see them.
AGENT = """
import { writeFileSync } from "node:fs";
import { jsonSchema, tool } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { run } from "./page.js";

const prompts: unknown[] = [];
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } } as any;
let step = 0;
const model = new MockLanguageModelV4({
  doGenerate: async ({ prompt }: any) => {
    prompts.push(prompt);
    step += 1;
    const call = { type: "tool-call", toolCallId: `call_${step}`, toolName: "read", input: `{"n": ${step}}` };
    const said = { type: "text", text: step > 40 ? "All halls are quiet." : `Step ${step}.` };
    const content: any[] = step > 40 ? [said] : [{ type: "reasoning", text: `Thought ${step}.` }, said, call];
    const finishReason = { unified: step > 40 ? "stop" : "tool-calls", raw: undefined } as any;
    return { content, finishReason, usage, warnings: [] };
  },
});
const read = tool({
  description: "Read a hall.",
  inputSchema: jsonSchema<{ n: number }>({ type: "object", properties: { n: { type: "number" } } }),
  execute: async ({ n }) => ({ lines: Array.from(Array(60).keys(), (at) => `hall ${n} line ${at}: ${n * at}`) }),
});
const result = await run(model, { read }, "Read all halls of the mill, and say which is loud.", "mill");
writeFileSync("prompts.json", JSON.stringify(prompts));
console.log(result.text);
"""
OPTIONS = {
    "compilerOptions": {
        "strict": True,
        "target": "es2022",
        "module": "nodenext",
        "moduleResolution": "nodenext",
        "skipLibCheck": True,
        "types": ["node"],
    },
    "include": ["*.ts"],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A TypeScript project with the packages of ``build/node``."""
    if shutil.which("node") is None or not (MODULES / "ai").exists():
        pytest.skip("needs Node and packages: make node")
    (tmp_path / "node_modules").symlink_to(MODULES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "tsconfig.json").write_text(json.dumps(OPTIONS))
    return tmp_path


def run(project: Path, *command: str, url: str = "") -> str:
    path = f"{MODULES / '.bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "REFOLD_URL": url}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{done.stdout[-3_000:]}\n{done.stderr[-3_000:]}"
    return done.stdout


def read_blocks() -> list[str]:
    page = (ROOT / "docs" / "integrations" / "node.md").read_text()
    return re.findall(r"```ts\n(.*?)```", page, re.S)


def test_an_agent_of_the_ai_sdk_fits_step_by_step_and_loses_no_field(start: Any, project: Path) -> None:
    rig: Rig = start(config={"window": 12_000, "reserve": 1_000}, window=12_000)
    (project / "page.ts").write_text(read_blocks()[0])
    (project / "agent.ts").write_text(AGENT)
    run(project, "tsc")
    assert run(project, "node", "agent.js", url=rig.url).strip() == "All halls are quiet."
    prompts = json.loads((project / "prompts.json").read_text())
    assert len(prompts) == 41
    assert max(len(json.dumps(prompt)) for prompt in prompts) < 60_000, "12,000 tokens of figures"
    last = prompts[-1]
    assert any("⟦" in json.dumps(message, ensure_ascii=False) for message in last), "nothing was folded"
    assert "Read all halls of the mill" in json.dumps(last)
    calls = [part["toolCallId"] for message in last for part in message["content"] if part["type"] == "tool-call"]
    results = [part["toolCallId"] for message in last for part in message["content"] if part["type"] == "tool-result"]
    assert calls == results
    assert calls[-1] == "call_40"
    stored = rig.http.get("/api/sessions/mill/originals", params={"limit": 500}).json()["messages"]
    texts = [json.dumps(one["message"]) for one in stored]
    assert all(sum(f"hall {n} line 59:" in text for text in texts) == 1 for n in range(1, 41))


def test_a_typed_client_is_generated_compiled_and_run(start: Any, project: Path) -> None:
    rig: Rig = start()
    (project / "openapi.json").write_text(rig.http.get("/api/openapi.json").text)
    run(project, "openapi-typescript", "openapi.json", "-o", "refold.d.ts")
    client = read_blocks()[1]
    (project / "client.ts").write_text(client)
    run(project, "tsc")
    assert run(project, "node", "client.js", url=rig.url).split() == ["0", "1", "false"]
    (project / "client.ts").write_text(client.replace("tokens_saved", "tokens_shaved"))
    with pytest.raises(AssertionError, match="tokens_shaved"):
        run(project, "tsc")
