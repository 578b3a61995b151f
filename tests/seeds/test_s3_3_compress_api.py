"""S3.3: ``POST /api/chat/compress`` with provider, messages and config gives a summary."""

import re
import socket

import pytest

from refold.testing import ScriptedProvider, fail, hang, say
from tests.rigs.server import make_dialog, start_rig

BODY = {"provider": "openai", "messages": make_dialog(3, words=5), "config": {"model": "scripted-1"}}


@pytest.fixture
def ask(tmp_path, empty_home):
    def ask(body, script="The user asked about three files; all are fine.", config=None, **headers):
        with start_rig(tmp_path / "w", script, config=config) as rig:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return rig.http.post("/api/chat/compress", json=body, headers=named), rig.provider.requests

    return ask


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_s3_3_messages_in_a_summary_out(ask, provider):
    answer, requests = ask({**BODY, "provider": provider})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"summary": "The user asked about three files; all are fine."}
    assert "file_2.py" in requests[-1].prompt


def test_s3_3_the_temperature_is_low_whatever_the_config_says(ask):
    _, requests = ask({**BODY, "config": {"model": "scripted-1", "temperature": 1.9}})
    assert requests[-1].json["temperature"] == 0.2


@pytest.mark.parametrize("missing", ["provider", "messages", "config"])
def test_s3_3_a_missing_field_is_400(ask, missing):
    answer, requests = ask({name: value for name, value in BODY.items() if name != missing})
    assert answer.status_code == 400
    assert answer.json()["kind"] == "FormatError"
    assert missing in answer.json()["error"]
    assert requests == []


@pytest.mark.parametrize("body", [{**BODY, "messages": []}, {**BODY, "provider": ""}, {**BODY, "config": None}])
def test_s3_3_an_empty_field_is_400(ask, body):
    assert ask(body)[0].status_code == 400


@pytest.mark.parametrize("name", ["http://127.0.0.1:1/v1", "https://elsewhere.example", "azure", "127", "api"])
def test_s3_3_a_client_can_never_name_a_url(ask, name):
    with ScriptedProvider() as elsewhere:
        for given in (name, elsewhere.url):
            config = {"model": "scripted-1", "baseUrl": elsewhere.url, "base_url": elsewhere.url}
            answer, requests = ask({**BODY, "provider": given, "config": config})
            assert answer.status_code == 400
            assert requests == []
        answer, _ = ask({**BODY, "config": {"model": "scripted-1", "baseUrl": elsewhere.url}})
        assert answer.status_code == 200
        assert elsewhere.requests == []


def test_s3_3_a_provider_may_be_named_as_its_address_is(tmp_path, empty_home, monkeypatch):
    """A chat says ``deepseek``; the gateway knows it as the upstream at api.deepseek.example."""
    monkeypatch.setattr("socket.getaddrinfo", lookup_here(socket.getaddrinfo))
    with ScriptedProvider("The user asked about three files.") as there, ScriptedProvider("By the small one.") as small:
        url = there.openai_url.replace("127.0.0.1", "api.deepseek.localhost")
        own = small.openai_url.replace("127.0.0.1", "qwen.localhost")
        config = {"compact_model": "small-1", "compact_url": own}
        with start_rig(tmp_path / "w", config=config, settings={"openai_upstream": url}) as rig:
            for name in ("deepseek", "DeepSeek", "OpenAI"):
                answer = rig.http.post("/api/chat/compress", json={**BODY, "provider": name})
                assert answer.json() == {"summary": "The user asked about three files."}, answer.text
            answer = rig.http.post("/api/chat/compress", json={**BODY, "provider": "qwen"})
            assert answer.json() == {"summary": "By the small one."}
            refused = rig.http.post("/api/chat/compress", json={**BODY, "provider": "mistral"})
    assert refused.status_code == 400
    assert refused.json()["error"] == (
        "there is no provider 'mistral'; configured are openai, deepseek, anthropic, qwen"
    )


def lookup_here(resolve):
    def resolve_here(host, *rest, **named):
        return resolve("127.0.0.1" if ".localhost" in str(host) else host, *rest, **named)

    return resolve_here


@pytest.mark.parametrize(
    ("body", "script", "status", "words"),
    [
        ({**BODY, "provider": "azure"}, "", 400, "没有名为 'azure' 的提供方；已配置的有 openai, anthropic"),
        ({"provider": "openai"}, "", 400, "缺少字段或字段为空：messages, config"),
        ({**BODY, "messages": []}, "", 400, "缺少字段或字段为空：messages"),
        ({**BODY, "config": {}}, "", 400, "缺少 config.model，也没有为摘要配置模型"),
        (BODY, say("  "), 502, "返回了空的回答"),
        (BODY, fail(401, "no"), 502, "检查密钥"),
    ],
)
def test_s3_3_errors_are_in_the_callers_language(ask, body, script, status, words):
    answer, _ = ask(body, script, accept_language="zh-CN,zh;q=0.9,en;q=0.5")
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert answer.json()["kind"]
    answer, _ = ask(body, script, accept_language="en-GB,en;q=0.9,zh;q=0.5")
    assert not re.search("[\u4e00-\u9fff]", answer.json()["error"])


def test_s3_3_the_clients_own_key_goes_to_the_upstream(ask):
    _, requests = ask(BODY, authorization="Bearer sk-own-key-of-the-client")
    assert requests[-1].headers["authorization"] == "Bearer sk-own-key-of-the-client"


def test_s3_3_an_upstream_that_fails_is_said_so(ask):
    answer, _ = ask(BODY, fail(500, "broken"))
    assert answer.status_code == 503
    answer, _ = ask(BODY, fail(401, "no"))
    assert answer.status_code == 502
    answer, _ = ask(BODY, say("   "))
    assert answer.status_code == 502


def test_s3_3_the_call_has_a_time_limit_of_its_own(ask, monkeypatch):
    from refold.server.api import sidecar

    assert sidecar.TIMEOUT_S == 30.0
    monkeypatch.setattr(sidecar, "TIMEOUT_S", 0.3)
    answer, _ = ask(BODY, hang(20))
    assert answer.status_code == 503


def test_s3_3_secrets_are_masked_before_a_model_reads_them(ask):
    secret = "sk-proj-" + "a1B2c3D4" * 6
    messages = [{"role": "user", "content": f"my key is {secret}"}, {"role": "assistant", "content": "noted"}]
    _, requests = ask({**BODY, "messages": messages})
    assert secret not in requests[-1].body.decode()


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("said", "demands"),
    [
        ("the file is fine", ("500 characters", "plain text", "changes to code", "errors", "only what matters")),
        ("这个文件没有问题，请继续检查下一个文件", ("500", "纯文本", "代码", "错误")),
    ],
)
def test_s3_3_and_s3_12_one_system_and_one_user_message_with_the_documents_demands(ask, provider, said, demands):
    messages = [{**one, "content": f"{one['content']} {said * 3}"} for one in BODY["messages"]]
    _, requests = ask({**BODY, "provider": provider, "messages": messages})
    system, user = read_pair(requests[-1].json)
    for demand in demands:
        assert demand in system
    assert "file_2.py" in user
    assert "file_2.py" not in system


def read_pair(sent):
    """Return the system prompt and the one user message of a request to either provider."""
    *system, user = sent["messages"]
    assert user["role"] == "user"
    if "system" in sent:
        assert system == []
        said = sent["system"]
        return said if isinstance(said, str) else said[0]["text"], read_text(user)
    (first,) = system
    assert first["role"] == "system"
    return first["content"], read_text(user)


def read_text(message):
    content = message["content"]
    return content if isinstance(content, str) else content[0]["text"]


@pytest.mark.parametrize("preset", ["hybrid", "default"])
def test_s3_10_a_prompt_of_ones_own_is_used_over_http(ask, preset):
    config = {"preset": preset, "fold": {"prompt": "Tell it as a haiku of {chars} characters."}}
    answer, requests = ask(BODY, config=config)
    assert answer.status_code == 200
    system, user = read_pair(requests[-1].json)
    assert system.startswith("Tell it as a haiku of 500 characters.")
    assert "plain text" not in system
    assert "file_2.py" in user


@pytest.mark.parametrize("name", ["prompt", "compressionPrompt"])
def test_s3_10_a_prompt_in_the_request_is_used_before_the_configured_one(ask, name):
    body = {**BODY, "config": {"model": "scripted-1", name: "只写一句话，用押韵的形式。"}}
    answer, requests = ask(body, script="长" * 900, config={"preset": "hybrid", "fold": {"prompt": "A haiku."}})
    assert answer.json() == {"summary": "长" * 900}, "a custom prompt sets its own length"
    system, user = read_pair(requests[-1].json)
    assert system.startswith("只写一句话，用押韵的形式。")
    assert "haiku" not in system
    assert "file_2.py" in user
    assert ask({**BODY, "config": {"model": "scripted-1", name: "x" * 20_001}})[0].status_code == 400


def test_s3_12_an_answer_has_at_most_500_characters_and_no_opening_of_its_own(ask):
    sentence = "The user asked about one more file. "
    answer, _ = ask(BODY, script=f"[Context Summary]\n\n{sentence * 20}")
    summary = answer.json()["summary"]
    assert summary == (sentence * 13).strip()
    assert len(summary) <= 500


def test_s2_4_and_s1_8_the_documents_names_are_public():
    import refold

    assert refold.CompactResult.__name__ == "CompactResult"
    assert {"turn_range", "key_points"} <= set(refold.ContextSummary.__dataclass_fields__)
    assert hasattr(refold.MarkdownSync, "append_to_daily_log")
