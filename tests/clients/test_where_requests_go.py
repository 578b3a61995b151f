"""Real clients, started with and without ``refold wrap``: requests and keys arrive at the same address.

The clients are installed by benchmarks/clients/run.py; a client that is not there is skipped. Each case writes settings
as a person would, runs the client alone, then behind refold, and compares which of two scripted providers got the
request, and with which key. Nothing leaves this machine.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from refold.testing import ScriptedProvider

CLIENTS = Path(os.environ.get("REFOLD_CLIENTS") or Path(tempfile.gettempdir(), "refold-clients"))
PROGRAMS = {
    "claude": ("npm/node_modules/.bin/claude", ("-p", "hi", "--model", "claude-sonnet-4-5")),
    "codex": ("npm/node_modules/.bin/codex", ("exec", "--skip-git-repo-check", "hi")),
    "opencode": ("npm/node_modules/.bin/opencode", ("run", "hi")),
    "qwen": ("npm/node_modules/.bin/qwen", ("--auth-type", "openai", "-m", "scripted-1", "-p", "hi")),
    "kilo": ("kilo/node_modules/.bin/kilo", ("run", "hi")),
    "goose": ("goose/node_modules/@aaif/goose-binary-linux-x64/bin/goose", ("run", "--no-session", "-t", "hi")),
    "pi": ("pi/node_modules/.bin/pi", ("--model", "anthropic/claude-sonnet-4-5", "-p", "hi")),
    "aider": (
        "aider/bin/aider",
        (
            *("--model", "openai/gpt-4o", "--no-git", "--yes", "--no-stream", "--no-check-update"),
            *("--analytics-disable", "--no-show-model-warnings", "--message", "hi"),
        ),
    ),
}
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="POSIX programs")]


@dataclass(frozen=True)
class Case:
    """A client with settings; ``COMPANY`` and ``OTHER`` in any text are the addresses of the two providers."""

    client: str
    files: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    folder: str = "work"
    has_git: bool = False


def claude_env(address: str, key: str) -> str:
    return json.dumps({"env": {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_AUTH_TOKEN": key}})


OTHER_CLAUDE = {"ANTHROPIC_BASE_URL": "OTHER", "ANTHROPIC_AUTH_TOKEN": "key-other"}
COMPANY_CLAUDE = claude_env("COMPANY", "key-company")
CORP = '[model_providers.corp]\nname="corp"\nbase_url="COMPANY/v1"\nenv_key="CORP_KEY"\nwire_api="responses"\n'
CORP_KEY = {"CORP_KEY": "key-company"}
CODEX = ".codex/config.toml"
OPENAI_KEY = {"OPENAI_API_KEY": "key-company"}
GPT = ("-m", "openai/gpt-5")
GOOSE = {**OPENAI_KEY, "GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "gpt-4o", "GOOSE_DISABLE_KEYRING": "1"}
QWEN = json.dumps({"security": {"auth": {"selectedType": "openai", "apiKey": "key-company", "baseUrl": "COMPANY/v1"}}})


def opencode(name: str, address: str, package: str = "") -> str:
    options = {"baseURL": address, "apiKey": "key-company"}
    kind = {"npm": package, "models": {"scripted-1": {}}} if package else {}
    return json.dumps({"autoupdate": False, "provider": {name: {**kind, "options": options}}})


CASES = {
    "claude: the environment": Case("claude", environ=OTHER_CLAUDE),
    "claude: user settings over the environment": Case(
        "claude", {"home/.claude/settings.json": COMPANY_CLAUDE}, OTHER_CLAUDE
    ),
    "claude: the file beside the folder": Case("claude", {"home/.claude.json": COMPANY_CLAUDE}, OTHER_CLAUDE),
    "claude: project over user": Case(
        "claude",
        {
            "home/.claude/settings.json": claude_env("OTHER", "key-other"),
            "work/.claude/settings.json": COMPANY_CLAUDE,
        },
    ),
    "claude: local settings of the repository's root": Case(
        "claude", {"work/.claude/settings.local.json": COMPANY_CLAUDE}, OTHER_CLAUDE, folder="work/sub", has_git=True
    ),
    "claude: project settings of the root are not those of a folder": Case(
        "claude", {"work/.claude/settings.json": COMPANY_CLAUDE}, OTHER_CLAUDE, folder="work/sub", has_git=True
    ),
    "claude: CLAUDE_CONFIG_DIR": Case(
        "claude",
        {"home/.claude/settings.json": claude_env("OTHER", "key-other"), "home/else/settings.json": COMPANY_CLAUDE},
        {"CLAUDE_CONFIG_DIR": "HOME/else"},
    ),
    "claude: --settings with a file": Case(
        "claude", {"work/mine.json": COMPANY_CLAUDE}, OTHER_CLAUDE, ("--settings", "mine.json")
    ),
    "claude: --settings in the line": Case("claude", environ=OTHER_CLAUDE, before=(f"--settings={COMPANY_CLAUDE}",)),
    "claude: empty --settings": Case(
        "claude", {"home/.claude/settings.json": COMPANY_CLAUDE}, OTHER_CLAUDE, ("--settings", "{}")
    ),
    "claude: the last of two --settings": Case(
        "claude",
        {"home/.claude/settings.json": COMPANY_CLAUDE, "work/mine.json": claude_env("OTHER", "key-other")},
        {},
        ("--settings", "mine.json", "--settings", "{}"),
    ),
    "claude: --setting-sources": Case(
        "claude", {"home/.claude/settings.json": COMPANY_CLAUDE}, OTHER_CLAUDE, ("--setting-sources", "project,local")
    ),
    "claude: an address in one file and a key in another": Case(
        "claude",
        {
            "home/.claude/settings.json": json.dumps({"env": {"ANTHROPIC_BASE_URL": "COMPANY"}}),
            "work/.claude/settings.local.json": json.dumps({"env": {"ANTHROPIC_AUTH_TOKEN": "key-company"}}),
        },
        OTHER_CLAUDE,
    ),
    "claude: behind a proxy": Case(
        "claude",
        {"home/.claude/settings.json": COMPANY_CLAUDE},
        {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"},
    ),
    "codex: openai_base_url": Case(
        "codex",
        {f"home/{CODEX}": 'openai_base_url="COMPANY/v1"\n', "home/.codex/auth.json": '{"OPENAI_API_KEY": "key"}'},
        {"OPENAI_BASE_URL": "OTHER/v1"},
    ),
    "codex: a provider": Case("codex", {f"home/{CODEX}": f'model_provider="corp"\n{CORP}'}, CORP_KEY),
    "codex: -c model_provider": Case(
        "codex", {f"home/{CODEX}": CORP}, {**CORP_KEY, "OPENAI_API_KEY": "key-other"}, ("-c", "model_provider=corp")
    ),
    "codex: -c behind the subcommand": Case(
        "codex",
        {f"home/{CODEX}": f'model_provider="corp"\n{CORP}'},
        CORP_KEY,
        after=("-c", 'model_providers.corp.base_url="OTHER/v1"'),
    ),
    "codex: a profile": Case(
        "codex",
        {f"home/{CODEX}": CORP, "home/.codex/work.config.toml": 'model_provider="corp"\n'},
        CORP_KEY,
        ("--profile", "work"),
    ),
    "codex: CODEX_HOME": Case(
        "codex",
        {"home/else/config.toml": f'model_provider="corp"\n{CORP}', f"home/{CODEX}": 'openai_base_url="OTHER/v1"\n'},
        {**CORP_KEY, "CODEX_HOME": "HOME/else"},
    ),
    "opencode: the environment": Case("opencode", environ={**OPENAI_KEY, "OPENAI_BASE_URL": "OTHER/v1"}, after=GPT),
    "opencode: its global file over the environment": Case(
        "opencode",
        {"home/.config/opencode/opencode.jsonc": "// a comment\n" + opencode("openai", "COMPANY/v1")},
        {**OPENAI_KEY, "OPENAI_BASE_URL": "OTHER/v1"},
        after=GPT,
    ),
    "opencode: the project's file over the global one": Case(
        "opencode",
        {
            "home/.config/opencode/opencode.json": opencode("openai", "OTHER/v1"),
            "work/opencode.json": opencode("openai", "COMPANY/v1"),
        },
        OPENAI_KEY,
        after=GPT,
    ),
    "opencode: a provider of the company's own": Case(
        "opencode",
        {"work/opencode.json": opencode("corp", "COMPANY/v1", "@ai-sdk/openai-compatible")},
        {"OPENAI_API_KEY": "key-other", "OPENAI_BASE_URL": "OTHER/v1"},
        after=("-m", "corp/scripted-1"),
    ),
    "kilo: its global file over the environment": Case(
        "kilo",
        {"home/.config/kilo/opencode.json": opencode("openai", "COMPANY/v1")},
        {**OPENAI_KEY, "OPENAI_BASE_URL": "OTHER/v1"},
        after=GPT,
    ),
    "kilo: a provider of the company's own": Case(
        "kilo",
        {"work/kilo.json": opencode("corp", "COMPANY/v1", "@ai-sdk/openai-compatible")},
        {"OPENAI_API_KEY": "key-other", "OPENAI_BASE_URL": "OTHER/v1"},
        after=("-m", "corp/scripted-1"),
    ),
    "goose: a host before a base URL": Case(
        "goose", environ={**GOOSE, "OPENAI_HOST": "COMPANY", "OPENAI_BASE_URL": "OTHER/v1"}
    ),
    "goose: the environment before its file": Case(
        "goose",
        {"home/.config/goose/config.yaml": "OPENAI_HOST: OTHER\n"},
        {**GOOSE, "OPENAI_BASE_URL": "COMPANY/v1"},
    ),
    "goose: its file": Case("goose", {"home/.config/goose/config.yaml": "OPENAI_HOST: COMPANY\n"}, GOOSE),
    "goose: both in its file": Case(
        "goose",
        {"home/.config/goose/config.yaml": "OPENAI_BASE_URL: OTHER/v1\nOPENAI_HOST: COMPANY\n"},
        GOOSE,
    ),
    "goose: Anthropic": Case(
        "goose",
        {"home/.config/goose/config.yaml": "ANTHROPIC_HOST: COMPANY\n"},
        {
            "GOOSE_PROVIDER": "anthropic",
            "GOOSE_MODEL": "claude-sonnet-4-5",
            "GOOSE_DISABLE_KEYRING": "1",
            "ANTHROPIC_API_KEY": "key-company",
            "ANTHROPIC_BASE_URL": "OTHER",
        },
    ),
    "qwen: the environment": Case("qwen", environ={**OPENAI_KEY, "OPENAI_BASE_URL": "COMPANY/v1"}),
    "qwen: user settings": Case("qwen", {"home/.qwen/settings.json": QWEN}),
    "qwen: a .env file": Case("qwen", {"work/.env": "OPENAI_BASE_URL=COMPANY/v1\nOPENAI_API_KEY=key-company\n"}),
    "aider: the environment": Case("aider", environ={**OPENAI_KEY, "OPENAI_API_BASE": "COMPANY/v1"}),
    "aider: a .env file": Case("aider", {"work/.env": "OPENAI_API_BASE=COMPANY/v1\n"}, OPENAI_KEY),
    "aider: its settings file": Case("aider", {"home/.aider.conf.yml": "openai-api-base: COMPANY/v1\n"}, OPENAI_KEY),
    "aider: variables of its settings file": Case(
        "aider", {"work/.aider.conf.yml": "set-env:\n  - OPENAI_BASE_URL=COMPANY/v1\n"}, OPENAI_KEY
    ),
    "pi: models.json, not the environment": Case(
        "pi",
        {"home/.pi/agent/models.json": json.dumps({"providers": {"anthropic": {"baseUrl": "COMPANY"}}})},
        {"ANTHROPIC_API_KEY": "key-company", "ANTHROPIC_BASE_URL": "OTHER"},
    ),
    "codex: a trusted project cannot choose the provider": Case(
        "codex",
        {
            f"home/{CODEX}": f'openai_base_url="OTHER/v1"\n{CORP}[projects."WORK"]\ntrust_level="trusted"\n',
            "home/.codex/auth.json": '{"OPENAI_API_KEY": "key"}',
            "work/.codex/config.toml": 'model_provider="corp"\n',
        },
        CORP_KEY,
    ),
}


@dataclass(frozen=True)
class Arrival:
    """What one provider got: its name, and the keys that came with the prompts."""

    provider: str
    keys: tuple[str, ...]


class Bench:
    """Two providers, and a home and a project with a case's settings."""

    def __init__(self, folder: Path, case: Case, providers: Mapping[str, ScriptedProvider]) -> None:
        self.folder, self.case, self.providers = folder, case, providers
        # A client may have brought a Node of its own.
        self.path = f"{(CLIENTS / PROGRAMS[case.client][0]).parent}{os.pathsep}{os.environ['PATH']}"
        for name in ("home", "work", case.folder):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if case.has_git:
            subprocess.run(["git", "init", "-q", str(folder / "work")], check=True)
        for name, text in case.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(self.fill(text))

    def fill(self, text: str) -> str:
        for name, provider in self.providers.items():
            text = text.replace(name, provider.url)
        return text.replace("HOME", str(self.folder / "home")).replace("WORK", str(self.folder / "work"))

    def trust(self) -> None:
        """Agree to what the project's files choose, as its owner does once."""
        environ = {"PATH": self.path, "HOME": str(self.folder / "home")}
        environ |= {name: self.fill(text) if name != "HOME" else text for name, text in self.case.environ.items()}
        command = [sys.executable, "-m", "refold", "trust"]
        subprocess.run(command, cwd=self.folder / self.case.folder, env=environ, check=True, capture_output=True)

    def run(self, *wrapper: str) -> tuple[list[Arrival], subprocess.CompletedProcess[str]]:
        """Run the client; return what arrived where."""
        path, arguments = PROGRAMS[self.case.client]
        seen = {name: len(provider.requests) for name, provider in self.providers.items()}
        environ = {"PATH": self.path, "HOME": str(self.folder / "home"), "DISABLE_AUTOUPDATER": "1"}
        environ |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "REFOLD_LANGUAGE": "en"}
        environ |= {name: self.fill(text) if name != "HOME" else text for name, text in self.case.environ.items()}
        command = [*wrapper, str(CLIENTS / path), *self.case.before, *arguments, *self.case.after]
        done = subprocess.run(
            [self.fill(one) if one in (*self.case.before, *self.case.after) else one for one in command],
            cwd=self.folder / self.case.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        arrived = []
        for name, provider in self.providers.items():
            asked = [one for one in provider.requests[seen[name] :] if one.json and ("model" in one.json)]
            keys = {one.headers.get("authorization") or one.headers.get("x-api-key") or "" for one in asked}
            arrived += [Arrival(name, tuple(sorted(keys)))] if asked else []
        return arrived, done


@pytest.mark.parametrize("name", CASES)
def test_requests_and_keys_arrive_where_they_arrive_without_refold(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if not (CLIENTS / PROGRAMS[case.client][0]).exists():
        pytest.skip(f"{case.client} is not installed in {CLIENTS}")
    with ExitStack() as stack:
        providers = {one: stack.enter_context(ScriptedProvider("ok")) for one in ("COMPANY", "OTHER")}
        bench = Bench(tmp_path, case, providers)
        alone, done = bench.run()
        assert len(alone) == 1, done.stdout + done.stderr
        ledger = tmp_path / "ledger"
        ledger.mkdir()
        bench.trust()
        behind, done = bench.run(sys.executable, "-m", "refold", "wrap", "-w", str(ledger))
        assert behind == alone, done.stdout + done.stderr
        assert " request" in done.stderr.splitlines()[-1], done.stderr
        assert "no request came through" not in done.stderr
