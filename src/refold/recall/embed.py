"""Vectors of texts: offline from static word vectors, or from any OpenAI-compatible service. Loaded when first used.

Static vectors know no Chinese: such texts get none, and full text carries them. A service that fails never fails a
query: the words alone answer it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from refold.errors import ConfigError, Unavailable
from refold.recall.options import EmbeddingOptions

TEXT_CHARS_MAX = 4_000
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


def make_embedder(options: EmbeddingOptions) -> Embedder | None:
    """Return the embedder that the options name; None if there is none, or none is wanted."""
    source = options.source
    if source == "off":
        return None
    if source in ("auto", "static"):
        try:
            return StaticEmbedder()
        except ImportError as error:
            if source == "auto":
                return None
            raise ConfigError(
                "recall.embeddings is 'static', but wordllama is missing; pip install 'refold[recall]', or set 'off'"
            ) from error
    if source.startswith(("http://", "https://")):
        return ServiceEmbedder(options)
    raise ConfigError(f"recall.embeddings is {source[:80]!r}; give off, auto, static or the address of a service")


class StaticEmbedder:
    """Static word vectors from the ``wordllama`` wheel, without any download."""

    name = _STATIC_NAME
    is_local = True

    def __init__(self) -> None:
        from pathlib import Path

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

    def __init__(self, options: EmbeddingOptions) -> None:
        if not options.model:
            raise ConfigError("recall.embeddings names a service but no model; set its model")
        self._options = options
        self.name = f"{options.source.rstrip('/')}#{options.model}#{options.dimensions or ''}"

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Ask the service, some texts at a time; raise Unavailable if it does not answer as it should."""
        found: list[list[float] | None] = []
        for at in range(0, len(texts), max(1, self._options.batch)):
            found += self._ask([text[:TEXT_CHARS_MAX] or " " for text in texts[at : at + max(1, self._options.batch)]])
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
        if options.key:
            headers["authorization"] = f"Bearer {options.key}"
        address = f"{options.source.rstrip('/')}/embeddings"
        try:
            request = Request(address, json.dumps(wish).encode(), headers)
            with urlopen(request, timeout=options.timeout_s) as response:
                answer = json.loads(response.read())
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = [[float(number) for number in row["embedding"]] for row in rows]
        except (URLError, HTTPException, OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"{address} gave no embeddings ({type(error).__name__}: {error}); try again") from error
        if len(vectors) != len(texts):
            raise Unavailable(f"{address} gave {len(vectors)} embeddings for {len(texts)} texts; check the model")
        return list(vectors)
