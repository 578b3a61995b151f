"""Replicas share a ledger and have an index each: words that one forgets leave the other's at its next look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import ContextCompressionManager
from refold.errors import SessionNotFound
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from refold.manager.status import export_session, import_session
from tests.rigs.postgres import ON_POSTGRES, schema_of, server_url

SECRET = "hunter2gone"
HISTORY = [
    {"role": "user", "content": "the deploy target is zulu-seven"},
    {"role": "assistant", "content": f"noted, and the key is {SECRET}"},
    {"role": "user", "content": "water the plants on friday"},
]


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "sqlite":
        ledger: Ledger = SqliteLedger(tmp_path / "shared.db")
    else:
        url = server_url()
        from refold.ledger.postgres import PostgresLedger

        ledger = PostgresLedger(url, schema=schema_of(tmp_path))
    yield ledger
    ledger.close()


@pytest.fixture
def replicas(ledger: Ledger, tmp_path: Path) -> Iterator[list[ContextCompressionManager]]:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    made = [ContextCompressionManager(workspace_path=tmp_path / name, ledger=ledger) for name in ("one", "other")]
    made[0].append("s1", HISTORY)
    yield made
    for manager in made:
        manager.close()


def holds(manager: ContextCompressionManager, word: str) -> bool:
    """Whether the word is anywhere in the files of a replica."""
    manager.close()
    files = [path for path in manager.workspace_path.rglob("*") if path.is_file()]
    assert files
    # The index writes of a word only what differs from the one before it.
    return any(word[6:].encode() in path.read_bytes() for path in files)


def test_each_replica_finds_what_another_stored(replicas: list[ContextCompressionManager]) -> None:
    for manager in replicas:
        assert "zulu-seven" in manager.recall("s1", "deploy target")[0].text
    assert replicas[0].recalling.index.file.path != replicas[1].recalling.index.file.path


def test_a_replica_that_starts_again_continues_with_its_index(
    replicas: list[ContextCompressionManager], ledger: Ledger, tmp_path: Path
) -> None:
    other = replicas[1]
    assert other.recall("s1", "plants")
    other.close()
    replicas[0].append("s1", [{"role": "user", "content": "and feed the goldfish"}])
    again = ContextCompressionManager(workspace_path=tmp_path / "other", ledger=ledger)
    assert again.recalling.refresh("s1") == 1
    assert "goldfish" in again.recall("s1", "goldfish")[0].text
    again.close()


def test_what_one_replica_forgets_goes_from_the_index_of_the_other(replicas: list[ContextCompressionManager]) -> None:
    one, other = replicas
    assert other.recall("s1", SECRET)
    assert holds(other, SECRET)
    handle = f"m:{one.ledger.read_messages('s1')[1].digest[:8]}"
    assert one.forget("s1", handle).messages == 1
    assert not any(SECRET in found.text for found in other.recall("s1", SECRET))
    assert not holds(other, SECRET)
    assert not holds(one, SECRET)
    assert "zulu-seven" in other.recall("s1", "deploy target")[0].text
    assert one.verify() == other.verify() == []


def test_a_session_that_one_replica_deletes_goes_from_the_index_of_the_other(
    replicas: list[ContextCompressionManager],
) -> None:
    one, other = replicas
    assert other.recall("s1", SECRET)
    one.append("s2", HISTORY[:1])
    one.delete_session("s1")
    with pytest.raises(SessionNotFound, match="no session"):
        other.recall("s1", SECRET)
    assert not holds(other, SECRET)


def test_a_session_deleted_elsewhere_goes_when_the_index_is_next_kept_up(
    replicas: list[ContextCompressionManager],
) -> None:
    one, other = replicas
    assert other.recall("s1", SECRET)
    one.append("s2", HISTORY[:1])
    one.delete_session("s1")
    other.recalling.keep_up("s2")
    assert not holds(other, SECRET)


def test_a_session_imported_in_the_place_of_a_deleted_one_is_indexed_again(
    replicas: list[ContextCompressionManager],
) -> None:
    one, other = replicas
    assert other.recall("s1", SECRET)
    one.append("s2", [{"role": "user", "content": f"feed the goldfish at {hour}"} for hour in ("six", "nine", "noon")])
    # Their creation time does not distinguish them.
    told = {**export_session(one.ledger, "s2"), "created_at": export_session(one.ledger, "s1")["created_at"]}
    one.delete_session("s1")
    import_session(one.ledger, told, now=2_000_000_000.0, session_id="s1")
    assert "goldfish" in other.recall("s1", "goldfish")[0].text
    assert not any(SECRET in found.text for found in other.recall("s1", SECRET))
    assert other.verify("s1") == []
    assert not holds(other, SECRET)


def test_a_session_imported_again_as_it_was_keeps_its_index(replicas: list[ContextCompressionManager]) -> None:
    one, other = replicas
    assert other.recall("s1", SECRET)
    told = export_session(one.ledger, "s1")
    one.delete_session("s1")
    import_session(one.ledger, told, now=2_000_000_000.0)
    assert other.recalling.refresh("s1") == 0
    assert "zulu-seven" in other.recall("s1", "deploy target")[0].text
