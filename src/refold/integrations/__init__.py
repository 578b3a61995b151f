"""Integrations: refold inside other clients and frameworks. Each module is imported only when it is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.formats import Codec
    from refold.manager import ContextCompressionManager
    from refold.manager.managed import ManagedSession


def open_session(
    session: str | Callable[[], str],
    *,
    workspace: str | Path = ".",
    manager: ContextCompressionManager | None = None,
    window: int | None = None,
    format: str | None = None,  # noqa: A002 - the word users know
    codec: Codec | None = None,
    is_observation: Callable[[Any], bool] | None = None,
    **settings: Any,
) -> ManagedSession:
    """Return the session an adapter works on: of ``manager``, or of a new one with ``settings`` in ``workspace``."""
    from refold.config import CompressionConfig
    from refold.errors import ConfigError
    from refold.manager import ContextCompressionManager

    if manager is not None and (settings or is_observation):
        given = [*settings, *(["is_observation"] if is_observation else [])]
        raise ConfigError(f"pass settings to the manager instead: {', '.join(sorted(given))}")
    chosen = manager or ContextCompressionManager(
        CompressionConfig(**settings), workspace, is_observation=is_observation
    )
    return chosen.session(session, window=window, format=format, codec=codec)
