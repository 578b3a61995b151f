"""The settings in a real browser: tried as they are typed, saved where the command line reads them, and in force."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.web import Browser, is_within, need_browser, serve
from tests.web.stories import leave_no_sample

need_browser()
pytestmark = pytest.mark.slow  # test_payloads.py opens the pages in the quick suite.


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settings")
    leave_no_sample(folder)
    return folder


@pytest.fixture(scope="module")
def address(workspace: Path) -> Iterator[str]:
    with serve(workspace, REFOLD_RESERVE="5000") as made:
        yield made


@pytest.fixture
def page(browser: Browser, address: str, workspace: Path) -> Any:
    (workspace / "refold.yaml").write_text("# mine\nwarn_ratio: 0.7\n", encoding="utf-8")
    return open_page(browser, address)


def open_page(browser: Browser, address: str, **options: Any) -> Any:
    made = browser.open(f"{address}/ui/settings", **options)
    made.wait_for_selector("[data-setting=trigger_ratio] input")
    made.wait_for_timeout(300)  # Handlers are there once the socket is.
    return made


def entry(page: Any, name: str) -> Any:
    return page.locator(f"[data-setting='{name}'] :is(input, textarea, select, .toggle)").first


def row(page: Any, name: str) -> Any:
    return page.locator(f"[data-setting='{name}']")


def save(page: Any) -> None:
    page.click(".save-bar .primary:enabled")
    page.wait_for_selector("text=Saved in refold.yaml")
    page.wait_for_selector(".save-bar", state="hidden")


def in_force(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/api/config", timeout=60) as answer:
        return {one["name"]: one["value"] for one in json.load(answer)["settings"]}


def test_what_was_typed_just_before_the_click_is_saved_and_the_page_is_not_loaded_again(
    page: Any, address: str, workspace: Path
) -> None:
    entry(page, "target_ratio").fill("0.3")
    page.wait_for_selector("text=1 change")
    page.evaluate("window.isSame = true")
    entry(page, "trigger_ratio").fill("75%")
    page.click(".save-bar .primary")
    page.wait_for_selector(".save-bar", state="hidden")
    assert in_force(address)["trigger_ratio"] == 0.75
    assert page.locator(".q-notification", has_text="Saved in refold.yaml").count()
    assert page.evaluate("window.isSame"), "a load would take the notification away"
    entry(page, "warn_ratio").fill("0.65")
    save(page)
    assert in_force(address)["warn_ratio"] == 0.65


def test_what_is_typed_while_the_page_saves_stays_and_is_saved_next(page: Any, address: str) -> None:
    entry(page, "target_ratio").fill("0.31")
    page.wait_for_selector("text=1 change")
    page.evaluate(
        """() => { document.querySelector('.save-bar .primary').click();
        const field = document.querySelector("[data-setting='warn_ratio'] input");
        field.value = '0.66'; field.dispatchEvent(new Event('change')); }"""
    )
    page.wait_for_selector("text=Saved in refold.yaml")
    page.wait_for_timeout(300)
    assert entry(page, "warn_ratio").input_value() == "0.66"
    assert row(page, "target_ratio").get_by_text("not saved").count() == 0
    page.wait_for_selector("text=1 change")
    page.locator(".q-notification").wait_for(state="detached")
    save(page)
    settings = in_force(address)
    assert (settings["target_ratio"], settings["warn_ratio"]) == (0.31, 0.66)


def test_the_list_of_all_settings_stays_open_after_saving(page: Any) -> None:
    page.click(".rest summary")
    field = page.locator(".rest-body [data-setting] input").first
    field.wait_for()
    entry(page, "target_ratio").fill("0.32")
    save(page)
    page.wait_for_timeout(300)
    assert field.is_visible()


def test_a_wrong_value_is_told_while_it_is_typed_and_cannot_be_saved(page: Any) -> None:
    entry(page, "trigger_ratio").fill("7")
    row(page, "trigger_ratio").get_by_text("give 1 or less").wait_for()
    assert page.locator(".save-bar .primary").is_disabled()
    entry(page, "trigger_ratio").fill("75%")
    row(page, "trigger_ratio").get_by_text("not saved").wait_for()
    page.wait_for_selector(".save-bar .primary:enabled")
    assert entry(page, "trigger_ratio").input_value() == "75%", "what is typed is never put back"


def test_s3_9_switch_and_threshold_are_saved_where_the_command_line_and_the_gateway_read_them(
    page: Any, address: str, workspace: Path
) -> None:
    entry(page, "trigger_ratio").fill("75%")
    entry(page, "auto_compress").click()
    page.check("input[value=hybrid]")
    entry(page, "fold.prompt").fill("Keep every number.\nBe brief.")
    page.wait_for_selector("text=4 changes")
    save(page)
    assert (workspace / "refold.yaml").read_text().startswith("# mine\nwarn_ratio: 0.7\n"), "the rest stays as it was"
    command = [sys.executable, "-m", "refold", "config", "explain", "--json"]
    told = json.loads(subprocess.run(command, cwd=workspace, capture_output=True, check=True).stdout)
    values = {one["name"]: one["value"] for one in told}
    assert (values["trigger_ratio"], values["auto_compress"], values["preset"]) == (0.75, False, "hybrid")
    assert values["fold.prompt"] == "Keep every number.\nBe brief."
    assert in_force(address)["trigger_ratio"] == 0.75, "the gateway goes by it without a restart"
    row(page, "trigger_ratio").get_by_text("refold.yaml:").wait_for()


def test_choosing_a_preset_shows_what_it_changes_before_it_is_saved(page: Any, workspace: Path) -> None:
    page.locator("[data-setting=preset] input[value=hybrid]").check()
    changes = page.locator("[data-setting=preset] .preset-changes li")
    changes.filter(has_text="fold.keep_messages").wait_for()
    shown = dict(line.split(None, 1) for line in changes.all_inner_texts())
    default, hybrid = CompressionConfig(), CompressionConfig.preset("hybrid")
    assert shown["fold.keep_messages"] == f"{default.fold.keep_messages or 'unset'} → {hybrid.fold.keep_messages}"
    assert "warn_ratio" not in shown, "the file sets it, so a preset does not change it"
    assert "preset" not in (workspace / "refold.yaml").read_text()
    page.locator("[data-setting=preset] input[value=default]").check()
    changes.first.wait_for(state="detached")


@pytest.mark.parametrize("language", ["en-GB", "zh-CN"])
def test_every_help_text_of_a_listed_setting_is_a_sentence(browser: Browser, address: str, language: str) -> None:
    page = open_page(browser, address, language=language)
    helps = page.locator(".group:not(.rest) .setting-means, .preset .soft").all_inner_texts()
    assert len(helps) > 25
    assert [one for one in helps if not one.endswith((".", "。"))] == []


def test_s3_9_the_threshold_of_the_hybrid_preset_shows_eighty_percent_and_can_be_changed_there(
    browser: Browser, address: str, workspace: Path
) -> None:
    (workspace / "refold.yaml").write_text("preset: hybrid\n", encoding="utf-8")
    page = browser.open(f"{address}/ui/settings")
    name = "context_compression_threshold"
    page.wait_for_selector(f"[data-setting={name}] input")
    page.wait_for_timeout(300)
    assert entry(page, name).input_value() == "80%"
    assert "Threshold" in row(page, name).inner_text()
    entry(page, name).fill("70%")
    save(page)
    page.wait_for_selector(f"[data-setting={name}] input")
    assert entry(page, name).input_value() == "70%"
    assert in_force(address)[name] == 0.7


def test_reset_takes_a_setting_out_of_the_file_again(page: Any, address: str, workspace: Path) -> None:
    row(page, "warn_ratio").get_by_role("button", name="Remove it from the file").click()
    row(page, "warn_ratio").get_by_text("will be reset").wait_for()
    save(page)
    assert "warn_ratio" not in (workspace / "refold.yaml").read_text()
    row(page, "warn_ratio").get_by_text("preset default").wait_for()
    assert in_force(address)["warn_ratio"] == 0.8


def test_settings_that_conflict_say_so(page: Any) -> None:
    entry(page, "trigger_ratio").fill("0.3")
    entry(page, "target_ratio").fill("0.9")
    page.wait_for_selector(".save-bar .primary:disabled")
    page.get_by_text("lower the target below the threshold").first.wait_for()
    entry(page, "target_ratio").fill("0.2")
    page.wait_for_selector(".save-bar .primary:enabled")


def test_what_the_environment_decides_cannot_be_changed_here_and_says_why(page: Any) -> None:
    assert entry(page, "reserve").is_disabled()
    assert "REFOLD_RESERVE" in row(page, "reserve").inner_text()


def test_what_config_json_says_is_shown_and_gives_way(browser: Browser, address: str, workspace: Path) -> None:
    (workspace / "refold.yaml").write_text("", encoding="utf-8")
    with ContextCompressionManager(CompressionConfig(), workspace) as manager:
        manager.configure(max_turns=77)
    page = open_page(browser, address)
    assert entry(page, "max_turns").input_value() == "77"
    row(page, "max_turns").get_by_text(".compression/config.json").wait_for()
    entry(page, "max_turns").fill("60")
    page.wait_for_selector("text=1 change")
    save(page)
    assert in_force(address)["max_turns"] == 60
    with ContextCompressionManager(CompressionConfig(), workspace) as manager:
        assert manager.config.max_turns is None, "config.json no longer says it; refold.yaml does"


def test_every_setting_is_there_and_can_be_changed(page: Any, address: str) -> None:
    page.click(".rest summary")
    page.wait_for_selector("[data-setting='truncate.lines_max'] input")
    known = in_force(address)
    assert page.locator("[data-setting]").count() == len(known)
    entry(page, "truncate.lines_max").fill("many")
    row(page, "truncate.lines_max").get_by_text("give a whole number").wait_for()


def test_a_broken_file_is_told_in_words(browser: Browser, address: str, workspace: Path) -> None:
    (workspace / "refold.yaml").write_text("trigger_ratio: [", encoding="utf-8")
    page = browser.open(f"{address}/ui/settings")
    page.wait_for_selector("text=not valid YAML")
    assert page.is_visible("text=refold.yaml")


@pytest.mark.parametrize(("width", "language"), [(390, "zh-CN"), (1600, "en-US")])
def test_the_settings_fit_any_width(browser: Browser, address: str, workspace: Path, width: int, language: str) -> None:
    (workspace / "refold.yaml").write_text("", encoding="utf-8")
    page = open_page(browser, address, width=width, height=844, language=language)
    assert is_within(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className").strip() == "skip"


def test_a_switch_works_by_keyboard(page: Any) -> None:
    entry(page, "auto_compress").focus()
    page.keyboard.press("Space")
    page.wait_for_selector("text=1 change")
    assert entry(page, "auto_compress").get_attribute("aria-checked") == "false"


def test_a_wrong_value_on_the_chinese_page_is_explained_in_chinese(browser: Browser, address: str) -> None:
    page = open_page(browser, address, language="zh-CN")
    entry(page, "trigger_ratio").fill("7")
    row(page, "trigger_ratio").get_by_text("trigger_ratio 是 '7'；请给出 1 或更小的数").wait_for()
