"""Runs one peer in its own environment: requests come in on standard input, answers go out on standard output.

Only the standard library and the peer itself are imported, so that it runs in an environment that has nothing else. The
peer counts tokens and asks for summaries through the same two pipes, so that all peers share one counter and one
stand-in summariser. Usage: ``python worker.py FILE CLASS``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any


class Link:
    """Input of a peer: tokens for its messages, a counter, a summariser. Answers come from the other process."""

    def __init__(self, tokens: int, source: Any, target: Any) -> None:
        self.tokens = tokens
        self.waited_s = 0.0
        self._source = source
        self._target = target
        # Messages by identity: those of a peer are kept, so that no other gets the same.
        self._counts: dict[int, tuple[Any, int]] = {}

    def count(self, messages: Sequence[Any]) -> int:
        """Return the tokens of messages; each is counted once."""
        new = {id(message): message for message in messages if id(message) not in self._counts}
        if new:
            told = self._call({"count": list(new.values())})["tokens"]
            self._counts.update((key, (new[key], count)) for key, count in zip(new, told, strict=True))
        return sum(self._counts[id(message)][1] for message in messages)

    def ask(self, prompt: str) -> str:
        """Return the stand-in's summary."""
        return str(self._call({"ask": prompt})["text"])

    def _call(self, question: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        write_line(self._target, question)
        answer: dict[str, Any] = json.loads(self._source.readline())
        self.waited_s += time.perf_counter() - begun
        return answer


def write_line(target: Any, value: object) -> None:
    target.write(json.dumps(value) + "\n")
    target.flush()


def load_peer(path: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location("peer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def main() -> None:
    path, name = sys.argv[1:]
    # Libraries print: their words must not get between ours.
    target = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    source = sys.stdin
    make_peer = load_peer(path, name)
    write_line(target, {"ready": True})
    peer: Any = None
    link: Link | None = None
    originals: list[dict[str, Any]] = []
    for line in source:
        given = json.loads(line)
        if "start" in given:
            link = Link(given["start"], source, target)
            peer, originals = make_peer(link), []
            continue
        assert link is not None
        originals += given["new"]
        places = {id(message): at for at, message in enumerate(originals)}
        link.waited_s = 0.0
        begun = time.perf_counter()
        try:
            sent = peer.prepare(given["new"])
        except Exception as error:  # noqa: BLE001 - a peer that fails is a result, and the next session goes on
            write_line(target, {"error": f"{type(error).__name__}: {error}"[:300]})
            continue
        seconds = time.perf_counter() - begun - link.waited_s
        write_line(target, {"sent": [places.get(id(one), one) for one in sent], "seconds": seconds})


if __name__ == "__main__":
    main()
