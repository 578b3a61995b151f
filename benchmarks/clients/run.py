"""Runs real clients through the gateway and prints what came of it: python benchmarks/clients/run.py [CLIENT]...

Each client is installed from npm or PyPI into a folder of its own (``--folder``, kept for the next run), and plays one
task of many steps with ``refold wrap``. A scripted provider takes the place of the model: it checks every request as
strictly as a real one, refuses what is over its window, and asks for one more command at each step. A client that
cannot be installed or run here is listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refold.budget.economics import BilledRequest, Tariff, charge_request
from refold.testing import RecordedRequest, ScriptedCall, ScriptedProvider, ScriptedReply, say
from refold.testing.provider_rules import count_input, find_refusal
from refold.tokens import counter_for, model_info

SECONDS_MAX = 1_200
NODE = "node@24.21.0"  # For clients that need a newer Node than this machine may have.
SHELLS = ("bash", "shell", "shell_command", "exec_command", "run_shell_command", "local_shell")
TASK = "Run the next command as long as there is one, then say that you are done."


@dataclass(frozen=True)
class Client:
    """One client: where it comes from, and how it plays a task of so many steps.

    ``thinks``: the model's answers have reasoning, which some clients resend by its id. ``script`` is a program of ours
    that uses a library.
    """

    name: str
    package: str
    model: str
    command: Callable[[Path, str, int], list[str]]
    is_npm: bool = False
    python: str = ""
    has_tools: bool = True
    thinks: bool = False
    script: str = ""
    environ: dict[str, str] = field(default_factory=dict)


def loop(first: str, other: str) -> Callable[[Path, str, int], list[str]]:
    """Return the command of a client that takes one message at a time: a loop in a shell."""

    def make(program: Path, model: str, steps: int) -> list[str]:
        lines = "words of the question " * 150
        one = first.format(program=program, model=model, text=f"Question 1: {lines}")
        rest = other.format(program=program, model=model, text=f"Question $i: {lines}")
        return ["sh", "-c", f"{one} && i=2 && while [ $i -le {steps} ]; do {rest} || exit 1; i=$((i+1)); done"]

    return make


CLIENTS = [
    Client(
        "claude",
        "@anthropic-ai/claude-code@2.1.327",
        "claude-sonnet-4-5",
        lambda program, model, _: [str(program), "-p", TASK, "--model", model, "--allowedTools", "Bash"],
        is_npm=True,
        environ={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
    ),
    Client(
        "codex",
        "@openai/codex@0.169.0",
        "gpt-5",
        lambda program, model, _: [
            *(str(program), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
            *("-m", model, TASK),
        ],
        is_npm=True,
    ),
    Client(
        "opencode",
        "opencode-ai@1.18.33",
        "gpt-5",
        lambda program, model, _: [str(program), "run", "-m", f"openai/{model}", TASK],
        is_npm=True,
        environ={"OPENCODE_CONFIG_CONTENT": json.dumps({"autoupdate": False, "permission": {"bash": "allow"}})},
    ),
    Client(
        "qwen",
        "@qwen-code/qwen-code@0.24.4",
        "qwen3-coder-plus",
        lambda program, model, _: [str(program), "--auth-type", "openai", "-m", model, "--yolo", "-p", TASK],
        is_npm=True,
    ),
    Client(
        "ai-sdk",
        f"ai@7.0.173 @ai-sdk/openai@4.0.118 zod@4.6.7 {NODE}",
        "gpt-5",
        lambda program, model, steps: [
            *(str(program.parent / "node_modules" / ".bin" / "node"), str(program), model, TASK, str(steps)),
        ],
        is_npm=True,
        thinks=True,
        script="agent.mjs",
    ),
    Client(
        "aider",
        "aider-chat==0.86.2",
        "gpt-4o",
        loop(
            "{program} --model openai/{model} --no-git --yes --no-stream --no-check-update --analytics-disable "
            "--chat-mode ask --message '{text}'",
            "{program} --model openai/{model} --no-git --yes --no-stream --no-check-update --analytics-disable "
            '--restore-chat-history --chat-mode ask --message "{text}"',
        ),
        has_tools=False,
        environ={"AIDER_MAX_CHAT_HISTORY_TOKENS": "1000000"},
    ),
    Client(
        "llm",
        "llm==0.36",
        "gpt-4o-mini",
        loop("{program} -m {model} '{text}'", '{program} -c "{text}"'),
        has_tools=False,
    ),
]


# Clients that only the tests in tests/clients run: their folder and package.
OTHERS = {
    "pi": f"@earendil-works/pi-coding-agent@0.87.1 {NODE}",
    "cn": "@continuedev/cli@1.5.47",
    "cline": "cline@3.0.65",
    "kilo": "@kilocode/cli@7.7.7",
    "goose": "@aaif/goose-binary-linux-x64@1.52.0",
    "mini": "mini-swe-agent==2.4.6 mcp",
}


def install_others(folder: Path) -> None:
    """Install the clients of the tests, each where it is not there yet."""
    for name, package in OTHERS.items():
        home = folder / name
        if home.exists():
            continue
        home.mkdir(parents=True)
        try:
            if "==" in package:
                run_quietly([sys.executable, "-m", "venv", str(home)])
                run_quietly([str(home / "bin" / "pip"), "install", "-q", *package.split()])
            else:
                (home / "package.json").write_text(json.dumps({"name": f"refold-{name}"}))
                run_quietly(["npm", "install", "--prefix", str(home), "--no-audit", "--no-fund", *package.split()])
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(f"{name} is not installed: {str(error)[:200]}")


class Model:
    """The scripted model: one more command at each step, then it is done."""

    def __init__(self, client: Client, steps: int, lines: int) -> None:
        self.steps_done = 0
        self._client = client
        self._steps = steps
        self._lines = lines
        self._lock = threading.Lock()

    def answer(self, request: RecordedRequest) -> ScriptedReply:
        """Answer one request."""
        tool = find_shell(request.json)
        if not self._client.has_tools:
            with self._lock:
                self.steps_done += 1
            return say("An answer of some length. " * 60)
        if tool is None:
            return say("Commands")  # A title, a topic: whatever the client asks for beside the task.
        with self._lock:
            if self.steps_done >= self._steps:
                return say("I am done.")
            self.steps_done += 1
            step = self.steps_done
        text = f"step {step} line %05d: the quick brown fox jumps over the lazy dog"
        command = f"i=0; while [ $i -lt {self._lines} ]; do printf '{text}\\n' $i; i=$((i+1)); done"
        name, schema = tool
        call = ScriptedCall(name, fill_arguments(schema, command), id=f"call_{step:04d}")
        thinking = "The next command is due." if self._client.thinks else ""
        return ScriptedReply(f"Step {step}.", (call,), thinking, id=f"answer_{step:04d}")


def find_shell(body: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the tool that runs commands, in whichever shape the wire has it."""
    for tool in (body or {}).get("tools") or ():
        described = tool.get("function", tool) if isinstance(tool, dict) else {}
        name = str(described.get("name") or "")
        if name.lower() in SHELLS:
            schema = described.get("parameters") or described.get("input_schema") or {}
            return name, schema
    return None


def fill_arguments(schema: dict[str, Any], command: str) -> dict[str, Any]:
    """Return arguments that a tool's schema asks for."""
    properties = schema.get("properties") or {}
    name = next((one for one in ("command", "cmd") if one in properties), "command")
    is_list = (properties.get(name) or {}).get("type") == "array"
    made: dict[str, Any] = {name: ["sh", "-c", command] if is_list else command}
    for one in schema.get("required") or ():
        if one not in made:
            kind = (properties.get(one) or {}).get("type")
            made[one] = {"boolean": False, "number": 30_000, "integer": 30_000}.get(kind, "Run the next command")
    return made


def install(client: Client, folder: Path) -> Path:
    """Install a client if it is not there; return its program."""
    if client.is_npm:
        home = folder / (client.name if client.script else "npm")
        program = home / (client.script or f"node_modules/.bin/{client.name}")
        if not program.exists():
            home.mkdir(parents=True, exist_ok=True)
            run_quietly(["npm", "install", "--prefix", str(home), "--no-audit", "--no-fund", *client.package.split()])
            if client.script:
                shutil.copy(Path(__file__).with_name(client.script), program)
        return program
    home = folder / client.name
    program = home / "bin" / client.name
    if not program.exists():
        run_quietly([client.python or sys.executable, "-m", "venv", str(home)])
        run_quietly([str(home / "bin" / "pip"), "install", "-q", client.package])
    return program


def run_quietly(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")


def play(client: Client, program: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Play a task with one client; return its figures."""
    model = Model(client, options.steps, options.lines)
    with (
        tempfile.TemporaryDirectory(prefix="refold-clients-") as scratch,
        ScriptedProvider(model.answer, window=options.window, models=(client.model,)) as provider,
    ):
        home, work = Path(scratch, "home"), Path(scratch, "work")
        home.mkdir()
        work.mkdir()
        if options.told:
            (work / "refold.yaml").write_text(f"window: {options.window}\n")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "refold", "wrap", "-w", str(work), "--log", str(Path(scratch, "log"))),
                *("--openai-upstream", f"{provider.url}/v1", "--anthropic-upstream", provider.url, "--"),
                *client.command(program, client.model, options.steps),
            ],
            cwd=home,
            env=make_environment(client, home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        if options.dump:
            dump_requests(provider.requests, Path(options.dump), client.name)
        summary = done.stderr.strip().splitlines()[-1:]
        if not model.steps_done:
            raise RuntimeError(f"it asked for nothing: {(done.stderr or done.stdout)[-300:]!r}")
        return {**measure(client, provider.requests, options), "steps": model.steps_done, "summary": summary}


def make_environment(client: Client, home: Path) -> dict[str, str]:
    """Return the environment of a client that has never run here and has a key for the scripted provider."""
    kept = {name: value for name in ("PATH", "LANG", "PYTHONPATH", "TMPDIR") if (value := os.environ.get(name))}
    keys = {"OPENAI_API_KEY": "sk-scripted", "ANTHROPIC_API_KEY": "sk-scripted"}
    return {**kept, **keys, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), **client.environ}


def measure(client: Client, requests: Sequence[RecordedRequest], options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of what the provider received."""
    asked = [one for one in requests if one.wire in ("openai-chat", "openai-responses", "anthropic")]
    asked = [one for one in asked if not one.path.partition("?")[0].endswith("count_tokens")]
    refused = [one for one in asked if find_refusal(one.wire, one.json, options.window) is not None]
    main = [one for one in asked if one not in refused and (find_shell(one.json) or not client.has_tools)]
    counter, info = counter_for(client.model), model_info(client.model)
    tariff, price = Tariff.of_model(info), info.prices.input / 1e6 if info.prices else 0.0
    before: list[str] = []
    shared_sum = tokens_sum = largest = 0
    dollars = 0.0
    for one in main:
        pieces = list_pieces(one.json)
        shared = next((at for at, pair in enumerate(zip(before, pieces, strict=False)) if pair[0] != pair[1]), None)
        shared = min(len(before), len(pieces)) if shared is None else shared
        tokens = count_input(one.wire, one.json)
        part = min(tokens, sum(counter.count_text(piece) for piece in pieces[:shared]))
        dollars += charge_request(BilledRequest(tokens, part, 100), tariff).total * price
        shared_sum, tokens_sum, largest = shared_sum + part, tokens_sum + tokens, max(largest, tokens)
        before = pieces
    return {
        "requests": len(asked),
        "refused": len(refused),
        "largest": largest,
        "prefix": shared_sum / tokens_sum if tokens_sum else 0.0,
        "dollars": dollars,
    }


def list_pieces(body: dict[str, Any]) -> list[str]:
    """Return a request as the pieces that a provider's cache hashes, in its order; marks of the cache left out."""
    messages = body.get("messages", body.get("input")) or []
    pieces = [body.get("tools") or [], body.get("system") or body.get("instructions") or ""]
    pieces += messages if isinstance(messages, list) else [messages]
    return [json.dumps(drop_marks(piece), sort_keys=True, ensure_ascii=False) for piece in pieces]


def drop_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: drop_marks(one) for key, one in value.items() if key != "cache_control"}
    return [drop_marks(one) for one in value] if isinstance(value, list) else value


def dump_requests(requests: Sequence[RecordedRequest], folder: Path, name: str) -> None:
    """Write what a client sent, to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as out:
        for one in requests:
            out.write(json.dumps({"path": one.path, "headers": one.headers, "body": one.json}) + "\n")


def main() -> None:
    """Run the clients that are named, or all of them, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clients", nargs="*", help=f"of {', '.join(one.name for one in CLIENTS)}; none: all")
    parser.add_argument("--folder", default=str(Path(tempfile.gettempdir(), "refold-clients")), help="for installs")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lines", type=int, default=120, help="lines that each command prints")
    parser.add_argument("--window", type=int, default=60_000, help="tokens that the provider takes")
    parser.add_argument("--told", action="store_true", help="tell the gateway that window instead of letting it learn")
    parser.add_argument("--dump", help="a folder for what the clients sent")
    parser.add_argument("--install", action="store_true", help="only install all clients, those of the tests too")
    options = parser.parse_args()
    if options.install:
        install_others(Path(options.folder))
        for client in CLIENTS:
            install(client, Path(options.folder))
        return
    print("| client | steps | requests | refused | largest request | prefix kept | bill |")
    print("|---|---|---|---|---|---|---|")
    summaries = []
    for client in CLIENTS:
        if options.clients and client.name not in options.clients:
            continue
        if client.is_npm and shutil.which("npm") is None:
            print(f"| {client.name} | npm is not installed |", flush=True)
            continue
        try:
            found = play(client, install(client, Path(options.folder)), options)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(f"| {client.name} | {str(error)[:400]} |", flush=True)
            continue
        summaries.append(f"{client.name}: {' '.join(found['summary'])}")
        print(
            f"| {client.name} | {found['steps']} | {found['requests']} | {found['refused']} | {found['largest']:,} "
            f"| {found['prefix']:.0%} | ${found['dollars']:.2f} |",
            flush=True,
        )
    print("\n".join(summaries))


if __name__ == "__main__":
    main()
