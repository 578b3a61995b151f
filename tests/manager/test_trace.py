"""How much of the tree a request goes through: the numbers may fall, never grow."""

from pathlib import Path

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.manager import chat
from tests.rigs.tracing import traced

# Files outside the pure core. A request that needs one more has grown a layer: find out why before raising it.
NOTHING_TO_DO_MAX = 13


def test_a_request_with_nothing_to_do_stays_within_few_files(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        for count in (5, 7):
            manager.prepare_context_sync("s1", chat(count), "You are brief.")
        with traced() as trace:
            prepared = manager.prepare_context_sync("s1", chat(9), "You are brief.")
    assert prepared.messages == chat(9)
    assert len(trace.shell) <= NOTHING_TO_DO_MAX, trace.shell


def test_each_message_is_hashed_once_and_only_new_ones_are_parsed(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        with traced() as first:
            manager.prepare_context_sync("s1", chat(6))
        with traced() as second:
            manager.prepare_context_sync("s1", chat(8))
    assert first.count("digest_message") == 6
    assert first.count("parse") == 6
    assert second.count("digest_message") == 8
    assert second.count("parse") == 2
    assert second.count("read_session") == 0
