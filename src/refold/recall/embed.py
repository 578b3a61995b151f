"""Vectors of texts: offline from static word vectors, or from any OpenAI-compatible service. Loaded when first used.

Static vectors know no Chinese: such texts get none, and full text carries them. A service that fails never fails a
query: the words alone answer it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from refold.errors import ConfigError, Unavailable
from refold.llm.redact import redact_text
from refold.recall.options import Embeddings, EmbeddingService

TEXT_CHARS_MAX = 4_000
_ANSWER_BYTES_MAX = 100_000_000
_LATIN = re.compile(r"[A-Za-z]{3}")
_STATIC_NAME = "wordllama/l2_supercat_256"


class Embedder(Protocol):
    """Turns texts into vectors of one length."""

    @property
    def name(self) -> str:
        """What the vectors are of; another name means that stored vectors no longer fit."""
        ...

    @property
    def is_local(self) -> bool:
        """True if it costs neither money nor a request."""
        ...

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Return a vector for each text; None for one that has none."""
        ...


def make_embedder(embeddings: Embeddings, variables: Mapping[str, str] | None = None) -> Embedder | None:
    """Return the embedder that the settings name; None if none is wanted or, offline, none is installed.

    ``variables`` hold the key of a service, by the name that its settings give.
    """
    if isinstance(embeddings, EmbeddingService):
        return ServiceEmbedder(embeddings, _find_key(embeddings, variables or {}))
    if embeddings == "off":
        return None
    try:
        return StaticEmbedder()
    except ImportError:
        return None  # The extra is not installed: words alone.


def _find_key(service: EmbeddingService, variables: Mapping[str, str]) -> str:
    if not service.key_env:
        return ""
    key = variables.get(service.key_env, "")
    if not key:
        raise ConfigError(
            f"recall.embeddings.key_env names {service.key_env[:80]}, which is not set; set it in the environment"
        )
    return key


@contextlib.contextmanager
def _quiet_import() -> Iterator[None]:
    """Keep a library from setting up logging for the whole program when it is imported."""
    root, handler = logging.getLogger(), logging.NullHandler()
    level = root.level
    # A root logger that has a handler is left alone by ``basicConfig``.
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class StaticEmbedder:
    """Static word vectors from the ``wordllama`` wheel, without any download."""

    name = _STATIC_NAME
    is_local = True

    def __init__(self) -> None:
        from pathlib import Path

        with _quiet_import():
            import wordllama  # type: ignore[import-untyped]

        # Its own search for the files looks one folder too high; the wheel holds both.
        folder = Path(wordllama.__file__).parent
        self._model: Any = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Return a vector of unit length for each text that has Latin words."""
        known = [at for at, text in enumerate(texts) if _LATIN.search(text)]
        found: list[list[float] | None] = [None] * len(texts)
        if known:
            clean = [texts[at][:TEXT_CHARS_MAX].encode("utf-8", "replace").decode() for at in known]
            for at, vector in zip(known, self._model.embed(clean, norm=True).tolist(), strict=True):
                found[at] = vector
        return found


class ServiceEmbedder:
    """Any service that speaks OpenAI's ``/embeddings``."""

    is_local = False

    def __init__(self, options: EmbeddingService, key: str = "") -> None:
        self._options = options
        self._key = key
        self.name = f"{options.url.rstrip('/')}#{options.model}#{options.dimensions or ''}"

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Ask the service, some texts at a time; raise Unavailable if it does not answer as it should."""
        # What leaves the machine leaves without its keys and passwords.
        clean = [redact_text(text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()) for text in texts]
        found: list[list[float] | None] = []
        for at in range(0, len(clean), self._options.batch):
            found += self._ask([text if text.strip() else "-" for text in clean[at : at + self._options.batch]])
        return found

    def _ask(self, texts: list[str]) -> list[list[float] | None]:
        import json
        from http.client import HTTPException
        from urllib.error import URLError
        from urllib.request import Request, urlopen

        options = self._options
        wish: dict[str, object] = {"model": options.model, "input": texts, "encoding_format": "float"}
        if options.dimensions:
            wish["dimensions"] = options.dimensions
        headers = {"content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        address = f"{options.url.rstrip('/')}/embeddings"
        try:
            request = Request(address, json.dumps(wish).encode(), headers)
            with urlopen(request, timeout=options.timeout_s) as response:
                answer = json.loads(response.read(_ANSWER_BYTES_MAX))
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = [[float(number) for number in row["embedding"]] for row in rows]
            if not all(math.isfinite(number) for vector in vectors for number in vector):
                raise ValueError("a vector holds what is no number")
        except (URLError, HTTPException, OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"{address} gave no embeddings ({type(error).__name__}: {error}); try again") from error
        if len(vectors) != len(texts):
            raise Unavailable(f"{address} gave {len(vectors)} embeddings for {len(texts)} texts; check the model")
        return list(vectors)
