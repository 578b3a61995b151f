"""Write all sample sessions: ``python -m examples.make_sessions [folder]``, by default into examples/sessions."""

from __future__ import annotations

import sys
from pathlib import Path

from examples.make_sessions import anthropic_thinking, chat_zh, coding_agent, responses_agent

SESSIONS = Path(__file__).resolve().parent.parent / "sessions"


def main(folder: Path) -> None:
    """Write the four sessions and their facts."""
    folder.mkdir(parents=True, exist_ok=True)
    for writer in (coding_agent, chat_zh, anthropic_thinking, responses_agent):
        writer.write_session(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS)
