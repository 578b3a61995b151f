"""What is compared: a preset with settings of its own, a baseline, a Python function, or a service that compresses.

``default``, ``default+depth=generous``, ``trim``, ``package.module:function``, ``http://127.0.0.1:8377/v1/compress``.
A function gets the messages so far and the tokens that they may take, and returns the messages to send. A service gets
the same as JSON (``messages``, ``model``, ``config: {"budget": …}``) and answers ``{"messages": […]}``.
Functions and addresses are named on the command line only: a file of a folder never chooses what is run or asked.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml

from refold.config import CompressionConfig
from refold.config.layers import PRESETS
from refold.conversation.message import Message
from refold.errors import ConfigError, FormatError, Unavailable
from refold.formats import parse_messages
from refold.llm.http import request_json
from refold.replay.policy import LadderPolicy, Policy, PolicyRoom, Step, find_baselines

SERVICE_TIMEOUT_S = 60.0
ANSWER_BYTES_MAX = 200_000_000
Compress = Callable[[list[Any], int], object]


class GivenCompressor:
    """Runs a compressor that takes the whole conversation each time; a message that it returns unchanged is plain."""

    keeps_originals: ClassVar[bool] = False

    def __init__(self, room: PolicyRoom, compress: Compress) -> None:
        self._room, self._compress = room, compress
        self._raws: list[Any] = []

    def see(self, messages: Sequence[Message]) -> None:
        self._raws += [message.raw for message in messages]

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        lens = self._room.lens
        returned = self._compress(list(self._raws), self._room.budget.hard - self._room.fixed_tokens)
        if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
            raise FormatError("the compressor returned {kind}, not a list of messages", kind=type(returned).__name__)
        items = tuple(lens.plain(message) for message in parse_messages(lens.format, list(returned)))
        return Step(items, self._room.fixed_tokens + sum(item.tokens for item in items))


@dataclass(frozen=True, slots=True)
class Arm:
    """One compressor to evaluate. ``settings`` are those of a preset."""

    name: str
    preset: str = "default"
    settings: tuple[tuple[str, object], ...] = ()
    baseline: str = ""
    function: str = ""
    address: str = ""

    def make_config(self, window: int | None) -> CompressionConfig:
        """Return the settings under which the arm runs; they also decide the budget of the others."""
        nested: dict[str, Any] = {}
        for key, value in self.settings:
            block, _, option = key.rpartition(".")
            if block:
                nested.setdefault(block, {})[option] = value
            else:
                nested[key] = value
        if window is not None:
            nested |= {"window": window, "reserve": 0}
        return CompressionConfig(preset=self.preset, **nested)

    def make_policy(self, room: PolicyRoom, config: CompressionConfig) -> Policy:
        """Return the compressor for one session."""
        if self.baseline:
            return find_baselines()[self.baseline](room)
        if self.function:
            return GivenCompressor(room, load_function(self.function))
        if self.address:
            return GivenCompressor(room, lambda messages, tokens: _ask_service(self.address, messages, tokens))
        return LadderPolicy(room, config)


def read_arm(given: str) -> Arm:
    """Return the arm that a name on the command line means; ConfigError for one that means none."""
    name = given.strip()
    if name.startswith(("http://", "https://")):
        return Arm(name, address=name)
    if name in find_baselines():
        return Arm(name, baseline=name)
    preset, *settings = name.split("+")
    if preset in PRESETS:
        pairs = tuple(_read_setting(setting, name) for setting in settings)
        return Arm(name, preset=preset, settings=pairs)
    module, colon, function = name.partition(":")
    if colon and module and function:
        load_function(name)
        return Arm(name, function=name)
    raise ConfigError(
        "{name!r} is no compressor; there are {listed}, PRESET+SETTING=VALUE, package.module:function, and an address",
        name=name[:80],
        listed=", ".join([*PRESETS, *find_baselines()]),
    )


def _read_setting(given: str, arm: str) -> tuple[str, object]:
    key, equals, value = given.partition("=")
    if not equals or not key.strip():
        raise ConfigError("{arm!r}: write a setting as NAME=VALUE, not {given!r}", arm=arm[:80], given=given[:80])
    return key.strip(), yaml.safe_load(value)


def load_function(name: str) -> Compress:
    """Import a function by ``package.module:function``."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError("{name!r} cannot be imported: {error}", name=name[:80], error=error) from error
    if not callable(found):
        raise ConfigError("{name!r} is not a function", name=name[:80])
    return found  # type: ignore[no-any-return]


def _ask_service(address: str, messages: list[Any], tokens: int) -> object:
    body = {"messages": messages, "config": {"budget": tokens}}
    try:
        status, answer = request_json(address, body, timeout_s=SERVICE_TIMEOUT_S, bytes_max=ANSWER_BYTES_MAX)
        if status >= 300:
            raise OSError(f"HTTP {status}")
        return answer["messages"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            "{address} did not answer with messages: {error}", address=address.partition("?")[0][:120], error=error
        ) from error
