"""The index follows the ledger: after crashes, beside other processes, and when something is forgotten."""

import threading
from pathlib import Path

import apsw
import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.errors import LedgerError
from refold.recall.index import BATCH_MESSAGES
from refold.recall.recall import Recall
from tests.rigs.recall import WORDS_ONLY, Workspace


def test_new_messages_are_found_without_anybody_calling_for_it(workspace: Workspace) -> None:
    workspace.say("s", "the first is heron")
    assert workspace.find("s", "heron")
    workspace.say("s", "the second is ibis")
    assert workspace.find("s", "ibis") == ["the second is ibis", "the first is heron"]


def test_catching_up_costs_only_what_is_new(workspace: Workspace) -> None:
    workspace.say("s", *[f"message {number}" for number in range(10)])
    assert workspace.recall.refresh("s") == 10
    assert workspace.recall.refresh("s") == 0
    workspace.say("s", "one more")
    assert workspace.recall.refresh("s") == 1


def test_a_crash_between_two_batches_leaves_a_prefix_that_the_next_call_completes(workspace: Workspace) -> None:
    count = 2 * BATCH_MESSAGES + 7
    workspace.say("s", *[f"message number{number}" for number in range(count)])

    class Died(BaseException):
        pass

    class Dying:
        """Reads for the index until it dies, as a process does."""

        def __init__(self) -> None:
            self.left = 1

        def __getattr__(self, name: str) -> object:
            return getattr(workspace.ledger, name)

        def list_messages(self, session_id: str, *, after: int = 0, limit: int = 1_000) -> object:
            self.left -= 1
            if self.left < 0:
                raise Died
            return workspace.ledger.list_messages(session_id, after=after, limit=limit)

    row = workspace.ledger.read_session("s")
    assert row is not None
    with pytest.raises(Died):
        workspace.recall.index.catch_up(Dying(), row)  # type: ignore[arg-type]
    mark = workspace.recall.index.find_mark("s")
    assert mark is not None
    assert mark.seq == BATCH_MESSAGES
    assert workspace.recall.verify_index("s") == []
    assert workspace.find("s", f"number{count - 1}")
    assert workspace.recall.verify_index("s") == []


def test_every_failed_write_leaves_an_index_that_verifies(tmp_path: Path) -> None:
    for allowed in range(0, 40, 3):
        folder = tmp_path / str(allowed)
        folder.mkdir()
        workspace = Workspace(folder)
        workspace.say("s", *[f"message number{number} with words" for number in range(12)])
        left = [allowed]

        def count_down(*_: object, left: list[int] = left) -> int:
            left[0] -= 1
            return apsw.SQLITE_DENY if left[0] < 0 else apsw.SQLITE_OK

        with workspace.recall.index.file.read() as db:
            db.authorizer = count_down
        try:
            workspace.recall.refresh("s")
        except LedgerError:
            pass
        finally:
            workspace.recall.index.close()
        assert workspace.recall.verify_index("s") == []
        assert workspace.find("s", "number11")[0] == "message number11 with words"
        assert workspace.recall.verify_index("s") == []
        workspace.recall.close()
        workspace.ledger.close()


def test_threads_that_index_one_session_at_once_index_it_once(workspace: Workspace) -> None:
    workspace.say("s", *[f"message number{number}" for number in range(300)])
    problems: list[BaseException] = []

    def search() -> None:
        try:
            assert workspace.find("s", "number299")
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            problems.append(error)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert workspace.recall.verify_index("s") == []


def test_what_is_forgotten_is_gone_from_answers_and_from_the_file(tmp_path: Path, workspace: Workspace) -> None:
    ids = workspace.say("s", "the key is zebraquux77secret", "understood", "carry on")
    workspace.say("other", "unrelated")
    assert workspace.find("s", "zebraquux77secret")
    assert workspace.recall.forget("s", ids[:1]) == 1
    workspace.ledger.forget("s", ids[:1], 2.0)
    assert workspace.find("s", "zebraquux77secret") == []
    assert workspace.find("s", "understood") == ["understood", "carry on"]
    assert workspace.recall.verify_index("s") == []
    workspace.recall.close()
    for path in tmp_path.glob("ledger*"):
        assert b"zebraquux" not in path.read_bytes(), path.name


def test_forgetting_many_passages_leaves_nothing_either(tmp_path: Path, workspace: Workspace) -> None:
    lines = "\n".join(f"row {number} zebraquux{number} and some more words to fill it" for number in range(12_000))
    ids = workspace.say("s", lines, "kept message")
    assert workspace.find("s", "zebraquux7")
    workspace.recall.forget("s", ids[:1])
    workspace.recall.close()
    assert b"zebraquux" not in workspace.recall.index.file.path.read_bytes()
    assert workspace.find("s", "kept")[0] == "kept message"


def test_a_message_the_ledger_forgot_alone_is_never_shown_and_verify_says_so(workspace: Workspace) -> None:
    ids = workspace.say("s", "the key is zebraquux77secret", "fine")
    workspace.recall.refresh("s")
    workspace.ledger.forget("s", ids[:1], 2.0)
    (finding,) = workspace.recall.verify_index("s")
    assert "forgotten" in finding.what
    assert not any("zebraquux" in one for one in workspace.find("s", "zebraquux77secret"))
    assert workspace.recall.verify_index("s") == []  # Who looks for it takes it out.


def test_a_session_that_was_deleted_and_made_again_is_indexed_again(workspace: Workspace) -> None:
    workspace.say("s", "old words about pelicans", now=1.0)
    assert workspace.find("s", "pelicans")
    workspace.ledger.delete_session("s")
    workspace.say("s", "new words about albatrosses", now=2.0)
    assert workspace.find("s", "albatrosses") == ["new words about albatrosses"]
    assert workspace.find("s", "pelicans") == []


def test_deleting_a_session_takes_its_words_out(workspace: Workspace) -> None:
    workspace.say("s", "words about pelicans")
    workspace.find("s", "pelicans")
    assert workspace.recall.delete_session("s")
    assert not workspace.recall.delete_session("s")
    workspace.recall.close()
    assert b"pelican" not in workspace.recall.index.file.path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM source WHERE seq = 1",
        "DELETE FROM passage; UPDATE source SET count = 0",
        "INSERT INTO word (rowid, words) VALUES ((1 << 32) | 77, '1|stray')",
        "INSERT INTO word (word, rowid, words) VALUES ('delete', 1 << 32, '1|heron')",
    ],
)
def test_verify_finds_damage_and_repair_mends_it(workspace: Workspace, damage: str) -> None:
    workspace.say("s", "the first is heron", "the second is ibis")
    workspace.find("s", "heron")
    with workspace.recall.index.file.write() as db:
        db.execute(damage)
    assert workspace.recall.verify_index("s", repair=True)
    assert workspace.recall.verify_index() == []
    assert workspace.find("s", "heron")[0] == "the first is heron"


def test_the_index_can_be_deleted_at_any_time(workspace: Workspace) -> None:
    workspace.say("s", "the first is heron")
    workspace.find("s", "heron")
    workspace.recall.close()
    for path in workspace.recall.index.file.path.parent.glob("ledger.recall*"):
        path.unlink()
    assert workspace.find("s", "heron") == ["the first is heron"]


def test_an_index_of_another_layout_is_made_again_and_a_foreign_file_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.say("s", "the first is heron")
    workspace.find("s", "heron")
    with workspace.recall.index.file.write() as db:
        db.execute("PRAGMA user_version = 999")
    workspace.recall.close()
    assert workspace.find("s", "heron") == ["the first is heron"]
    workspace.recall.close()
    foreign = tmp_path / "foreign.db"
    other = apsw.Connection(str(foreign))
    other.execute("CREATE TABLE theirs (a)")
    other.close()
    with pytest.raises(LedgerError, match="not an index"):
        Recall(workspace.ledger, foreign, WORDS_ONLY).recall("s", "heron")
    workspace.ledger.close()


def test_a_closed_manager_leaves_a_ledger_that_can_be_copied(tmp_path: Path) -> None:
    config = CompressionConfig(window=16_000, reserve=1_000, model="gpt-4o")
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        with ContextCompressionManager(config, folder) as manager:
            history = [{"role": "user", "content": f"Question {at}. " + "More words. " * 40} for at in range(120)]
            manager.prepare_context_sync("s", history)
        # The log is gone with the last connection, and everything is in the file.
        assert not (folder / ".refold" / "ledger.db-wal").exists()
