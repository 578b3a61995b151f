"""Secrets are masked, everything else stays: planted keys of common shapes, and the hashes and ids they resemble.

Every secret here is put together from pieces, so that no file of this project contains one.
"""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.llm.redact import redact_text

MIXED = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7bC9dE1fG3"
HEX = "0123456789abcdef" * 4
PLANTED = {
    "openai": "sk-" + MIXED,
    "openai project": "sk-proj-" + MIXED[:20] + "_" + MIXED[20:],
    "deepseek": "sk-" + HEX[:32],
    "anthropic": "sk-ant-" + "api03-" + MIXED,
    "openrouter": "sk-or-v1-" + HEX,
    "groq": "gsk" + "_" + MIXED,
    "xai": "xai" + "-" + MIXED,
    "aws id": "AKI" + "A" + "J4EXAMPL3KEY7QRS"[:16].replace("EXAMPL", "QWERTY"),
    "github": "gh" + "p_" + MIXED[:36],
    "github fine": "github" + "_pat_" + MIXED,
    "gitlab": "glpa" + "t-" + MIXED[:20],
    "slack": "xox" + "b-123456789012-" + MIXED[:24],
    "slack webhook": "hooks.slack" + ".com/services/T000AAA11/B000BBB22/" + MIXED[:24],
    "google": "AIz" + "a" + MIXED[:35],
    "google token": "ya2" + "9." + MIXED,
    "stripe": "sk" + "_live_" + MIXED[:24],
    "stripe hook": "whs" + "ec_" + MIXED[:32],
    "hugging face": "hf" + "_" + MIXED[:34],
    "npm": "np" + "m_" + MIXED[:36],
    "package index": "pypi" + "-AgEIcHlwaS" + MIXED + MIXED,
    "sendgrid": "S" + "G." + MIXED[:22] + "." + MIXED[:43],
    "twilio": "S" + "K" + HEX[:32],
    "digitalocean": "do" + "p_v1_" + HEX,
    "databricks": "dap" + "i" + HEX[:32],
    "shopify": "shp" + "at_" + HEX[:32],
    "age": "AGE-SECRET" + "-KEY-1" + "Q3" * 29,
    "telegram": "123456789" + ":AA" + MIXED[:33],
    "jwt": "ey" + "J" + MIXED[:30] + ".ey" + "J" + MIXED[:40] + "." + MIXED[:43],
}
# The text, and the part of it that has to go.
NAMED = [
    ('password="%s"', "hunter2!x"),
    ("DB_PASSWORD=%s", "s3cr3t-Pw"),
    ("export PGPASSWORD='%s'", "Tr0ub4dor&3"),
    ("passwd: %s", "c0rrecthorse"),
    ('{"username": "bob", "password": "%s"}', "bob12345"),
    ("{'pwd': '%s'}", "x9!kkkk"),
    ('"{\\"password\\": \\"%s\\"}"', "nested-1-pw"),
    ("my password is %s", "Summer2026!"),
    ("我的密码是%s，别告诉别人", "Qwe123456"),
    ("密码：%s", "abc12345"),
    ("postgres://app:%s@db.example:5432/main", "p4ss"),
    ("redis://:%s@cache:6379/0", "onlypassword"),
    ("https://x-access-token:%s@git.example/repo.git", "abcdef"),
    ("mysql --user root --password %s", "r00tpw!"),
    ("curl -u admin:%s https://host.example", "adm1n!"),
    ("Authorization: Bearer %s", MIXED),
    ("authorization: basic %s", "dXNlcjpwYXNzd29yZDE="),
    ("api_key = '%s'", MIXED[:32]),
    ("API-Key: %s", HEX[:32]),
    ("x-api-key: %s", MIXED[:40]),
    ("AWS_SECRET_ACCESS_KEY=%s", "wJalr/XUtnFEMI7K1" + "MDENGbPxRfiCY1EX3KEY"),
    ("client_secret: '%s'", MIXED[:30]),
    ("AccountKey=%s;EndpointSuffix=x", MIXED + "0123=="),
    ("https://host.example/file?sig=%s&x=1", MIXED[:40]),
    ("--token %s", "t0ken-" + MIXED[:20]),
]
KEPT = [
    "commit 3f2b8c1d9e4a7f60b5c2d1e0f9a8b7c6d5e4f3a2",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "md5 d41d8cd98f00b204e9800998ecf8427e  file.txt",
    "id 3f2504e0-4f89-11d3-9a0c-0305e82c3301 was found",
    "toolu_01A09q90qw90lq917835lq9 and call_9pw3kZk2Yx8vQ1",
    "password: str = Field(min_length=8)",
    "def login(username: str, password: str) -> Token:",
    "password = os.environ['DB_PASSWORD']",
    "password=$DB_PASSWORD",
    "password: ${{ secrets.DB_PASSWORD }}",
    'password="<your password here>"',
    "api_key = get_api_key(settings.provider)",
    "api_key=self.config.api_key_for_openai2",
    "token = tokenizer.encode(text)[0]",
    '"max_tokens": 4096, "token": "eos", "tokens": 1234567890123456789',
    "next_page_token: aB3dE5fG7hI9jK1lM3nO5pQ7",
    "nextPageToken=aB3dE5fG7hI9jK1lM3nO5pQ7",
    "csrf_token = aB3dE5fG7hI9jK1lM3nO5pQ7",
    "The password must have 8 characters or more.",
    "the secret: keep functions short and files small",
    "keyboard=qwerty123456789012345",
    "http://localhost:8080/path and https://host:443/@scope/pkg",
    "git@github.com:owner/repo.git",
    "user@example.com:/var/log",
    "docker run -u 1000:1000 image",
    "sk-loading-spinner-wrapper-container",
    "task-12345678901234567890123456",
    "risk-aB3dE5fG7hI9jK1lM3nO5pQ7rS9",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYI\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "订单号 20261115123456789 的密码已重置",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7",
    "assert hash_password(value) == expected_password_hash1",
    "",
]


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("around", ["%s", "the key is %s, use it", '{"k":"%s"}', "a=%s\n", "（%s）", "`%s`"])
def test_a_key_of_a_known_shape_is_masked_anywhere(name: str, around: str) -> None:
    masked = redact_text(around % PLANTED[name])
    assert PLANTED[name][-20:] not in masked
    assert "[redacted: " in masked
    assert masked.startswith(around.partition("%s")[0])
    assert masked.endswith(around.partition("%s")[2])


@pytest.mark.parametrize(("text", "secret"), NAMED)
def test_what_is_named_a_secret_is_masked_and_its_name_stays(text: str, secret: str) -> None:
    masked = redact_text(text % secret)
    assert secret not in masked
    before, _, after = text.partition("%s")
    assert masked.startswith(before)
    assert masked.endswith(after)


@pytest.mark.parametrize("text", KEPT)
def test_what_only_resembles_a_secret_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n"])
def test_a_private_key_goes_whole(kind: str, line_end: str) -> None:
    begin, end = f"-----BEGIN {kind}PRIVATE" + " KEY-----", f"-----END {kind}PRIVATE" + " KEY-----"
    block = line_end.join([begin, *["MIIEpAIBAAKCAQEA" * 4] * 20, end])
    assert redact_text(f"before {block} after") == "before [redacted: private key] after"
    cut = block[:400]
    assert "MIIE" not in redact_text(f"before {cut}")
    assert redact_text(f"{block} x {block}") == "[redacted: private key] x [redacted: private key]"


HARD = st.sampled_from(
    [
        "password",
        "=",
        ":",
        '"',
        "'",
        " ",
        "token",
        "sk-",
        "a1B2c3D4e5F6g7H8",
        "://",
        "@",
        "\n",
        "[redacted: key]",
        "-----",
    ]
)


@given(st.lists(st.one_of(HARD, st.text(max_size=8)), max_size=30).map("".join))
def test_masking_twice_is_masking_once(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@given(st.text(max_size=200))
def test_any_text_can_be_masked(text: str) -> None:
    assert isinstance(redact_text(text + "\ud800"), str)


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN PRIVATE" + " KEY-----",
        "password=",
        '"password":"',
        "://a:",
        "ey" + "J",
        "sk-",
        "api_key ",
        "?token=",
        "bearer ",
    ],
)
def test_text_made_to_be_slow_is_not(piece: str) -> None:
    # Quadratic search would take minutes here and run into the limit on every test.
    assert redact_text(piece * (400_000 // len(piece))) is not None


def list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from list_texts(inner)


@pytest.mark.parametrize("name", ["swe_mini", "tau_airline", "agent_native_misc"])
def test_recorded_sessions_lose_no_hash_no_id_and_no_line_of_code(shared_data: Path, name: str) -> None:
    with gzip.open(shared_data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        whole = [next(lines) for _ in range(12)]
    for line in whole:
        for text in list_texts(json.loads(line)["messages"]):
            assert re.findall(r"\[redacted: [^]]+\]", redact_text(text)) == []
