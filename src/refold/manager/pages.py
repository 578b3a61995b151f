"""What people and other programs read: daily memory pages and the files in ``.compression`` (S1.6).

Secrets are masked unless masking is off. The ledger stays the truth: a page that cannot be written is a warning,
never a failed compression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from refold.config import CompressionConfig
from refold.conversation.view import Edit
from refold.errors import ConfigError, LedgerError
from refold.llm.redact import redact_text
from refold.manager.commit import list_summaries
from refold.manager.store import Keeper
from refold.memory import SETTINGS, CompressionFolder, ContextSummary, Entry, write_entry


def write_section(config: CompressionConfig, entry: Entry) -> str:
    """Return a section of the page of the day."""
    masked = replace(
        entry, summary=_mask(config, entry.summary), key_facts=[_mask(config, fact) for fact in entry.key_facts]
    )
    return write_entry(masked)


def write_summaries(
    keeper: Keeper, folder: CompressionFolder, session_id: str, folds: Sequence[Edit] | None = None
) -> None:
    """Write the summaries in force to their file; ``folds`` are those in force where the caller has them at hand."""
    if not folder.folder.is_dir() and not keeper.ledger.read_session(session_id):
        return
    try:
        listed = list_session_summaries(keeper, session_id, folds)
        masked = [
            replace(
                one,
                content=_mask(keeper.config, one.content),
                key_points=tuple(_mask(keeper.config, point) for point in one.key_points),
            )
            for one in listed
        ]
        folder.write_summaries(session_id, masked)
    except (LedgerError, OSError) as error:
        keeper.warn(session_id, f"summaries.json was not written: {error}")


def _mask(config: CompressionConfig, text: str) -> str:
    return redact_text(text) if config.redact else text


def list_settings(config: CompressionConfig) -> dict[str, object]:
    """Return the settings that ``config.json`` shows."""
    return {name: getattr(config, name) for name in SETTINGS.values()}


def apply_folder(config: CompressionConfig, folder: CompressionFolder) -> CompressionConfig:
    """Apply what a person changed in ``config.json``, where the caller did not say otherwise (S1.6)."""
    changed = {
        name: value
        for name, value in folder.read_config().items()
        if (source := config.source(name)) is None or source.layer in ("preset", "user", "project")
    }
    try:
        return config.replace(**changed) if changed else config
    except ConfigError as error:
        raise ConfigError(f"{folder.folder / 'config.json'}: {error}") from None


def list_session_summaries(
    keeper: Keeper, session_id: str, folds: Sequence[Edit] | None = None
) -> list[ContextSummary]:
    """Return the summaries in force of a session; an empty list if there is no such session.

    Whoever has the folds hands them in: reading hundreds of old ones after every compression would take seconds.
    """
    if folds is None:
        return list_summaries([(one.edit, one.created_at) for one in keeper.ledger.read_edits(session_id)])
    batches = enumerate(keeper.ledger.read_batches(session_id), start=1)
    # In the order they were made, which is not that of their times where a clock was set back.
    made = {edit: (number, batch.created_at) for number, batch in batches for edit in batch.edits}
    listed = sorted((*made.get(edit.id, (0, 0.0)), at) for at, edit in enumerate(folds))
    return list_summaries([(folds[at], time) for _, time, at in listed])
