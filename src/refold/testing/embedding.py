"""Vectors without a model: the same text always gives the same vector, texts that share words are near each other."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
from typing import Any

DIMENSIONS = 64
DIMENSIONS_MAX = 4_096
_WORD = re.compile(r"[a-z0-9_]+|[\u3400-\u9fff]")


def embed_text(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Return a vector of length one: every word (or Chinese character) adds its weight to one place."""
    vector = [0.0] * dimensions
    for word in _WORD.findall(text.lower()) or [""]:
        digest = hashlib.sha256(word.encode()).digest()
        vector[int.from_bytes(digest[:4], "big") % dimensions] += 1.0 if digest[4] & 1 else -1.0
    length = math.sqrt(sum(value * value for value in vector))
    if length == 0.0:
        vector[0] = length = 1.0
    return [value / length for value in vector]


def write_embeddings(body: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return the answer to a request for embeddings, as numbers or as base64 of 32-bit floats."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else [str(text) for text in given or []]
    asked = body.get("dimensions")
    dimensions = min(asked, DIMENSIONS_MAX) if isinstance(asked, int) and asked > 0 else DIMENSIONS
    rows = [
        {"object": "embedding", "index": at, "embedding": _encode(embed_text(text, dimensions), body)}
        for at, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": rows, "model": body.get("model", ""), "usage": usage}


def _encode(vector: list[float], body: dict[str, Any]) -> list[float] | str:
    if body.get("encoding_format") != "base64":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
