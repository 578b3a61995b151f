"""The hybrid document behind the gateway, in a chat that grows message by message with tools."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.growing import work
from tests.rigs.server import Rig, make_body, start_rig, wait_for

HYBRID = {"preset": "hybrid", "window": 16_000, "background": False}
KEEP_LAST = 6
WORDS = "The user asked for the parts to be read; the assistant read them."


def talk(rig: Rig, language: str) -> list[list[dict[str, Any]]]:
    """Send a growing conversation; return the messages of each request that went upstream."""
    sent = []
    for history in work(turns=3, steps=8, language=language):
        answer = rig.post("openai-chat", make_body("openai-chat", history), authorization="Bearer sk-of-the-client")
        assert answer.status_code == 200
        sent.append(rig.provider.requests[-1].json["messages"])
    return sent


@pytest.mark.parametrize("language", ["en", "zh"])
def test_s3_1_as_installed_the_fallback_says_what_it_leaves_out_and_the_log_names_the_switch(
    tmp_path: Path, empty_home: Path, caplog: pytest.LogCaptureFixture, language: str
) -> None:
    with caplog.at_level(logging.WARNING, "refold.server"), start_rig(tmp_path / "w", config=HYBRID) as rig:
        sent = talk(rig, language)
        assert all("authorization" in one.headers for one in rig.provider.requests)
        assert len(rig.provider.requests) == len(sent), "no request of the gateway's own spends the client's key"
        folded = [rig.manager.status(one.id).messages_folded for one in rig.manager.ledger.list_sessions()]
    (logged,) = (one for one in caplog.records if one.message == "rules write the summaries")
    assert "gateway.summaries: client" in logged.fields["said"]  # type: ignore[attr-defined]
    texts = [str(one["content"]) for one in sent[-1]]
    records = [text for text in texts if text.startswith("[Context Summary]\n\n[Truncated Summary]")]
    assert records, "the chat grew beyond eighty per cent of the window"
    text = "\n".join(records)
    assert "\n[user]: Task 0" in text
    lines = re.findall(r"^\[(?:user|assistant|tool)\]: .*$", text, re.M)
    left_out = sum(map(int, re.findall(r"^\[\D{0,3}(\d+) [^\]]+\]$", text, re.M)))
    assert [len(lines) + left_out] == folded, "every folded message has its line or is counted"
    assert all(len(line) < 130 for line in lines)
    assert all(line.endswith("...") for line in lines if "plot" in line), "every cut is marked"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_s3_1_where_it_is_allowed_the_conversations_model_writes_plain_text(
    tmp_path: Path, empty_home: Path, language: str
) -> None:
    with start_rig(tmp_path / "w", WORDS, config=HYBRID, settings={"summaries": "client"}) as rig:
        sent = talk(rig, language)
        wait_for(lambda: len(rig.provider.requests) > len(sent))
    summaries = [one[0]["content"] for one in sent if str(one[0]["content"]).startswith("[Context Summary]\n\n")]
    assert summaries
    assert not any("#" in one or "[Truncated Summary]" in one for one in summaries), "plain text stays plain"
    assert all(WORDS in one for one in summaries)


def test_s3_9_the_page_names_the_switch(tmp_path: Path, empty_home: Path) -> None:
    from refold.sentences import tr
    from refold.server.api.interface import Access
    from refold.server.auth import Caller
    from refold.web.context import read_context

    with start_rig(tmp_path / "w", config=HYBRID) as rig:
        talk(rig, "zh")
        (row,) = rig.manager.ledger.list_sessions()
        missing = read_context(Access(rig.application, Caller("")), row.id).missing
        assert missing is not None
        assert "gateway.summaries: client" in tr(missing, "zh")
    with start_rig(tmp_path / "v", config=HYBRID, settings={"summaries": "client"}) as rig:
        talk(rig, "en")
        (row,) = rig.manager.ledger.list_sessions()
        assert read_context(Access(rig.application, Caller("")), row.id).missing is None
