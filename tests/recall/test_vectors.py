"""Vectors: made once, kept small, remade when the model changes; a service that is away never fails a query."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import apsw
import pytest

from refold.config import CompressionConfig, load_config
from refold.errors import ConfigError, Unavailable
from refold.recall.index_file import Mark
from refold.recall.options import EmbeddingService, RecallOptions
from refold.recall.recall import Recall
from refold.recall.vectors import ServiceEmbedder, find_nearest, make_embedder, quantise
from refold.testing.server import ScriptedProvider, embed_text
from tests.rigs.recall import Workspace


class Hashed:
    """Vectors by words, without a model; says how many texts it was asked for."""

    is_local = True

    def __init__(self, name: str = "hashed", dimensions: int = 64) -> None:
        self.name = name
        self.asked = 0
        self._dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        self.asked += len(texts)
        return [embed_text(text, self._dimensions) for text in texts]


@pytest.fixture
def embedder() -> Hashed:
    return Hashed()


@pytest.fixture
def semantic(tmp_path: Path, embedder: Hashed) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path)
    workspace.recall = Recall(workspace.ledger, tmp_path / "ledger.recall.db", embedder=embedder)
    yield workspace
    workspace.recall.close()
    workspace.ledger.close()


def test_a_passage_is_embedded_once(semantic: Workspace, embedder: Hashed) -> None:
    semantic.say("s", *[f"message number {number}" for number in range(20)])
    semantic.find("s", "number")
    assert embedder.asked == 21
    semantic.find("s", "number")
    assert embedder.asked == 22


def test_meaning_alone_finds_and_words_and_meaning_agree(semantic: Workspace) -> None:
    semantic.say("s", "the quick heron", "a slow ibis", "nothing else")
    assert semantic.recall.recall("s", "quick heron", by="meaning")[0].text == "the quick heron"
    assert semantic.recall.recall("s", "quick heron")[0].text == "the quick heron"


def test_another_model_makes_every_vector_again_a_batch_at_a_time(semantic: Workspace, tmp_path: Path) -> None:
    semantic.say("s", *[f"message number {number}" for number in range(30)])
    semantic.recall.recall("s", "number")
    newer = Hashed("newer", 32)
    recall = Recall(semantic.ledger, tmp_path / "ledger.recall.db", embedder=newer)
    assert recall.embed_pending("s", limit=10) == 10
    mark = recall.index.find_mark("s")
    assert mark is not None
    assert (mark.embedded, mark.model) == (10, "newer")
    assert recall.embed_pending("s", limit=100) == 20
    assert recall.embed_pending("s", limit=100) == 0
    assert recall.recall("s", "message number 29", by="meaning")[0].text == "message number 29"
    recall.close()


def test_forgetting_takes_the_vector_too(semantic: Workspace) -> None:
    ids = semantic.say("s", "the quick heron", "a slow ibis")
    semantic.find("s", "heron")
    semantic.recall.forget("s", ids[:1])
    with semantic.recall.index.file.read() as db:
        assert db.execute("SELECT count(*) FROM vector").get == 1


def test_a_vector_of_one_byte_per_dimension_keeps_the_order() -> None:
    db = apsw.Connection(":memory:")
    db.execute("CREATE TABLE vector (key INTEGER PRIMARY KEY, value BLOB NOT NULL)")
    texts = ["the quick heron flies", "the quick heron", "a slow heron walks"]
    db.executemany("INSERT INTO vector VALUES (?, ?)", ((at, quantise(embed_text(t))) for at, t in enumerate(texts)))
    scores = find_nearest(db, Mark(0, embedded=3), quantise(embed_text("quick heron")), ())
    assert scores[1] > scores[0] > scores[2]
    assert find_nearest(db, Mark(0, embedded=3), b"\x01\x02", ()) == {}


def wait(recall: Recall) -> None:
    assert recall.upkeep.join()


def test_an_openai_compatible_service_is_asked_for_vectors(tmp_path: Path) -> None:
    with ScriptedProvider([], key="k-1") as provider:
        service = EmbeddingService(provider.openai_url, model="embed-small", key_env="MY_KEY", batch=2)
        vectors = ServiceEmbedder(service, "k-1").embed(["one heron", "two herons", "端口", "", "lone \ud800"])
        assert len(vectors) == 5
        assert all(vector is not None for vector in vectors)
        workspace = Workspace(tmp_path)
        workspace.recall = Recall(
            workspace.ledger,
            tmp_path / "ledger.recall.db",
            RecallOptions(embeddings=service),
            variables={"MY_KEY": "k-1"},
        )
        workspace.say("s", "the quick heron", "a slow ibis")
        assert workspace.recall.embed_pending("s") == 0
        workspace.recall.refresh("s")
        assert workspace.recall.embed_pending("s") == 2
        assert workspace.recall.recall("s", "heron", by="meaning")[0].text == "the quick heron"
        assert {request.headers["authorization"] for request in provider.requests} == {"Bearer k-1"}
    # The service is away now: its words still answer.
    assert workspace.find("s", "ibis")[0] == "a slow ibis"
    with pytest.raises(Unavailable):
        ServiceEmbedder(service).embed(["x"])
    workspace.recall.close()
    workspace.ledger.close()


def test_what_goes_to_a_service_goes_without_keys_and_passwords() -> None:
    with ScriptedProvider([]) as provider:
        secret = "sk-proj-" + "a1B2c3D4e5" * 4
        ServiceEmbedder(EmbeddingService(provider.openai_url, "m")).embed([f"our key is {secret}"])
        assert secret not in provider.requests[-1].body.decode()


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"data": []}', b'{"data": [{"index": 0, "embedding": [NaN]}]}'])
def test_a_service_that_answers_nonsense_is_unavailable_and_fails_no_query(tmp_path: Path, answer: bytes) -> None:
    with answering(answer) as address:
        workspace = Workspace(tmp_path, RecallOptions(embeddings=EmbeddingService(address, "m")))
        workspace.say("s", "the quick heron", "a slow ibis")
        assert workspace.find("s", "ibis")[0] == "a slow ibis"
        wait(workspace.recall)
        with pytest.raises(Unavailable):
            workspace.recall.embed_pending("s")
        workspace.recall.close()
        workspace.ledger.close()


@contextlib.contextmanager
def answering(body: bytes) -> Iterator[str]:
    """A service that gives the same answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_service_is_asked_in_the_background_and_continues_where_it_was_stopped(tmp_path: Path) -> None:
    with ScriptedProvider([]) as provider:
        options = RecallOptions(embeddings=EmbeddingService(provider.openai_url, "embed-small"))
        workspace = Workspace(tmp_path, options)
        workspace.say("s", *[f"message number {number}" for number in range(40)])
        workspace.recall.refresh("s")
        assert workspace.recall.embed_pending("s", limit=10) == 10
        workspace.recall.close()
        again = Recall(workspace.ledger, tmp_path / "ledger.recall.db", options)
        asked = len(provider.requests)
        assert again.recall("s", "number 39")[0].text == "message number 39"
        wait(again)
        mark = again.index.find_mark("s")
        assert mark is not None
        assert mark.embedded == mark.passages == 40
        texts = sum(len(one.json["input"]) for one in provider.requests[asked:])
        assert texts == 30 + 1  # The rest, and the query.
        again.close()
        workspace.ledger.close()


def test_another_service_makes_every_vector_again_in_the_background(tmp_path: Path) -> None:
    with ScriptedProvider([]) as provider:
        workspace = Workspace(tmp_path)
        workspace.say("s", *[f"message number {number}" for number in range(30)])
        for model in ("first", "second"):
            options = RecallOptions(embeddings=EmbeddingService(provider.openai_url, model))
            workspace.recall.configure(options, {})
            workspace.find("s", "number")
            wait(workspace.recall)
            mark = workspace.recall.index.find_mark("s")
            assert mark is not None
            assert (mark.embedded, mark.model) == (30, f"{provider.openai_url}#{model}#")
        workspace.recall.close()
        workspace.ledger.close()


def test_static_vectors_load_offline_and_know_no_chinese() -> None:
    pytest.importorskip("wordllama")
    embedder = make_embedder("offline")
    assert embedder is not None
    english, chinese, lone = embedder.embed(["a quick heron", "端口", "heron \ud800"])
    assert english is not None
    assert len(english) == 256
    assert chinese is None
    assert lone is not None


def test_static_vectors_leave_the_logging_of_the_program_alone() -> None:
    pytest.importorskip("wordllama")
    script = (
        "import logging; from refold.recall.vectors import make_embedder; make_embedder('offline').embed(['a heron']);"
        "assert not logging.getLogger().handlers, logging.getLogger().handlers;"
        "assert logging.getLogger().level == logging.WARNING; logging.getLogger('mine').info('not shown')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_settings_that_make_no_sense_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="no model"):
        EmbeddingService("http://127.0.0.1:1", "")
    with pytest.raises(ConfigError, match="http://"):
        EmbeddingService("ftp://127.0.0.1", "m")
    with pytest.raises(ConfigError, match="offline, off"):
        CompressionConfig(recall={"embeddings": "magic"})
    with pytest.raises(ConfigError, match=r"recall\.limit"):
        RecallOptions(limit=0)
    with pytest.raises(ConfigError, match="MY_KEY, which is not set"):
        make_embedder(EmbeddingService("http://127.0.0.1:1", "m", key_env="MY_KEY"))
    assert make_embedder("off") is None


def test_settings_of_the_block_reach_recall_and_a_wrong_one_is_reported_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "refold").mkdir()
    (tmp_path / "refold" / "config.yaml").write_text(
        "recall:\n  limit: 3\n  inject: off\n  embeddings: {url: 'http://127.0.0.1:9/v1', model: m, key_env: MY_KEY}\n"
    )
    environ = {"MY_KEY": "k", "REFOLD_RECALL_TOKENS_MAX": "700", "XDG_CONFIG_HOME": str(tmp_path)}
    config = load_config(tmp_path, environ=environ)
    assert (config.recall.limit, config.recall.tokens_max, config.recall.inject) == (3, 700, "off")
    assert config.recall.embeddings == EmbeddingService("http://127.0.0.1:9/v1", "m", "MY_KEY")
    assert config.variables["MY_KEY"] == "k"
    assert "MY_KEY" not in CompressionConfig(recall={"embeddings": "off"}).variables
    for wrong, told in (
        ({"limt": 3}, "limit"),
        ({"inject": "sometimes"}, "off"),
        ({"embeddings": {"url": "http://x"}}, "model"),
        ({"embeddings": {"url": "http://x", "modle": "m"}}, "modle"),
        ({"embeddings": {"url": "http://x", "model": "m", "batch": "many"}}, "batch"),
        ({"embeddings": 7}, "offline"),
    ):
        with pytest.raises(ConfigError, match=told):
            CompressionConfig(recall=wrong)


def test_a_word_that_nobody_said_finds_nothing_rather_than_anything(semantic: Workspace) -> None:
    semantic.say("s", "the quick heron", "a slow ibis", "tile 34 rendered in 102 ms")
    assert semantic.find("s", "nothinglikethis") == []


def test_both_ways_to_compare_vectors_agree(semantic: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlite_vec")
    semantic.say("s", *[f"message {number} about {('heron', 'ibis', 'lake')[number % 3]}" for number in range(200)])
    within = [(one.text, one.score) for one in semantic.recall.recall("s", "message about heron 7", by="meaning")]
    assert within
    monkeypatch.setattr("refold.recall.vectors.load_vec", lambda _: False)
    assert [
        (one.text, one.score) for one in semantic.recall.recall("s", "message about heron 7", by="meaning")
    ] == within
