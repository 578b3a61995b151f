"""The presets say what their documents say, and each file says why."""

import re
from importlib.resources import files

import pytest

from refold import compress
from refold.config import PRESETS, CompressionConfig

DOCUMENTS = {"archive": "S0", "importance": "S1", "offload": "S2", "hybrid": "S3", "turns": "S4"}


def read_preset(name: str) -> str:
    return files("refold").joinpath("presets", f"{name}.yaml").read_text(encoding="utf-8")


def test_there_is_one_file_for_each_preset() -> None:
    shipped = {item.name for item in files("refold").joinpath("presets").iterdir() if item.name.endswith(".yaml")}
    assert shipped == {f"{name}.yaml" for name in PRESETS}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_key_of_a_documents_preset_names_its_row_or_its_law(name: str) -> None:
    told = []
    for line in read_preset(name).splitlines():
        key = re.match(r"\s*(\w+): \S", line)
        if key and not re.search(rf"#.*({DOCUMENTS[name]}\.\d+|\(L\d+\))", line):
            told.append(line.strip())
    # Values that no document asks for are marked as our own.
    assert [line for line in told if not line.startswith(("index_tokens_max", "style: sections"))] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_preset_states_only_what_differs_from_default(name: str) -> None:
    default = CompressionConfig()
    config = CompressionConfig.preset(name)
    for key in ("model", "reserve", "tokenizer", "language", "warn_ratio"):
        assert getattr(config, key) == getattr(default, key)
    assert config.window == (64_000 if name == "turns" else None), "only document S4 names a window"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_long_chat_fit_without_a_model(name: str) -> None:
    messages = [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"Message {at} about item {at * 37}. " * 12}
        for at in range(121)
    ]
    prepared = compress(messages, 3_000, preset=name)
    assert prepared.total_tokens <= 3_000
    assert prepared.messages[-1] is messages[-1]


@pytest.mark.parametrize(
    ("name", "role", "opening"),
    [
        ("archive", "system", "[历史对话摘要]"),
        ("offload", "user", "[Compressed History]\n\n"),
        ("hybrid", "assistant", "[Context Summary]\n\n[Truncated Summary]\n"),
        ("turns", "assistant", "[COMPACTED_CONTEXT]"),
    ],
)
def test_the_summary_has_the_role_and_the_opening_of_its_document(name: str, role: str, opening: str) -> None:
    messages = [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"Message {at} about item {at * 37}. " * 12}
        for at in range(121)
    ]
    prepared = compress(messages, 9_000, preset=name)
    summary = next(message for message in prepared.messages if not any(message is one for one in messages))
    assert isinstance(summary, dict)
    assert summary["role"] == role
    assert summary["content"].startswith(opening)
