"""What a Chinese user of the documents reads: tools, commands and pages of a conversation that grows."""

import re
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.agent.context_tools import ContextTools
from refold.testing import ScriptedProvider
from tests.cli.test_words import find_english
from tests.rigs.cli import Shell
from tests.rigs.growing import errands, work

ROOT = Path(__file__).parents[2]
# Pages in Chinese, and their English page: both have the same blocks to run.
PAGES = {
    "chat": "how-to/chat",
    "documents": "documents",
    "mcp": "how-to/mcp",
    "memory": "how-to/memory",
    "presets": "reference/presets",
    "recall": "how-to/recall",
    "tuning": "how-to/tuning",
}
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", re.S)
TIGHT = re.compile(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9%][\u4e00-\u9fff]")


async def test_s1_5_the_tools_answer_in_chinese_with_names_of_stages_and_what_was_saved(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig.preset("importance"), tmp_path) as manager:
        for history in work(turns=3, steps=6, language="zh"):
            manager.prepare_context_sync("s1", history)
        tools = ContextTools(manager, "s1")
        status = tools.context_status()
        assert re.search(r"统计：总消息数 \d+，已压缩 \d+ 条，节省 [\d,]+ token。", status)
        assert "词元" not in status
        manager.append("s1", [*history, {"role": "assistant", "content": "好的，都读完了。"}])
        compressed = await tools.context_compress()
        assert re.search(r"压缩完成：\d+ → \d+ 条消息，.*（折叠 −[\d,]+）", compressed), compressed


@pytest.mark.parametrize("file", ["x-agent.yaml", "refold.yaml"])
def test_s0_1_explain_says_in_chinese_what_implies_the_preset(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.cli.words._chosen", None)  # The command chooses a language for its process.
    fields = "  threshold_rounds: 100\n  threshold_tokens: 4000\n  retention_count: 50\n"
    (tmp_path / file).write_text(f"compression:\n{fields}", encoding="utf-8")
    ran = Shell(tmp_path).refold("config", "explain", REFOLD_LANGUAGE="zh", COLUMNS="200")
    named = file if file == "x-agent.yaml" else "threshold_rounds, threshold_tokens, retention_count"
    assert f"由 {named} 推定" in ran.text
    assert "implied by" not in ran.text


@pytest.mark.parametrize("preset", ["archive", "importance", "offload", "hybrid", "turns"])
def test_s3_9_and_s2_12_a_chat_in_chinese_has_no_english_sentence(tmp_path: Path, preset: str) -> None:
    pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
    (tmp_path / ".git").mkdir()
    (tmp_path / "refold.yaml").write_text(f"preset: {preset}\n", encoding="utf-8")
    said = [one["content"] for one in errands("zh", 40)[::2]]
    typed = "\n".join([*said, "/context", "/compact", "/compact", "/summary", "/config", "/help", ""])
    with ScriptedProvider("好的，就这样。") as provider:
        ran = Shell(tmp_path).refold(
            "chat", "-m", "gpt-4o", "--base-url", provider.openai_url, stdin=typed.encode(), LC_ALL="zh_CN.UTF-8"
        )
    shown = ran.text + ran.err
    assert "压缩" in shown
    assert find_english(shown) == []
    assert " at " not in shown


@pytest.mark.parametrize("name", PAGES)
def test_a_chinese_page_has_the_blocks_of_its_english_page(name: str) -> None:
    page, english = (ROOT / "docs" / f"{one}.md" for one in (f"zh/{name}", PAGES[name]))
    fences = [re.findall(r"^```(python|console|yaml)$", one.read_text("utf-8"), re.M) for one in (page, english)]
    assert fences[0] == fences[1]
    assert f"zh/{name}.md)" in english.read_text("utf-8")
    assert f"/{PAGES[name]}.md)" in page.read_text("utf-8")


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "zh").glob("*.md")), ids=lambda page: page.stem)
def test_chinese_pages_write_token_and_leave_a_space_beside_latin_words(page: Path) -> None:
    text = CODE.sub(" ", page.read_text("utf-8"))
    assert TIGHT.findall(text) == []
    assert text.count("词元") == (" token" in text or "token " in text), "token（词元） once, where token is first used"
