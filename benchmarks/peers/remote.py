"""A peer in another process: ``RemotePeer`` passes messages, counts and summaries between the two."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold.errors import RefoldError
from refold.replay.policy import Allowance

HERE = Path(__file__).resolve().parent


class PeerFailed(RefoldError):
    """The peer raised an error, or its process ended."""


@dataclass(frozen=True)
class Entry:
    """One peer: what pip installs, the file and class that drive it, its title, and the oldest Python it runs on."""

    name: str
    package: str
    file: Path
    kind: str
    title: str
    python: tuple[int, int] = (3, 11)

    def make_worker(self, python: Path) -> Worker:
        return Worker(python, self)


class Worker:
    """A process that runs one peer, session after session."""

    def __init__(self, python: Path, entry: Entry) -> None:
        # Peers must not look for models, keys or updates.
        calm = {"HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": ""}
        self._process = subprocess.Popen(
            [str(python), str(HERE / "worker.py"), str(entry.file), entry.kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **calm},
            text=True,
            encoding="utf-8",
        )
        if self.read().get("ready") is not True:
            raise PeerFailed(f"{entry.name} did not start")

    def write(self, value: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed("the peer's process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()


class RemotePeer:
    """One session of a worker. ``seconds`` are the peer's own, without the time of counting and asking."""

    def __init__(self, worker: Worker, allowance: Allowance) -> None:
        self._worker = worker
        self._allowance = allowance
        self._originals: list[dict[str, Any]] = []
        self._written: dict[str, dict[str, Any]] = {}
        self.seconds: list[float] = []
        worker.write({"start": allowance.tokens})

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Let the peer prepare; answer what it asks meanwhile."""
        self._originals += new
        self._worker.write({"new": new})
        while True:
            said = self._worker.read()
            if "count" in said:
                self._worker.write({"tokens": [self._allowance.count([self._keep(one)]) for one in said["count"]]})
            elif "ask" in said:
                self._worker.write({"text": self._allowance.ask(said["ask"])})
            elif "error" in said:
                raise PeerFailed(said["error"])
            else:
                self.seconds.append(float(said["seconds"]))
                return [self._originals[one] if isinstance(one, int) else self._keep(one) for one in said["sent"]]

    def _keep(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the same object for the same message: the cache compares what was sent with what was sent before."""
        return self._written.setdefault(json.dumps(message, sort_keys=True), message)
