"""Messages of every shape, and what the column ``messages.content`` says of each."""

from collections.abc import Sequence

from refold.conversation.message import digest_of
from refold.ledger.align import chain_path
from refold.ledger.records import StoredMessage
from refold.ledger.sql.ledger import Ledger
from tests.rigs.talk import NOW, SESSION

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
OUT = {"type": "text", "text": "out"}
SHOWN: list[tuple[dict[str, object], str]] = [
    ({"role": "user", "content": "plain text"}, "plain text"),
    ({"role": "user", "content": "花园需要浇水 🌱"}, "花园需要浇水 🌱"),
    ({"role": "user", "name": "ada", "content": 'a "quoted" line\nand another'}, 'a "quoted" line\nand another'),
    ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 'read\n{"path": "a.py"}'),
    ({"role": "assistant", "content": "reading", "tool_calls": [CALL]}, 'reading\nread\n{"path": "a.py"}'),
    ({"role": "tool", "tool_call_id": "c1", "content": "the file"}, "the file"),
    ({"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}, "one\ntwo"),
    (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {"text": "a"}}]},
        'read\n{"text":"a"}',
    ),
    (
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [OUT]}]},
        "out",
    ),
    ({"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}, "ls\n{}"),
    ({"type": "function_call_output", "call_id": "c", "output": "a.py"}, "a.py"),
    ({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}, "hello"),
    ({"role": "user", "content": ""}, ""),
]  # fmt: skip


def put_raws(ledger: Ledger, raws: Sequence[str]) -> None:
    """Store messages with these bytes, whatever they are."""
    ledger.open_session(SESSION, NOW)
    path = ledger.read_path(SESSION)
    digests = [digest_of(f"{at} {raw}".encode()) for at, raw in enumerate(raws)]
    chained = chain_path(path, digests)
    stored = [
        StoredMessage(link.id, link.parent, digests[link.at], "user", raws[link.at].encode(), 1, NOW)
        for link in chained.new
    ]
    assert ledger.append(SESSION, stored, chained.splices, version=path.version, now=NOW) is not None
