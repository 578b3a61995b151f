"""Fidelity by property: fuzzed requests arrive as they were sent, streams arrive as they were cut."""

import gzip
import json
import random
import string

import pytest

from refold.server.upstream import AnswerReader
from refold.server.wires import ANTHROPIC, CHAT, RESPONSES
from refold.testing import ScriptedReply, ScriptedUsage
from refold.testing.answers import WIRES, encode_event
from tests.rigs.effort import up_to
from tests.rigs.server import PATHS, make_body, make_dialog, pack, wait_for
from tests.server.raw_upstream import RawUpstream, play_chunks

ODD = [
    "",
    "é",
    "日本語",
    "😀",
    "\\ud800",
    "\\u0000",
    "\u2028",
    "</script>",
    "data: [DONE]\n\n",
    "x" * 300,
    "⟨m:4f2a91c3⟩",
]
READERS = {"openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic": ANTHROPIC}
STREAM = {"content-type": "text/event-stream; charset=utf-8"}


def write_value(dice: random.Random, depth: int = 0) -> str:
    """Return random JSON text in a random style of writing."""
    kind = dice.randrange(8 if depth < 3 else 5)
    gap = dice.choice(["", " ", "\n", "\t"])
    if kind == 0:
        return dice.choice(["1", "-0", "1.50", "1e5", "12345678901234567890123", "0.1E-7", "-3"])
    if kind == 1:
        return dice.choice(["true", "false", "null"])
    if kind <= 4:
        text = (
            dice.choice(ODD) if dice.random() < 0.5 else "".join(dice.choices(string.printable, k=dice.randrange(20)))
        )
        return (
            json.dumps(text, ensure_ascii=dice.random() < 0.5).replace("\\\\u", "\\u").replace("\\\\ud800", "\\ud800")
        )
    if kind == 5:
        return f"[{gap}{f',{gap}'.join(write_value(dice, depth + 1) for _ in range(dice.randrange(4)))}{gap}]"
    pairs = [f"{json.dumps('k' + str(n))}{gap}:{gap}{write_value(dice, depth + 1)}" for n in range(dice.randrange(4))]
    return f"{{{gap}{f',{gap}'.join(pairs)}{gap}}}"


def write_body(dice: random.Random, wire: str) -> bytes:
    """Return a request as no client would write it: odd white space, odd fields, sometimes not even JSON."""
    if dice.random() < 0.05:
        return bytes(dice.randrange(256) for _ in range(dice.randrange(40)))
    gap = dice.choice(["", " ", "\n  "])
    fields = [f'"x{n}":{gap}{write_value(dice)}' for n in range(dice.randrange(4))]
    fields.append('"model":"scripted-1"')
    messages = []
    for _ in range(dice.randrange(6)):
        role = dice.choice(["user", "assistant", "system", "tool", "developer", "nobody"])
        content = write_value(dice, 2)
        messages.append(f'{{"role":"{role}",{gap}"content":{content},"extra":{write_value(dice, 2)}}}')
    key = "input" if wire == "openai-responses" else "messages"
    fields.append(f'"{key}":{gap}[{", ".join(messages)}]')
    dice.shuffle(fields)
    return f"{{{gap}{f',{gap}'.join(fields)}{gap}}}".encode("utf-8", "surrogatepass")


def check_fuzzed(start, count, seed):
    dice = random.Random(seed)
    answer = b'{"ok": true, "usage": {"input_tokens": 10, "output_tokens": 2}}'
    with RawUpstream(play_chunks([answer], "application/json")) as upstream:
        rig = start(upstream=upstream.url)
        for number in range(count):
            wire = dice.choice(list(PATHS))
            body = write_body(dice, wire)
            got = rig.post(wire, body)
            assert got.status_code == 200, (number, body, got.text)
            assert upstream.requests[-1].partition(b"\r\n\r\n")[2] == body, number
            assert got.content == answer
            upstream.requests.clear()


def test_fuzzed_requests_go_upstream_byte_for_byte(start):
    check_fuzzed(start, up_to(300, quick=60), seed=1)


@pytest.mark.slow
def test_ten_thousand_fuzzed_requests_go_upstream_byte_for_byte(start):
    check_fuzzed(start, 10_000, seed=2)


def write_stream(wire: str, text: str) -> bytes:
    reply = ScriptedReply(text, thinking="想一想 " * 3)
    request = {"model": "scripted-1", "stream_options": {"include_usage": True}}
    events = WIRES[wire][1](reply, ScriptedUsage(1_234, 56), request)
    return b"".join(encode_event(*event) for event in events)


def cut_anywhere(dice: random.Random, whole: bytes) -> list[bytes]:
    cuts = sorted({dice.randrange(1, len(whole)) for _ in range(dice.randrange(1, 60))})
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_stream_cut_at_any_byte_arrives_as_it_was_and_its_usage_is_read(start, wire):
    dice = random.Random(wire)
    whole = write_stream(wire, "日本語のテキスト 😀 with\r\nlines — " * 20)
    chunks: list[bytes] = []
    with RawUpstream(lambda connection: play_chunks(chunks)(connection)) as upstream:
        rig = start(upstream=upstream.url)
        for number in range(25):
            chunks[:] = cut_anywhere(dice, whole)
            body = make_body(wire, [{"role": "user", "content": f"number {number}"}], stream=True)
            got = rig.post(wire, body, x_refold_session=f"s{number}")
            assert got.content == whole
        wait_for(lambda: all(rig.manager.ledger.read_usage(f"s{number}") for number in range(25)))
        usages = [rig.manager.ledger.read_usage(f"s{number}")[0] for number in range(25)]
    assert {usage.input_tokens for usage in usages} == {1_234}


@pytest.mark.parametrize("wire", list(PATHS))
@pytest.mark.parametrize("coding", ["", "gzip", "deflate", "br", "zstd", "compress"])
def test_usage_is_read_whatever_the_bytes_are_cut_at(wire, coding):
    whole = write_stream(wire, "日本語 text " * 50)
    encoded = pack(coding, whole)
    for size in (1, 2, 3, 7, 64, 5_000):
        reader = AnswerReader(READERS[wire].answer(), {**STREAM, "content-encoding": coding})
        for at in range(0, len(encoded), size):
            reader.feed(encoded[at : at + size])
        answered = reader.finish()
        assert answered.has_usage is (coding != "compress")
        if answered.has_usage:
            counted = answered.usage.get("prompt_tokens", answered.usage.get("input_tokens"))
            assert counted == 1_234


def test_a_reader_gives_up_on_what_never_ends():
    reader = AnswerReader(CHAT.answer(), STREAM)
    for _ in range(20):
        reader.feed(b"x" * 1_000_000)
    assert not reader.finish().has_usage
    bomb = gzip.compress(b"0" * 100_000_000)
    reader = AnswerReader(CHAT.answer(), {"content-type": "application/json", "content-encoding": "gzip"})
    reader.feed(bomb)
    assert not reader.finish().has_usage


def test_a_reader_keeps_figures_alone_of_a_stream():
    reader = AnswerReader(CHAT.answer(), STREAM)
    call = {"index": 0, "function": {"name": "run", "arguments": "{"}}
    chunk = {"choices": [{"index": 0, "delta": {"content": "a", "tool_calls": [call]}, "finish_reason": None}]}
    for _ in range(100):
        reader.feed(b"data: %s\n\n" % json.dumps(chunk).encode())
    reader.feed(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7}}\n\n')
    answered = reader.finish()
    assert (answered.usage, answered.finish_reason) == ({"prompt_tokens": 7}, "stop")
    assert (answered.chars, answered.calls) == (0, [])


@pytest.mark.parametrize("number", ["1e999", "-1e400", "NaN", "Infinity"])
def test_a_request_with_a_number_that_nobody_can_write_again_goes_through_as_it_came(start, number):
    rig = start(config={"window": 8_000, "reserve": 1_000})
    body = json.dumps(make_body("anthropic", make_dialog(30), metadata={"odd": 7.25})).encode()
    odd = body.replace(b"7.25", number.encode())
    answer = rig.post("anthropic", odd)
    assert rig.provider.requests[-1].body == odd
    assert answer.headers["x-refold-reason"] == "not-json"
