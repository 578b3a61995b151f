"""Reading recorded sessions from files: stub to be filled."""

from __future__ import annotations

from typing import Any

from refold.replay.session import Probe, Session


def read_session(row: dict[str, Any], source: str) -> Session:
    """Read one session of our export."""
    probes = tuple(
        Probe(
            step=probe["step"],
            value=probe["value"],
            sort=probe.get("cls", ""),
            distance=probe.get("distance_in_messages", 0),
            is_hard=probe.get("n_sources") == 1 and not probe.get("in_assistant_text"),
        )
        for probe in row.get("probes") or ()
    )
    return Session(row["id"], tuple(row["messages"]), "openai-chat", None, row.get("tools"), probes, source=source)
