"""The clients that ``refold wrap`` knows: their settings, as the clients write them, decide where requests go."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refold.cli.clients import SECRET, Start, find_client, find_upstreams, write_secret
from refold.errors import ConfigError
from tests.rigs.server import make_body, make_dialog, start_rig

URL = "http://127.0.0.1:9"
COMPANY, OTHER = "https://llm.company.example", "https://other.example"
CORP = f'[model_providers.corp]\nname = "corp"\nbase_url = "{COMPANY}/v1"\nenv_key = "CORP_KEY"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return tmp_path


def make_start(folder: Path, *command: str, place: str = "work", **environ: str) -> Start:
    return Start(command, {"HOME": str(folder / "home"), **environ}, folder / place)


def write(folder: Path, name: str, content: object) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def address(url: str) -> dict[str, object]:
    return {"env": {"ANTHROPIC_BASE_URL": url}}


def find_claude(start: Start) -> str | None:
    return find_upstreams(start, {}).get("anthropic_upstream")


def find_codex(start: Start) -> str | None:
    return find_upstreams(start, {}).get("openai_upstream")


def test_each_settings_file_of_claude_code_is_stronger_than_the_one_before(folder: Path) -> None:
    (folder / "work" / ".git").mkdir()
    places = (
        "home/.claude.json",
        "home/.claude/settings.json",
        "work/sub/.claude/settings.json",
        "work/sub/.claude/settings.local.json",
        "work/.claude/settings.local.json",
    )
    start = make_start(folder, "claude", place="work/sub", ANTHROPIC_BASE_URL="https://variable.example")
    assert find_claude(start) == "https://variable.example"
    for number, place in enumerate(places):
        write(folder, place, address(f"https://{number}.example"))
        assert find_claude(start) == f"https://{number}.example", place
    flag = make_start(folder, "claude", "--settings", json.dumps(address(OTHER)), place="work/sub")
    assert find_claude(flag) == OTHER


def test_settings_of_claude_code_that_its_command_line_leaves_out_do_not_count(folder: Path) -> None:
    write(folder, "home/.claude/settings.json", address(COMPANY))
    write(folder, "work/.claude/settings.json", address(OTHER))
    assert find_claude(make_start(folder, "claude", "--setting-sources", "user")) == COMPANY
    assert find_claude(make_start(folder, "claude", "--setting-sources=")) is None
    assert find_claude(make_start(folder, "claude", "--", "--setting-sources=user")) == OTHER


def test_the_last_settings_argument_of_claude_code_counts_and_an_empty_address_means_the_default(folder: Path) -> None:
    write(folder, "home/.claude/settings.json", address(COMPANY))
    write(folder, "work/mine.json", address(OTHER))
    assert find_claude(make_start(folder, "claude", "--settings", "mine.json", "-p", "hi")) == OTHER
    assert find_claude(make_start(folder, "claude", "--settings", "mine.json", "--settings={}")) == COMPANY
    assert find_claude(make_start(folder, "claude", "--settings", json.dumps(address("")))) is None


def test_a_linked_worktree_has_the_local_settings_of_its_repository(folder: Path) -> None:
    git = ["git", "-C", str(folder / "work"), "-c", "user.name=n", "-c", "user.email=n@example.com"]
    subprocess.run(["git", "init", "-q", str(folder / "work")], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(folder / "linked")], check=True, capture_output=True)
    write(folder, "work/.claude/settings.local.json", address(COMPANY))
    assert find_claude(make_start(folder, "claude", place="linked")) == COMPANY


def test_a_new_worktree_whose_commit_names_an_address_is_refused(folder: Path) -> None:
    git = ["git", "-C", str(folder / "work"), "-c", "user.name=n", "-c", "user.email=n@example.com"]
    subprocess.run(["git", "init", "-q", str(folder / "work")], check=True)
    write(folder, "work/.claude/settings.json", address(OTHER))
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    write(folder, "work/.claude/settings.json", address(COMPANY))
    with pytest.raises(ConfigError, match="--anthropic-upstream"):
        find_claude(make_start(folder, "claude", "-w", "feature"))
    given = {"anthropic_upstream": COMPANY}
    assert find_upstreams(make_start(folder, "claude", "-w", "feature"), given) == given


@pytest.mark.parametrize("content", ["{broken", "[]", '{"env": []}', "// a comment\n{}", "\x00"])
def test_a_settings_file_that_cannot_be_read_is_refused_by_its_name(folder: Path, content: str) -> None:
    write(folder, "home/.claude/settings.json", content)
    with pytest.raises(ConfigError, match=r"settings\.json.*name the address"):
        find_claude(make_start(folder, "claude"))


def test_claude_code_gets_the_gateway_by_settings_and_keeps_its_own(folder: Path) -> None:
    mine = {"model": "opus", "env": {"X": "1", "ANTHROPIC_BASE_URL": COMPANY}}
    start = make_start(folder, "claude", "--settings", json.dumps(mine), "-p", "hi")
    launch = find_client("claude").redirect(start, URL)
    assert launch.command[:2] == ("claude", "--settings")
    assert launch.command[3:] == ("-p", "hi")
    made = json.loads(launch.command[2])
    assert made.pop("statusLine")["type"] == "command"
    assert made == {"model": "opus", "env": {"X": "1", "ANTHROPIC_BASE_URL": URL}}
    assert launch.environ == {"ANTHROPIC_BASE_URL": URL}, "programs that it runs keep the addresses of others"


def test_the_status_line_of_claude_code_shows_the_run_unless_there_is_one(folder: Path) -> None:
    with start_rig(folder / "ledger") as rig:
        url = f"{rig.url}/wrap/0123456789abcdef"
        body = make_body("anthropic", make_dialog(3))
        sent = rig.http.post(f"{url}/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"})
        assert sent.status_code == 200, sent.text
        launch = find_client("claude").redirect(make_start(folder, "claude"), url)
        shown = json.loads(launch.command[2])["statusLine"]["command"]
        line = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(rf"refold \d+k · 1 · {rig.url}/ui\n", line), line
    write(folder, "home/.claude/settings.json", {"statusLine": {"type": "command", "command": "mine"}})
    assert "statusLine" not in json.loads(find_client("claude").redirect(make_start(folder, "claude"), url).command[2])


def test_what_a_settings_file_holds_is_not_shown_in_the_command_line(folder: Path) -> None:
    write(folder, "work/mine.json", {"env": {"ANTHROPIC_AUTH_TOKEN": "token-x"}})
    launch = find_client("claude").redirect(make_start(folder, "claude", "--settings", "mine.json"), URL)
    assert SECRET in launch.command
    assert "token-x" not in " ".join(launch.command)
    with write_secret(launch) as command:
        path = Path(command[2])
        assert json.loads(path.read_text())["env"] == {"ANTHROPIC_AUTH_TOKEN": "token-x", "ANTHROPIC_BASE_URL": URL}
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.exists()


def test_a_proxy_does_not_stand_between_a_client_and_the_gateway(folder: Path) -> None:
    write(folder, "home/.claude/settings.json", {"env": {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "intra"}})
    launch = find_client("claude").redirect(make_start(folder, "claude"), URL)
    assert json.loads(launch.command[2])["env"]["NO_PROXY"] == "intra,127.0.0.1,localhost"
    codex = find_client("codex").redirect(make_start(folder, "codex", https_proxy="http://proxy:1"), URL)
    assert codex.environ == dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


@pytest.mark.parametrize("name", ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"])
def test_claude_code_with_another_service_is_refused(folder: Path, name: str) -> None:
    write(folder, "home/.claude/settings.json", {"env": {name: "1"}})
    with pytest.raises(ConfigError, match=name):
        find_client("claude").redirect(make_start(folder, "claude"), URL)
    write(folder, "home/.claude/settings.json", {"env": {name: "0"}})
    assert find_client("claude").redirect(make_start(folder, "claude"), URL)


def test_codex_goes_by_its_files_and_its_command_line_not_by_the_environment(folder: Path) -> None:
    write(folder, "home/.codex/config.toml", 'openai_base_url = "https://0.example"\n' + CORP)
    write(folder, "home/.codex/slow.config.toml", 'model_provider = "corp"\n')
    write(folder, "work/.codex/config.toml", f'openai_base_url = "{OTHER}"\n')
    assert find_codex(make_start(folder, "codex", OPENAI_BASE_URL=OTHER)) == "https://0.example"
    assert find_codex(make_start(folder, "codex", "-p", "slow")) == f"{COMPANY}/v1"
    assert find_codex(make_start(folder, "codex", "exec", "-c", "model_provider=corp", "hi")) == f"{COMPANY}/v1"
    changed = ("codex", "--config=model_provider=corp", "exec", "-c", f'model_providers.corp.base_url="{OTHER}"')
    assert find_codex(make_start(folder, *changed)) == OTHER
    assert find_codex(make_start(folder, "codex", CODEX_HOME=str(folder / "none"))) is None


def test_codex_keeps_its_provider_and_the_address_is_its_last_setting(folder: Path) -> None:
    start = make_start(folder, "codex", "exec", "-c", "model_reasoning_effort=low", "hi", OPENAI_API_KEY="sk-x")
    launch = find_client("codex").redirect(start, URL)
    added = ("-c", f'openai_base_url="{URL}/v1"')
    assert launch.command == ("codex", "exec", "-c", "model_reasoning_effort=low", *added, "hi")
    assert launch.environ == {"CODEX_API_KEY": "sk-x"}
    write(folder, "home/.codex/config.toml", f'model_provider = "corp"\n{CORP}')
    launch = find_client("codex").redirect(make_start(folder, "codex", "resume", "--last"), URL)
    assert launch.command == ("codex", "-c", f'model_providers.corp.base_url="{URL}/v1"', "resume", "--last")


def test_a_chatgpt_login_goes_to_chatgpt_unless_an_address_is_set(folder: Path) -> None:
    write(folder, "home/.codex/auth.json", {"OPENAI_API_KEY": None, "tokens": {"access_token": "x"}})
    found = find_codex(make_start(folder, "codex"))
    assert found is not None
    assert found.startswith("https://chatgpt.com/")
    assert find_codex(make_start(folder, "codex", CODEX_API_KEY="sk-x")) is None
    write(folder, "home/.codex/config.toml", f'openai_base_url = "{COMPANY}"\n')
    assert find_codex(make_start(folder, "codex")) == COMPANY
    write(folder, "home/.codex/auth.json", {"OPENAI_API_KEY": "sk-x", "tokens": {"access_token": "x"}})
    write(folder, "home/.codex/config.toml", "")
    assert find_codex(make_start(folder, "codex")) is None


def test_a_login_of_codex_in_the_keyring_is_refused(folder: Path) -> None:
    write(folder, "home/.codex/config.toml", 'cli_auth_credentials_store = "keyring"\n')
    with pytest.raises(ConfigError, match="--openai-upstream"):
        find_codex(make_start(folder, "codex"))


@pytest.mark.parametrize("command", [("codex", "--oss"), ("codex", "-c", "model_provider=amazon-bedrock")])
def test_codex_with_another_service_is_refused(folder: Path, command: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="run it without refold"):
        find_client("codex").redirect(make_start(folder, *command), URL)


def test_opencode_is_asked_for_its_settings_and_the_chosen_provider_is_led_to_the_gateway(folder: Path) -> None:
    settings = {
        "model": "corp/m",
        "provider": {"corp": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{COMPANY}/v1"}}},
    }
    program = folder / "opencode"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'debug config' ] && echo '{json.dumps(settings)}'\n")
    program.chmod(0o755)
    given = json.dumps({"theme": "x", "provider": {"corp": {"options": {"timeout": 3}}}})
    start = make_start(folder, str(program), "run", "hi", PATH="/usr/bin:/bin", OPENCODE_CONFIG_CONTENT=given)
    assert find_upstreams(start, {}) == {"openai_upstream": f"{COMPANY}/v1"}
    made = json.loads(find_client("opencode").redirect(start, URL).environ["OPENCODE_CONFIG_CONTENT"])
    assert made["theme"] == "x"
    assert made["provider"]["corp"]["options"] == {"timeout": 3, "baseURL": f"{URL}/v1"}
    assert "openai" not in made["provider"], "its requests go somewhere else"
    changed = make_start(folder, str(program), "run", "-m", "openai/gpt-5", PATH="/usr/bin:/bin")
    assert find_upstreams(changed, {}) == {}
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ConfigError, match="opencode debug config"):
        find_upstreams(make_start(folder, str(program), PATH="/usr/bin:/bin"), {})


def test_places_of_qwen_code_and_aider_have_to_agree(folder: Path) -> None:
    write(folder, "work/.env", f"# the company's\nexport OPENAI_BASE_URL='{COMPANY}/v1'\n")
    for program in ("qwen", "aider"):
        assert find_upstreams(make_start(folder, program), {}) == {"openai_upstream": f"{COMPANY}/v1"}
        with pytest.raises(ConfigError, match=r"name different addresses.*--openai-upstream"):
            find_upstreams(make_start(folder, program, OPENAI_BASE_URL=OTHER), {})
        given = {"openai_upstream": OTHER, "anthropic_upstream": OTHER}
        assert find_upstreams(make_start(folder, program, OPENAI_BASE_URL=OTHER), given) == given


def test_qwen_code_gets_the_address_on_its_command_line(folder: Path) -> None:
    auth = {"selectedType": "openai", "baseUrl": f"{COMPANY}/v1"}
    write(folder, "home/.qwen/settings.json", {"security": {"auth": auth}})
    start = make_start(folder, "qwen", "--openai-base-url", f"{COMPANY}/v1", "-p", "hi")
    assert find_upstreams(start, {}) == {"openai_upstream": f"{COMPANY}/v1"}
    assert find_client("qwen").redirect(start, URL).command == ("qwen", "--openai-base-url", f"{URL}/v1", "-p", "hi")
    with pytest.raises(ConfigError, match="auth type qwen-oauth"):
        find_client("qwen").redirect(make_start(folder, "qwen", "--auth-type", "qwen-oauth"), URL)
    write(folder, "work/.qwen/settings.json", {"modelProviders": {"openai": [{"id": "m", "baseUrl": OTHER}]}})
    with pytest.raises(ConfigError, match="modelProviders"):
        find_client("qwen").redirect(start, URL)


def test_aider_gets_the_addresses_on_its_command_line_and_keeps_its_variables(folder: Path) -> None:
    write(folder, "work/.aider.conf.yml", f"set-env:\n  - ANTHROPIC_API_BASE={COMPANY}\n  - DEEPSEEK_API_KEY=sk-1=2\n")
    start = make_start(folder, "aider", "--message", "hi")
    assert find_upstreams(start, {}) == {"anthropic_upstream": COMPANY}
    launch = find_client("aider").redirect(start, URL)
    command = launch.command
    assert launch.environ["DEEPSEEK_API_KEY"] == "sk-1=2"
    assert "sk-1=2" not in " ".join(command), "other users can read command lines"
    assert command[:4] == ("aider", "--openai-api-base", f"{URL}/v1", "--set-env")
    assert f"ANTHROPIC_API_BASE={URL}" in command
    assert f"ANTHROPIC_API_BASE={COMPANY}" not in command
    assert command[-2:] == ("--message", "hi")


def test_pi_gets_the_addresses_by_an_extension_and_its_own_file_says_where_requests_go(folder: Path) -> None:
    write(folder, "home/.pi/agent/models.json", {"providers": {"anthropic": {"baseUrl": COMPANY}}})
    start = make_start(folder, "pi", "-p", "hi", ANTHROPIC_BASE_URL=OTHER)
    assert find_upstreams(start, {}) == {"anthropic_upstream": COMPANY}
    with write_secret(find_client("pi").redirect(start, URL)) as command:
        assert command[:2] == ("pi", "--extension")
        assert command[3:] == ("-p", "hi")
        text = Path(command[2]).read_text()
    assert f'pi.registerProvider("anthropic", {{ baseUrl: "{URL}" }});' in text
    assert find_client("pi").redirect(make_start(folder, "pi", "list"), URL).command == ("pi", "list")
    write(folder, "work/.pi/extensions/corp.ts", 'pi.registerProvider("anthropic", {})')
    with pytest.raises(ConfigError, match=r"corp\.ts.*--anthropic-upstream"):
        find_upstreams(start, {})


@pytest.mark.parametrize(
    ("program", "name"), [("claude", ".claude/settings.json"), ("qwen", ".env"), ("pi", ".pi/extensions/x.js")]
)
@pytest.mark.parametrize("kind", ["endless", "pipe"])
@pytest.mark.skipif(sys.platform == "win32", reason="devices and pipes have paths")
@pytest.mark.timeout(20)
def test_a_settings_file_that_never_ends_is_refused(folder: Path, program: str, name: str, kind: str) -> None:
    path = folder / "work" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=re.escape(path.name)):
        find_upstreams(make_start(folder, program), {})
    path.unlink()
    path.symlink_to(os.devnull)
    assert find_upstreams(make_start(folder, program), {}) == {}


def test_a_program_is_known_by_the_name_of_its_file(folder: Path) -> None:
    assert find_client("/usr/local/bin/claude") is find_client("claude")
    assert find_client("codex.cmd") is find_client("codex.exe")
    start = make_start(folder, "my-agent", OPENAI_BASE_URL=f"{COMPANY}/v1", ANTHROPIC_API_BASE=OTHER)
    assert find_upstreams(start, {}) == {"openai_upstream": f"{COMPANY}/v1", "anthropic_upstream": OTHER}
    environ = find_client("my-agent").redirect(start, URL).environ
    assert environ["OPENAI_BASE_URL"] == f"{URL}/v1"
    assert environ["ANTHROPIC_BASE_URL"] == URL
