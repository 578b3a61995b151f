"""What is known of a session: typed facts, where each was said, first and last, and which a later one replaced.

Facts come from compressions (the ledger) and, by rule, from what people and the assistant said. A fact that is replaced
stays, with the one that replaced it. Nothing is reworded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from refold.conversation.view import Fact, FactKind
from refold.ledger.port import Ledger
from refold.ledger.records import SessionRow, format_of
from refold.recall.newer import contradicts
from refold.recall.passages import read_original
from refold.stages.extract.facts import find_facts
from refold.stages.extract.words import Saying

# By rule only the newest messages are read; older facts are in the ledger since they were folded.
MESSAGES_MAX = 2_000
_PAGE = 1_000
# Each fact is compared with so many before it; contradictions of long ago are rare, and all pairs would be quadratic.
_COMPARED_MAX = 400


@dataclass(frozen=True, slots=True)
class KnownFact:
    """One fact. ``handles`` are where it was said, in order; times are seconds since 1970, 0 if nobody noted them.

    ``superseded_by`` is the text of the fact that holds instead; empty while this one holds.
    """

    kind: FactKind
    text: str
    handles: tuple[str, ...] = ()
    first_seen: float = 0.0
    last_seen: float = 0.0
    superseded_by: str = ""
    session_id: str = ""

    @property
    def holds(self) -> bool:
        """True while no later fact contradicts this one."""
        return not self.superseded_by


def collect_facts(ledger: Ledger, row: SessionRow | None, *, with_history: bool = False) -> list[KnownFact]:
    """Return the facts of a session, or of all of them, in the order they were last said."""
    if row is None:
        stored = ledger.read_facts(None)
        by_session: dict[str, list[tuple[Fact, float]]] = {}
        for one in stored:
            by_session.setdefault(one.session_id, []).append((one.fact, one.created_at))
        groups = [(name, resolve_facts(said, name)) for name, said in by_session.items()]
        known = [fact for _, facts in groups for fact in facts]
    else:
        said = [(one.fact, one.created_at) for one in ledger.read_facts(row.id)]
        known = resolve_facts([*said, *find_said(ledger, row, ledger.read_path(row.id).ids[-MESSAGES_MAX:])], row.id)
    return [fact for fact in known if with_history or fact.holds]


def resolve_facts(said: Iterable[tuple[Fact, float]], session_id: str = "") -> list[KnownFact]:
    """Join what was said more than once and mark what a later fact contradicts; in the order they were last said."""
    known: dict[str, KnownFact] = {}
    for fact, seen in said:
        key = " ".join(fact.text.split()).casefold()
        if not key:
            continue
        before = known.pop(key, None)
        if before is None:
            said_at = (fact.handle,) if fact.handle else ()
            known[key] = KnownFact(fact.kind, fact.text, said_at, seen, seen, session_id=session_id)
            continue
        handles = tuple(dict.fromkeys((*before.handles, *filter(None, (fact.handle,)))))
        times = [time for time in (before.first_seen, before.last_seen, seen) if time]
        known[key] = replace(
            before,
            handles=handles,
            first_seen=min(times, default=0.0),
            last_seen=max(times, default=0.0),
        )
    # The same time for a whole batch is common: the sort keeps the order in which things were said.
    return _mark_superseded(sorted(known.values(), key=lambda fact: fact.last_seen))


def _mark_superseded(facts: Sequence[KnownFact]) -> list[KnownFact]:
    marked = list(facts)
    for at, later in enumerate(facts):
        for earlier in range(max(0, at - _COMPARED_MAX), at):
            if marked[earlier].holds and contradicts(facts[earlier].text, later.text, later.kind):
                marked[earlier] = replace(marked[earlier], superseded_by=later.text)
    return marked


def find_said(ledger: Ledger, row: SessionRow, ids: Sequence[str]) -> list[tuple[Fact, float]]:
    """Return the facts in what was said in these messages, by rule."""
    form = format_of(row)
    found: list[tuple[Fact, float]] = []
    for start in range(0, len(ids), _PAGE):
        for stored in ledger.read_messages(row.id, ids[start : start + _PAGE]):
            if stored.role not in ("user", "assistant") or stored.is_forgotten:
                continue
            original = read_original(stored, form)
            saying = Saying(stored.seq, original.text, original.handle, stored.role)
            found += [(fact, stored.created_at) for fact in find_facts([saying])]
    return found
