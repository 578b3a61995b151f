"""Vectors: made once, kept small, remade when the model changes; a service that is away never fails a query."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from refold.errors import ConfigError, Unavailable
from refold.recall import EmbeddingOptions, Recall, RecallOptions
from refold.recall.embed import ServiceEmbedder, make_embedder
from refold.recall.vectors import compare, quantise
from refold.testing.embedding import embed_text
from refold.testing.server import ScriptedProvider
from tests.recall.building import Workspace


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


def test_another_model_makes_every_vector_anew_a_batch_at_a_time(semantic: Workspace, tmp_path: Path) -> None:
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
    texts = ["the quick heron flies", "the quick heron", "a slow ibis walks"]
    stored = [(at, quantise(embed_text(text))) for at, text in enumerate(texts)]
    scores = compare(quantise(embed_text("quick heron")), stored)
    assert scores[1] > scores[0] > scores[2]
    assert compare(b"\x01\x02", stored) == {}


def test_an_openai_compatible_service_is_asked_for_vectors(tmp_path: Path) -> None:
    with ScriptedProvider([]) as provider:
        options = EmbeddingOptions(provider.openai_url, model="embed-small", key="k", batch=2)
        vectors = ServiceEmbedder(options).embed(["one heron", "two herons", "端口"])
        assert len(vectors) == 3
        assert all(vector is not None for vector in vectors)
        workspace = Workspace(tmp_path, RecallOptions(embeddings=options))
        workspace.say("s", "the quick heron", "a slow ibis")
        assert workspace.recall.embed_pending("s") == 0
        workspace.recall.refresh("s")
        assert workspace.recall.embed_pending("s") == 2
        assert workspace.recall.recall("s", "heron", by="meaning")[0].text == "the quick heron"
    # The service is away now: its words still answer.
    assert workspace.find("s", "ibis")[0] == "a slow ibis"
    with pytest.raises(Unavailable):
        ServiceEmbedder(options).embed(["x"])
    workspace.recall.close()
    workspace.ledger.close()


def test_static_vectors_load_offline_and_know_no_chinese() -> None:
    pytest.importorskip("wordllama")
    embedder = make_embedder(EmbeddingOptions("static"))
    assert embedder is not None
    english, chinese, lone = embedder.embed(["a quick heron", "端口", "heron \ud800"])
    assert english is not None
    assert len(english) == 256
    assert chinese is None
    assert lone is not None


def test_settings_that_make_no_sense_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="no model"):
        make_embedder(EmbeddingOptions("http://127.0.0.1:1"))
    with pytest.raises(ConfigError, match="off, auto, static"):
        make_embedder(EmbeddingOptions("magic"))
    with pytest.raises(ConfigError, match=r"recall\.limit"):
        RecallOptions(limit=0)
    assert make_embedder(EmbeddingOptions("off")) is None
