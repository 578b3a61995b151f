"""Every setting declares who may set it: the user alone, or a project's file as well."""

from pathlib import Path

from refold.config.load import ChatBlock, McpBlock
from refold.config.schema import CompressionConfig
from refold.config.trust import PROJECT, PROJECT_BLOCKS, USER, may_project_set
from refold.memory import SETTINGS
from refold.server.settings import GatewaySettings
from refold.stages import STAGES


def list_settings() -> set[str]:
    known = CompressionConfig.known
    options = {f"{block}.{option}" for block, names in known.blocks.items() for option in names}
    commands = {f"{kind.name}.{name}" for kind in (ChatBlock, McpBlock, GatewaySettings) for name in kind.model_fields}
    return {*known.settings, *options, *commands}


def test_every_setting_declares_who_may_set_it() -> None:
    named = {name for name in list_settings() if name.partition(".")[0] not in PROJECT_BLOCKS}
    assert sorted(named - USER - PROJECT) == [], "add it to USER or PROJECT in config/trust.py"
    assert sorted((USER | PROJECT) - named) == [], "there is no such setting"
    assert not USER & PROJECT


def test_a_block_that_is_the_projects_as_a_whole_is_a_stages() -> None:
    stages = {"window_stage" if name == "window" else name for name in STAGES}
    assert PROJECT_BLOCKS - {"score"} == stages, "a stage reaches nothing outside; other blocks name their options"


def test_an_unknown_setting_is_the_users(tmp_path: Path) -> None:
    assert not may_project_set("gateway.new_address", "http://127.0.0.1", tmp_path)
    assert not may_project_set("new_address", "off", tmp_path)


def test_what_config_json_of_a_folder_sets_is_the_projects() -> None:
    assert set(SETTINGS.values()) <= PROJECT
