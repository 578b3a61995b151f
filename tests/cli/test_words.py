"""The command line in Chinese: every text has words in both languages, and no English sentence comes out."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path

import pytest

from refold.cli.words import use_language
from refold.errors import Sentence
from refold.sentences import read_texts
from refold.testing import ScriptedProvider
from tests.cli.conftest import make_session
from tests.cli.words_in_use import list_untranslated, list_words_in_use
from tests.rigs.cli import Shell

ZH = {"LC_ALL": "zh_CN.UTF-8"}
# Four words in a row are a sentence; commands, options, names of settings and what users wrote are not.
_SENTENCE = re.compile(r"[A-Za-z][a-z']+(?:,? [A-Za-z][a-z']+){3,}")
# Texts that have a key; the others have their English words for one.
_KEY = re.compile(r"[a-z]+\.[\w.-]+")
_CODE = re.compile(r"chat, llm, recall, server, web, mcp|“[^”]*”|'[^']*'|^ {2,}refold .*$|pip install \S+", re.M)


def find_english(text: str) -> list[str]:
    return _SENTENCE.findall(_CODE.sub("", text))


def read_fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_every_text_has_words_in_both_languages_and_none_is_left_over() -> None:
    used, known = list_words_in_use(), {key for key in read_texts("zh") if not _KEY.fullmatch(key)}
    assert sorted(used - known - {""}) == []
    assert sorted(known - used) == []


def test_both_languages_name_the_same_values() -> None:
    for english, chinese in read_texts("zh").items():
        if not _KEY.fullmatch(english):
            fields = {"count"} if english.startswith("# ") else read_fields(english)
            assert read_fields(chinese) == fields, english


@pytest.mark.parametrize(
    ("environment", "chinese"),
    [
        ({"LC_ALL": "zh_CN.UTF-8"}, True),
        ({"LC_ALL": "", "LANG": "zh_TW.UTF-8"}, True),
        ({"LC_ALL": "en_GB.UTF-8", "LANG": "zh_CN.UTF-8"}, False),
        ({"LC_ALL": "C.UTF-8", "REFOLD_LANGUAGE": "zh"}, True),
        ({"LC_ALL": "zh_CN.UTF-8", "REFOLD_LANGUAGE": "en"}, False),
    ],
)
def test_the_language_is_the_terminals_unless_a_setting_names_one(
    shell: Shell, environment: dict[str, str], chinese: bool
) -> None:
    assert ("还没有会话" in shell.refold("sessions", **environment).text) is chinese


def test_the_setting_in_a_file_decides(shell: Shell) -> None:
    shell.write("refold.yaml", "language: zh\n")
    assert "还没有会话" in shell.refold("sessions").text
    shell.write("refold.yaml", "language: en\n")
    assert "no sessions yet" in shell.refold("sessions", **ZH).text


def test_help_is_in_chinese(shell: Shell) -> None:
    import typer.main

    from refold.cli.main import app

    whole = shell.refold("--help", **ZH).text
    assert "用法: refold" in whole
    assert find_english(whole) == []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        for words in ([name], *([name, inner] for inner in getattr(command, "commands", {}))):
            shown = shell.refold(*words, "--help", **ZH).text
            assert "选项" in shown, words
            assert find_english(shown.partition("示例:")[0]) == [], words


def test_the_main_commands_answer_in_chinese(shell: Shell, session: list[dict[str, object]]) -> None:
    del session
    runs = {
        ("compact", "session.json", "--budget", "4000", "--out", "small.json"): "预算",
        ("compact", "session.json", "--budget", "4000", "--dry-run", "--explain"): "将会触发",
        ("import", "session.json", "--as", "s1"): "已导入 's1'",
        ("compact", "--session", "s1"): "原因",
        ("sessions",): "会话",
        ("show", "--session", "s1"): "可见",
        ("show", "--session", "s1", "--edits"): "修改",
        ("show", "--session", "s1", "--originals"): "条消息",
        ("log", "--session", "s1"): "时间",
        ("stats",): "手动",
        ("undo", "--session", "s1"): "已撤销",
        ("redo", "--session", "s1"): "已重新应用",
        ("recall", "xyzzyplugh", "--session", "s1"): "没有找到",
        ("facts", "--session", "s1"): "",
        ("pin",): "没有固定任何消息",
        ("verify",): "没有差异",
        ("doctor", "--offline"): "正常",
        ("config", "explain"): "没有任何设置",
        ("config", "path"): "用户",
        ("presets",): "窗口",
        ("key", "list"): "没有密钥",
        ("delete", "--session", "s1", "--yes"): "已删除",
    }
    for words, expected in runs.items():
        ran = shell.refold(*words, **ZH)
        said = ran.text + ran.err
        assert ran.code == 0, (words, said)
        assert expected in said, (words, said)
        # Words of the session itself stay as they are: of these commands, only what we say around them is judged.
        lines = said.splitlines()
        shown = {"sessions": lines[:1], "log": lines[:1], "facts": lines[:1], "show": [lines[0], lines[-1]]}
        assert find_english("\n".join(shown.get(words[0], lines))) == [], (words, said)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["show", "--session", "nobody"], 8, "没有会话 'nobody'"),
        (["compact", "absent.json"], 4, "不存在"),
        (["compact", "session.json", "--budget", "20"], 5, "预算"),
        (["config", "explain", "windw"], 3, "是不是“window”"),
        (["serve", "--host", "192.0.2.1"], 3, "创建密钥"),
        (["recall", " "], 2, "查询为空"),
        (["nope"], 2, "没有命令 'nope'"),
        (["show", "--nope"], 2, "没有选项 --nope"),
        (["sho"], 2, "没有命令 'sho'；是不是 'show'？"),
        (["show", "--vew"], 2, "没有选项 --vew（是不是 --view？）"),
        (["serve", "--port", "x"], 2, "'--port' 的值无效：应为整数"),
        (["serve", "--port"], 2, "选项 '--port' 需要一个值"),
        (["recall", "q", "--limit", "0"], 2, "的值无效：应大于或等于 1"),
        (["sessions", "extra"], 2, "多余的参数（extra）"),
        (["show", "--json=3"], 2, "选项 '--json' 不带值"),
        (["key", "add", "A B"], 3, "租户名至多 64 个"),
        (["key", "revoke", "nobody"], 3, "没有密钥或租户 'nobody'"),
        (["serve", "--port", "70000"], 3, "gateway.port 是 70000；请给出 65,535 或更小的数"),
        (["serve", "--openai-upstream", "nowhere"], 3, "不是地址"),
        (["import", "changed.json"], 4, "此会话由更新版本的 refold 导出"),
        (["import", "empty"], 4, "是没有 .json 或 .jsonl 文件的文件夹"),
        (["chat", "--resume", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "hi"], 3, "没有可继续的会话"),
    ],
)
def test_errors_are_in_chinese(
    shell: Shell, session: list[dict[str, object]], words: list[str], code: int, expected: str
) -> None:
    del session
    (shell.folder / "empty").mkdir()
    shell.write("changed.json", '{"refold_session": 99}')
    ran = shell.refold(*words, **ZH)
    assert (ran.code, expected in ran.err) == (code, True), ran.err
    assert find_english(ran.err) == []


def test_a_wrong_settings_file_is_reported_in_chinese(shell: Shell) -> None:
    shell.write("refold.yaml", "retenton_count: 5\n")
    ran = shell.refold("config", "explain", **ZH)
    assert ran.err.strip() == "refold: refold.yaml:1: 未知设置“retenton_count”（是不是“retention_count”？）"


def test_an_error_without_chinese_words_keeps_its_english_under_a_chinese_heading(shell: Shell) -> None:
    shell.write("refold.yaml", "window: many\n")
    ran = shell.refold("config", "explain", **ZH)
    assert ran.code == 3
    assert ran.err.startswith("refold: 设置有误：")


def test_the_chat_speaks_chinese_and_the_answer_stays_as_it_came(shell: Shell) -> None:
    shell.write("refold.yaml", "window: 4000\nreserve: 500\n")
    shell.write("session.json", json.dumps(make_session(30)))
    lines = [
        "/help",
        "/context",
        "/compact",
        "你好，请记住端口是 8417",
        "/cost",
        "/config",
        "/nope",
        "/undo",
        "/summary",
        "/sessions",
    ]
    with ScriptedProvider("This is the answer of the model.") as provider:
        ran = shell.refold(
            "chat",
            "--model",
            "scripted-1",
            "--base-url",
            provider.openai_url,
            stdin="\n".join(lines).encode(),
            **ZH,
        )
    assert ran.code == 0, ran.err
    said = ran.text + ran.err
    for expected in ("显示此列表", "此会话还没有消息", "无需压缩", "没有命令 /nope", "价格未知", "含义"):
        assert expected in said, (expected, said)
    assert find_english(said.replace("This is the answer of the model.", "")) == []


def test_a_sentence_is_the_english_text_and_remembers_its_values() -> None:
    made = Sentence("there is no session {name!r}", name="a{b}")
    assert made == "there is no session 'a{b}'"
    assert made.values == {"name": "a{b}"}
    use_language("zh")
    try:
        from refold.cli.words import tr

        hint = Sentence(" (did you mean '{name}'?)", name="x")
        text = Sentence("{where}unknown setting '{name}'{hint}", where="", name="{y}", hint=hint)
        assert tr(text) == "未知设置“{y}”（是不是“x”？）"
    finally:
        use_language(None)


def test_the_words_are_in_the_package() -> None:
    assert (Path(__file__).resolve().parents[2] / "src" / "refold" / "locale" / "zh.json").is_file()


def test_every_sentence_that_is_printed_goes_through_the_words() -> None:
    assert list_untranslated() == [], "write tr(…) around it, and its Chinese into refold/locale/zh.json"


def test_a_provider_that_cannot_be_reached_is_reported_in_chinese(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.agent.ask.choose_pause", lambda *_: 0.0)
    said = shell.refold("chat", "-m", "x", "--base-url", "http://127.0.0.1:9/v1", "hi", **ZH).err
    assert "无法连接 x @ http://127.0.0.1:9/v1" in said
    assert find_english(said) == []
