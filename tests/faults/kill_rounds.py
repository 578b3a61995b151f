"""Kills real processes in the middle of their work, again and again, and checks what they left.

Run as a script: WORKSPACE ROUNDS. A child appends, prepares, undoes and redoes, and says what was acknowledged; the
parent kills it at a random moment, opens the workspace and checks that all of it is there and whole.
"""

import contextlib
import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from refold import CompressionConfig, ContextCompressionManager, HandleUnknown

CONFIG = CompressionConfig.preset("offload").replace(
    window=3_000, reserve=300, compact_trigger_threshold=300, threshold_rounds=14
)

WORDS_S = 20.0


def work(workspace: str, start: int, say: int) -> None:
    """Go on with the session until killed; tell every acknowledged message."""
    manager = ContextCompressionManager(CONFIG, workspace)
    manager._keeper.leases.seconds = 0.2  # A killed child leaves its lease; the next one is not to wait for it.
    number = start
    while True:
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        lines = "\n".join(f"{number} line {line} of the output" for line in range(12))
        manager.append("s1", [{"role": "assistant", "content": None, "tool_calls": [call]}])
        os.write(say, f"{2 * number}\n".encode())
        manager.append("s1", [{"role": "tool", "tool_call_id": f"c{number}", "content": lines}])
        os.write(say, f"{2 * number + 1}\n".encode())
        manager.prepare_context_sync("s1")
        # By hand as well: an undo that was cut short would else stop the automatic ones for good.
        if number % 3 == 1:
            manager.compress("s1")
        if number % 3 == 2:
            with contextlib.suppress(HandleUnknown):
                manager.undo("s1")
                manager.redo("s1")
        number += 1


def run_child(workspace: str, start: int, lifetime_s: float, words: int) -> int:
    """Let a child work for a while, kill it, and return the highest message that was confirmed as stored.

    The while begins after so many words of it, so that a busy machine gets as far as a quiet one.
    """
    listen, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(listen)
            work(workspace, start, say)
        finally:
            os._exit(3)
    os.close(say)
    told = b""
    give_up_at = time.monotonic() + WORDS_S
    while told.count(b"\n") < words and select.select([listen], [], [], max(0.0, give_up_at - time.monotonic()))[0]:
        chunk = os.read(listen, 65_536)
        if not chunk:
            break  # It ended by itself, which is told below.
        told += chunk
    time.sleep(lifetime_s)
    os.kill(pid, signal.SIGKILL)
    while chunk := os.read(listen, 65_536):
        told += chunk
    os.close(listen)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"the child ended before it was killed: {status}"
    return max((int(line) for line in told.split()), default=-1)


def check(workspace: str, acknowledged: int) -> int:
    """Check all that must hold after a crash; return how many messages there are."""
    manager = ContextCompressionManager(CONFIG, workspace)
    if manager.ledger.read_session("s1") is None:
        assert acknowledged < 0
        return 0
    findings = manager.verify()
    assert findings == [], findings
    stored = manager.ledger.read_messages("s1")
    assert len(stored) > acknowledged, f"{len(stored)} messages, {acknowledged + 1} were acknowledged"
    for at, message in enumerate(stored):
        raw = json.loads(message.raw)
        assert f"c{at // 2}" in (raw.get("tool_call_id"), raw.get("tool_calls", [{}])[0].get("id")), at
    for path in Path(workspace, "memory").glob("*.md"):
        assert path.read_text(encoding="utf-8").endswith("\n")
    manager.close()
    return len(stored)


def count_compressions(workspace: str) -> int:
    with ContextCompressionManager(CONFIG, workspace) as manager:
        row = manager.ledger.read_session("s1")
    return row.compression_count if row else 0


def main() -> None:
    workspace, rounds = sys.argv[1], int(sys.argv[2])
    seed = int(os.environ.get("REFOLD_KILL_SEED", time.time_ns() % 2**32))
    chance = random.Random(seed)
    count = compressions = number = 0

    def is_over() -> bool:
        """Return whether all rounds ran; more run where a busy machine did not get as far as compressing."""
        has_compressed = compressions + count_compressions(workspace) > rounds // 4
        return number >= rounds and (has_compressed or number >= 5 * rounds + 10)

    while not is_over():
        acknowledged = run_child(workspace, (count + 1) // 2, chance.random() * 0.15, chance.randrange(20))
        count = check(workspace, acknowledged)
        if count % 2:
            manager = ContextCompressionManager(CONFIG, workspace)
            at = count // 2
            manager.append("s1", [{"role": "tool", "tool_call_id": f"c{at}", "content": "it was cut short"}])
            manager.close()
            count += 1
        if count > 200:
            compressions += count_compressions(workspace)
            ContextCompressionManager(CONFIG, workspace).delete_session("s1")
            count = 0
        print(f"round {number}: {count} messages", flush=True)
        number += 1
    compressions += count_compressions(workspace)
    assert compressions > rounds // 4, f"only {compressions} compressions: the rounds did not reach what they are for"
    print(f"{rounds} rounds and {number - rounds} more, {compressions} compressions, seed {seed}")


if __name__ == "__main__":
    main()
