"""What any provider rejects: calls and results that do not pair.

Pairing goes by position: a result answers an open call of the unit it stands in. Ids may come again in a later unit,
not within one. Calls may be open at the very end only. Nothing here raises; a fault is a short stable line.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.conversation.message import Spoken


def find_pair_faults(items: Sequence[Spoken], *, is_spread: bool = False) -> list[str]:
    """Return what is wrong with calls and results. ``is_spread``: one step is several items in a row (Responses)."""
    pairing = _Pairing()
    for item in items:
        has_results = any(part.kind == "result" for part in item.parts)
        is_linked = any(part.kind == "opaque" and part.call_id in pairing.linked for part in item.parts)
        if not has_results and not is_linked and not (is_spread and item.role == "assistant"):
            pairing.close_step()
        for part in item.parts:
            if part.kind == "call":
                pairing.open_call(part.call_id)
            elif part.kind == "result":
                pairing.answer_call(part.call_id)
            elif part.kind == "opaque" and part.call_id:
                pairing.meet_linked(part.call_id)
    return pairing.finish()


class _Pairing:
    """The open and the answered calls of the step at hand."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.open: dict[str, None] = {}
        self.answered: set[str] = set()
        self.linked: dict[str, None] = {}

    def open_call(self, call_id: str) -> None:
        if not self.open and self.answered:
            self.answered = set()  # A new step: ids may come again.
        if call_id in self.open or call_id in self.answered:
            self.faults.append(f"call id twice in one step {call_id}")
        self.open[call_id] = None

    def answer_call(self, call_id: str) -> None:
        if call_id in self.open:
            del self.open[call_id]
            self.answered.add(call_id)
        elif call_id in self.answered:
            self.faults.append(f"second result {call_id}")
        else:
            self.faults.append(f"orphan result {call_id}")

    def meet_linked(self, call_id: str) -> None:
        """Pair blocks that the provider runs itself: they come in twos with one id."""
        if call_id in self.linked:
            del self.linked[call_id]
        else:
            self.linked[call_id] = None

    def close_step(self) -> None:
        """Something else follows: whatever is open stays open for good."""
        self.faults += [f"unanswered call {call_id}" for call_id in self.open]
        self.faults += [f"block without its partner {call_id}" for call_id in self.linked]
        self.open, self.answered, self.linked = {}, set(), {}

    def finish(self) -> list[str]:
        """Return the faults. Calls that were just made may be open; ones passed over by a result may not."""
        if self.answered:
            self.faults += [f"unanswered call {call_id}" for call_id in self.open]
        return self.faults
