"""Finding probes in a recording: exact values that a call took from an earlier result or user message.

Where an export names them already, those are used. A value counts once per step; its distance is to the newest
earlier copy that is not the assistant's own. Linear in the recording.
"""

from __future__ import annotations

from refold.errors import RefoldError
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.replay.session import Probe, Session
from refold.stages.extract.values import find_values

VALUE_CHARS_MIN = 4
PROBES_MAX = 5_000


def find_probes(session: Session) -> tuple[Probe, ...]:
    """Return the values that calls of this session reuse; none if its messages cannot be read."""
    try:
        messages = parse_messages(make_format(session.format), session.messages)
    except RefoldError:
        return ()
    sources: dict[str, list[int]] = {}
    spoken: set[str] = set()
    probes: list[Probe] = []
    for at, message in enumerate(messages):
        used: dict[str, str] = {}
        for part in message.parts:
            if part.kind == "call":
                used |= {value: sort for sort, value in find_values(part.text.replace("\\n", "\n").replace('\\"', '"'))}
        for value, sort in used.items():
            places = sources.get(value)
            if places and len(value) >= VALUE_CHARS_MIN:
                is_hard = len(places) == 1 and value not in spoken
                probes.append(Probe(at, value, sort, at - places[-1], is_hard))
        spoken.update(used)
        for part in message.parts:
            if part.kind == "result" or (part.kind == "text" and message.role == "user"):
                for _, value in find_values(part.text):
                    places = sources.setdefault(value, [])
                    if not places or places[-1] != at:
                        places.append(at)
            elif part.kind == "text" and message.role == "assistant":
                spoken.update(value for _, value in find_values(part.text))
        if len(probes) >= PROBES_MAX:
            break
    return tuple(probes[:PROBES_MAX])
