"""The blocks ``chat`` and ``mcp`` of a settings file: read, checked, and not trusted with keys."""

from pathlib import Path

import pytest

from refold.config.load import ChatBlock, McpBlock, read_block
from refold.errors import ConfigError


def write(folder: Path, text: str, home: Path | None = None) -> dict[str, str]:
    """Write a project's file, or the user's if there is a home; return the environment."""
    path = folder / "refold.yaml" if home is None else home / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return {"XDG_CONFIG_HOME": str(folder / "none")} if home is None else {"XDG_CONFIG_HOME": str(home.parent)}


def test_the_environment_comes_before_the_project_and_the_project_before_the_user(tmp_path: Path) -> None:
    write(tmp_path, "chat:\n  model: theirs\nmcp: {session: work}\n")
    own = "chat: {model: mine, system: Be brief., base_url: 'http://h/v1', tools: [files, shell]}\nmcp: {port: 7000}\n"
    environ = write(tmp_path, own, tmp_path / "x" / "refold")
    assert read_block(ChatBlock, tmp_path, environ) == ChatBlock(
        model="theirs", tools="files,shell", system="Be brief.", base_url="http://h/v1"
    )
    environ |= {"REFOLD_CHAT_MODEL": "now", "REFOLD_SESSION": "other"}
    assert read_block(ChatBlock, tmp_path, environ).model == "now"
    assert read_block(McpBlock, tmp_path, environ) == McpBlock(session="other", port=7000)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("chat:\n  modle: x\n", "refold.yaml:2: unknown setting 'chat.modle' (did you mean 'model'?)"),
        ("chat:\n  model: [1]\n", "refold.yaml:2: chat.model is [1]; give text"),
        ("chat: 7\n", "refold.yaml:1: chat must be a block of settings"),
        ("chat:\n  base_url: http://evil/v1\n", "refold.yaml:2: chat.base_url would let whoever wrote this file"),
    ],
)
def test_an_error_is_reported_with_its_place(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read_block(ChatBlock, tmp_path, environ)
    assert told in str(raised.value)


def test_a_port_is_a_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mcp\.port is 'high'; give a whole number"):
        read_block(McpBlock, tmp_path, write(tmp_path, "mcp: {port: high}"))


def test_every_setting_and_variable_is_on_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    for block in (ChatBlock, McpBlock):
        rows = [line for line in page.splitlines() if line.startswith(f"| `{block.name}` |")]
        named = {name.strip("` ") for row in rows for name in row.split("|")[2].split(",")}
        assert named == set(block.model_fields)
        assert all(any(f"`{variable}`" in row for row in rows) for variable in block.variables)
