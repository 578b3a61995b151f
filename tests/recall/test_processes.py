"""The index beside other processes: several that index at once, and one that is killed in the middle."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refold.ledger.place import index_path
from refold.recall.options import RecallOptions
from refold.recall.recall import Recall
from tests.rigs.recall import Workspace

INDEXER = """
import sys
from pathlib import Path
from refold.ledger.sqlite import SqliteLedger
from refold.ledger.place import index_path
from refold.recall.options import RecallOptions
from refold.recall.recall import Recall
path = Path(sys.argv[1])
recall = Recall(SqliteLedger(path), index_path(path), RecallOptions(embeddings="off"))
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    recall.recall("s", "number7")
print("done", flush=True)
"""


def start(folder: Path, rounds: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", INDEXER, str(folder / "ledger.db"), str(rounds)], stdout=subprocess.PIPE, text=True
    )


def say_many(workspace: Workspace, count: int, first: int = 0) -> None:
    workspace.say("s", *[f"message number{number} with some words" for number in range(first, first + count)])


def test_two_processes_that_index_while_a_third_appends_index_every_message_once(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    say_many(workspace, 400)
    others = [start(tmp_path, 5) for _ in range(2)]
    for at in range(10):
        say_many(workspace, 20, 400 + 20 * at)
        workspace.find("s", f"number{at}")
    for other in others:
        out, _ = other.communicate(timeout=240)
        assert (other.returncode, out.split()[-1]) == (0, "done")
    assert workspace.find("s", "number599")[0] == "message number599 with some words"
    assert workspace.recall.verify_index() == []
    with workspace.recall.index.file.read() as db:
        assert db.execute("SELECT count(*), count(DISTINCT id) FROM source").get == (600, 600)
    workspace.recall.close()
    workspace.ledger.close()


@pytest.mark.parametrize("wait_s", [0.05, *(pytest.param(wait, marks=pytest.mark.slow) for wait in (0.0, 0.15))])
def test_a_process_killed_while_it_indexes_leaves_an_index_that_verifies(tmp_path: Path, wait_s: float) -> None:
    workspace = Workspace(tmp_path)
    say_many(workspace, 3_000)
    other = start(tmp_path, 1)
    assert other.stdout is not None
    assert other.stdout.readline().strip() == "ready"
    # It is killed once some of it is stored, and then somewhere in the middle.
    until = time.monotonic() + 120
    while workspace.recall.index.find_mark("s") is None and other.poll() is None and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(wait_s)
    other.send_signal(signal.SIGKILL)
    other.wait(60)
    other.stdout.close()
    assert workspace.recall.verify_index() == []
    again = Recall(workspace.ledger, index_path(tmp_path / "ledger.db"), RecallOptions(embeddings="off"))
    assert again.recall("s", "number2999")[0].text == "message number2999 with some words"
    assert again.verify_index() == []
    again.close()
    workspace.recall.close()
    workspace.ledger.close()


def test_the_next_process_continues_unfinished_upkeep(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    say_many(workspace, 1_500)
    assert workspace.recall.keep_up("s") is False
    mark = workspace.recall.index.find_mark("s")
    assert mark is not None
    assert 1_000 <= mark.seq < 1_500
    workspace.recall.close()
    again = Recall(workspace.ledger, index_path(tmp_path / "ledger.db"), RecallOptions(embeddings="off"))
    again.upkeep.ask("s")
    again.upkeep.ask("missing")
    assert again.upkeep.join()
    mark = again.index.find_mark("s")
    assert mark is not None
    assert mark.seq == 1_500
    assert again.verify_index() == []
    again.close()
    workspace.ledger.close()


FORK = """
import os, threading, time
from refold.recall.upkeep import Upkeep
begun, may_end, parent = threading.Event(), threading.Event(), os.getpid()

def work(session_id):
    if os.getpid() == parent:
        begun.set()
        may_end.wait(60)
    done.append(session_id)
    return True

done = []
upkeep = Upkeep(work)
upkeep.ask("s")
assert begun.wait(60)
child = os.fork()
if child == 0:
    before = time.monotonic()
    upkeep.close()
    assert time.monotonic() - before < 30, "the child waits for a thread that it does not have"
    assert upkeep.ask("s") and upkeep.join() and done == ["s"]
    os._exit(0)
may_end.set()
assert os.waitpid(child, 0)[1] == 0
assert upkeep.join() and done == ["s"]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_does_its_own_background_work(project_root: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    ran = subprocess.run(command, cwd=project_root, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
