"""What the models of all providers share: one attempt with a client of its own, streamed, bounded in time and size.

A provider's own file says how a question is written, how its events are read, and what it learns from a refusal. A
model belongs to no event loop. What it turns out to need is remembered: a parameter it does not take is left out from
then on, and one that spent the whole limit on thinking gets room for it. Nothing here retries (``retry.py``).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from refold.errors import ProviderError, Unavailable
from refold.llm.errors import classify, show_url
from refold.llm.model import TEMPERATURE, THINKING_TOKENS, TIMEOUT_S, TOKENS_MAX, Completion
from refold.llm.reading import Collected, check_kind, load_library, read_events

NO_KEY = "none"  # Local servers want none; the clients insist on one.
THINKS = "thinks"
# As many as there are parameters to learn of, and room to think.
ROUNDS_MAX = 6


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked; ``tokens_max`` is for the answer, thinking apart."""

    prompt: str
    system: str
    tokens_max: int
    temperature: float


@dataclass(frozen=True)
class ProviderModel(ABC):
    """A model behind an address. ``window`` is what its requests may have, where that is known."""

    name: str
    key: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    timeout_s: float = TIMEOUT_S
    window: int | None = None
    _learned: set[str] = field(default_factory=set, repr=False, compare=False)

    library: ClassVar[str]

    @property
    def source(self) -> str:
        """Model and address as messages name them, without anything secret."""
        return f"{self.name} at {show_url(self.url)}"

    async def complete(
        self, prompt: str, *, system: str = "", tokens_max: int = TOKENS_MAX, temperature: float = TEMPERATURE
    ) -> Completion:
        """Return the answer to one prompt; raise a ProviderError if there is none."""
        library = await load_library(self.library)
        question = Prompt(prompt, system, tokens_max, temperature)
        try:
            async with asyncio.timeout(self.timeout_s), self._open(library) as client:
                return await self._ask_until_known(library, client, question)
        except TimeoutError:
            raise Unavailable(f"{self.source} did not answer within {self.timeout_s:g} s") from None
        except Exception as error:  # noqa: BLE001 - the client's errors, and those of what it stands on
            raise classify(error, source=self.source, secrets=(self.key,)) from None

    async def _ask_until_known(self, library: Any, client: Any, question: Prompt) -> Completion:
        """Ask; and again, differently, where the answer says what the model does not take or needs more of."""
        for _ in range(ROUNDS_MAX):
            room = THINKING_TOKENS if THINKS in self._learned else 0
            body = self._write(question, question.tokens_max + room)
            try:
                answer = await self._ask(client, body, question.tokens_max)
            except library.BadRequestError as error:
                if not self._learn(error, body):
                    raise
                continue
            if room or answer.content or answer.finish_reason != "length":
                return answer
            self._learned.add(THINKS)
        raise ProviderError(f"{self.source} gives no answer, with whatever parameters; use another model for summaries")

    async def _ask(self, client: Any, body: dict[str, Any], tokens_max: int) -> Completion:
        # The raw events instead of a client's own collector: those have no limit on what they collect.
        stream = await self._send(client, body)
        async with stream:
            kind = stream.response.headers.get("content-type", "")
            check_kind(kind, self.source)
            if kind.startswith("application/json"):
                return self._read_whole(await stream.response.aread())
            collected = Collected(tokens_max)
            async for event in read_events(stream):
                self._take(collected, event)
                if collected.is_full:
                    break
        return collected.finish()

    @abstractmethod
    def _open(self, library: Any) -> Any:
        """Return the official client, to be entered."""

    @abstractmethod
    def _write(self, question: Prompt, tokens_max: int) -> dict[str, Any]:
        """Return the body of the request, without what the model was found not to take."""

    @abstractmethod
    def _learn(self, error: Any, body: dict[str, Any]) -> bool:
        """Note what was refused; False if the error is about something else."""

    @abstractmethod
    async def _send(self, client: Any, body: dict[str, Any]) -> Any:
        """Send the request once and return the stream."""

    @abstractmethod
    def _take(self, collected: Collected, event: Any) -> None:
        """Take one event of the stream."""

    @abstractmethod
    def _read_whole(self, body: bytes) -> Completion:
        """Return the answer of a server that does not stream; raise Unavailable if it is no answer."""
