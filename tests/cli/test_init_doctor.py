"""``refold init``, ``refold doctor`` and completion: what a new user types first."""

import json
import re

import pytest

from refold import ContextCompressionManager
from refold.config import PRESETS, CompressionConfig, explain
from refold.testing import ScriptedProvider
from tests.rigs.cli import Shell

SECRET = "sk-not-to-be-shown-4711"

# Each run is a process of its own: the others are for the slow suite.
SOME = [pytest.param(name, marks=() if name in ("default", "turns") else pytest.mark.slow) for name in PRESETS]


@pytest.mark.parametrize("preset", SOME)
def test_init_writes_a_file_that_changes_nothing_until_a_line_is_uncommented(shell: Shell, preset: str) -> None:
    ran = shell.refold("init", "--preset", preset)
    assert ran.code == 0, ran.err
    assert "refold config explain" in ran.err
    shown = json.loads(shell.refold("config", "explain", "--all", "--json").out)
    assert {row["name"]: row["layer"] for row in shown if row["layer"] == "project"} == {"preset": "project"}
    assert [row["name"] for row in shown] == [row.name for row in explain(CompressionConfig.preset(preset))]


@pytest.mark.parametrize("preset", SOME)
def test_every_line_of_it_is_a_setting_with_a_value_that_is_taken(shell: Shell, preset: str) -> None:
    text = shell.refold("init", "--print", "--preset", preset).text
    lines = re.findall(r"^# ([a-z_]+: .+)  #", text, re.M)
    assert len(lines) >= 20
    for line in lines:
        assert CompressionConfig.preset(preset).replace(**read_setting(line)) is not None
    shell.write("refold.yaml", re.sub(r"^# (?=  lines_max|truncate|gateway|  port)", "", text, flags=re.M))
    assert shell.refold("config", "explain").code == 0


def read_setting(line: str) -> dict[str, object]:
    import yaml

    read: dict[str, object] = yaml.safe_load(line)
    return read


def test_init_leaves_a_file_alone_that_is_there(shell: Shell) -> None:
    shell.write("refold.yaml", "preset: turns\n")
    ran = shell.refold("init")
    assert ran.code == 3
    assert "already exists" in ran.err
    assert (shell.folder / "refold.yaml").read_text() == "preset: turns\n"


def test_init_says_so_if_it_cannot_write(shell: Shell) -> None:
    ran = shell.refold("init", "--workspace", "no/such/folder")
    assert ran.code == 3
    assert "cannot be written" in ran.err


def look(shell: Shell, *more: str, **environment: str) -> dict[str, dict[str, str]]:
    ran = shell.refold("doctor", "--json", *more, **environment)
    assert SECRET not in ran.text + ran.err
    told = json.loads(ran.out)
    assert told["healthy"] is (ran.code == 0)
    return {check["name"]: check for check in told["checks"]}


def test_doctor_finds_a_healthy_machine_and_says_what_is_missing_with_a_remedy(shell: Shell) -> None:
    ran = shell.refold("doctor", COLUMNS="80", OPENAI_API_KEY="", ANTHROPIC_API_KEY="")
    assert ran.code == 0, ran.err
    assert max(map(len, ran.text.splitlines())) <= 80
    assert "nothing is broken" in ran.text
    assert "→ set OPENAI_API_KEY or ANTHROPIC_API_KEY" in ran.text
    assert not (shell.folder / ".refold").exists(), "a look leaves nothing behind"


def test_doctor_names_keys_and_never_shows_them(shell: Shell) -> None:
    checks = look(shell, "--offline", OPENAI_API_KEY=SECRET)
    assert checks["keys"]["found"] == "OPENAI_API_KEY is set"
    assert "not checked" in checks["model"]["found"]


def test_doctor_asks_the_models_address_and_tells_a_refused_key_from_a_dead_address(shell: Shell) -> None:
    with ScriptedProvider(key="right") as provider:
        places = {"OPENAI_BASE_URL": f"{provider.url}/v1"}
        assert look(shell, OPENAI_API_KEY="right", **places)["model"]["state"] == "ok"
        refused = look(shell, OPENAI_API_KEY=SECRET, **places)["model"]
        assert (refused["state"], refused["remedy"]) == ("broken", "check OPENAI_API_KEY")
        assert {request.path for request in provider.requests} == {"/v1/models"}, "asking costs nothing"
    dead = look(shell, OPENAI_API_KEY=SECRET, **places)["model"]
    assert "does not answer" in dead["found"]
    assert "OPENAI_BASE_URL" in dead["remedy"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_doctor_names_the_switch_without_which_no_model_writes_summaries_behind_the_gateway(
    shell: Shell, language: str
) -> None:
    (shell.folder / "refold.yaml").write_text(f"preset: hybrid\nlanguage: {language}\n", encoding="utf-8")
    check = look(shell, "--offline", OPENAI_API_KEY="")["summaries"]
    assert check["state"] == "hint"
    assert ("规则" if language == "zh" else "rules write them") in check["found"]
    assert "gateway.summaries: client" in check["remedy"]
    assert look(shell, "--offline", REFOLD_OPENAI_KEY="sk-held-by-the-gateway")["summaries"]["state"] == "ok"
    assert look(shell, "--offline", REFOLD_SUMMARIES="client")["summaries"]["state"] == "ok"


def test_doctor_finds_a_wrong_setting(shell: Shell) -> None:
    shell.write("refold.yaml", "windw: 5\n")
    checks = look(shell)
    assert checks["settings"]["state"] == "broken"
    assert "did you mean 'window'" in checks["settings"]["found"]
    assert checks["disk"]["state"] == "ok", "one finding does not end the look"


def test_doctor_finds_a_broken_record(shell: Shell) -> None:
    shell.write(".refold/ledger.db", b"this is no database, and never was one" * 100)
    assert look(shell)["record"]["state"] == "broken"


@pytest.mark.parametrize(("typed", "offered"), [("doc", "doctor"), ("rec", "recall"), ("comp", "compress")])
def test_the_shell_completes_commands(shell: Shell, typed: str, offered: str) -> None:
    ran = shell.refold(COMP_WORDS=f"refold {typed}", COMP_CWORD="1", _REFOLD_COMPLETE="complete_bash")
    assert offered in ran.text.split()


def test_a_window_that_a_clients_own_instructions_fill_is_named(shell: Shell) -> None:
    shell.write("refold.yaml", "window: 24000\n")
    with ContextCompressionManager(CompressionConfig(window=24_000), shell.folder) as manager:
        rules = " ".join(f"Rule {number}: keep the names of module {number}." for number in range(1_500))
        manager.prepare_context_sync("tight", [{"role": "user", "content": "hello"}], rules)
        manager.observe_usage("tight", 19_000)
    done = shell.refold("doctor", "--offline", "--json")
    found = next(one for one in json.loads(done.text)["checks"] if one["name"] == "windows")
    assert found["state"] == "hint"
    assert "tight: instructions and tools of the client take 1" in found["found"]
    assert "too small for this client" in found["remedy"]


def test_instructions_among_the_messages_count_and_the_log_says_so_too(shell: Shell) -> None:
    shell.write("refold.yaml", "window: 24000\n")
    with ContextCompressionManager(CompressionConfig(window=24_000), shell.folder) as manager:
        rules = " ".join(f"Rule {number}: keep the names of module {number}." for number in range(1_200))
        history = [{"role": "system", "content": rules}, {"role": "user", "content": "hello"}]
        for number in range(12):
            history += [
                {"role": "assistant", "content": f"Step {number}."},
                {"role": "user", "content": "words " * 900},
            ]
            manager.prepare_context_sync("tight", history)
    found = json.loads(shell.refold("doctor", "--offline", "--json").text)["checks"]
    assert "take 1" in next(one for one in found if one["name"] == "windows")["found"]
    logged = shell.refold("log", "-s", "tight")
    assert "too small for this client" in logged.err
