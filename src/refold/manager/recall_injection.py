"""Recall for a manager, and recalled text below the newest user message.

Recalled text is an edit of that message, stored when it is made: the next request shows the same bytes (L6), and
forgetting a quoted message removes the quote. It is added only to the last message, so nothing before it changes. If
there is no room it is removed first, and a compression runs as if nothing had been recalled.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from refold.conversation import because
from refold.conversation.message import is_user_turn
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import RECALL, Edit, Item, View, amend, apply
from refold.errors import RefoldError
from refold.ledger.place import find_index_file, find_place
from refold.ledger.records import Event
from refold.manager.session import OpenSession
from refold.recall.inject import Injection, find_cause
from refold.recall.originals import find_handle
from refold.recall.recall import Recall

if TYPE_CHECKING:
    from refold.manager.store import Keeper


def add_recalled(keeper: Keeper, session: OpenSession, tokens_free: int, *, is_compressed: bool) -> Reason:
    """Add the originals that the last message refers to, if a user wrote it; return the report's note, never raise."""
    if keeper.config.recall.inject == "off":
        return NO_REASON
    try:
        if is_compressed:
            keeper.recall.open().upkeep.ask(session.id)
        return _add(keeper, keeper.recall.open(), session, tokens_free) if _may_be_added(session) else NO_REASON
    except RefoldError as error:
        why = because.ERROR(error=type(error).__name__, detail=str(error)[:300])
        return because.RECALL_NOTHING(because=why)


def find_quiet_note(keeper: Keeper, session: OpenSession) -> Reason | None:
    """Return the report's note if the newest message alone shows that nothing will be recalled; None if unsure."""
    if keeper.config.recall.inject == "off" or not _may_be_added(session):
        return NO_REASON
    if _find_part(session.items[-1]) is None:
        return NO_REASON
    cause = find_cause(_read_newest(session), keeper.config.recall.inject)
    return None if cause.is_one else because.RECALL_NOTHING(because=cause.reason)


def _read_newest(session: OpenSession) -> str:
    return "\n".join(part.text for part in session.items[-1].parts if part.kind == "text")


def _add(keeper: Keeper, recall: Recall, session: OpenSession, tokens_free: int) -> Reason:
    item = session.items[-1]
    part = _find_part(item)
    if part is None:
        return NO_REASON
    injection = recall.inject(
        session.id,
        _read_newest(session),
        lambda: [message_id for message_id in session.ids if message_id not in session.messages],
        in_view=lambda: "\n".join(one.text for shown in session.items[:-1] for one in shown.parts),
        tokens_max=max(0, tokens_free),
        now=keeper.clock(),
    )
    if not injection.acts:
        return because.RECALL_NOTHING(because=injection.reason)
    edit = _make_edit(keeper, session, part, injection)
    shown = session.lens.edited(item.message, [edit])
    if shown is None or shown.tokens - item.tokens > tokens_free:
        return because.RECALL_NOTHING(because=because.RECALL_NO_ROOM(because=injection.reason))
    # The edit's reason quotes words of the message and is erased with it; an event stays forever, so it quotes none.
    handles = [one.handle for one in injection.snippets]
    fields = {"reason": because.RECALLED().to_json(), "handles": handles, "tokens": injection.tokens, "edit": edit.id}
    is_stored = _store(keeper, session, edit, Event("recalled", keeper.clock(), fields))
    if is_stored:
        session.change_last(shown, edit)
    return because.RECALL_NOTE(because=injection.reason) if is_stored else NO_REASON


def _may_be_added(session: OpenSession) -> bool:
    """Return whether the last item is an unchanged message of a person, and some messages are out of view."""
    if not session.items or len(session.messages) == len(session.ids):
        return False
    last = session.items[-1]
    return not last.edits and is_user_turn(last.role, last.parts) and session.places[-1] >= 0


def _find_part(item: Item) -> int | None:
    """Return the index of a message's last text; the item has the parts of the message, since nothing edits it."""
    found = [at for at, part in enumerate(item.parts) if part.kind == "text" and part.text.strip()]
    return found[-1] if found else None


def _make_edit(keeper: Keeper, session: OpenSession, part: int, injection: Injection) -> Edit:
    item = session.items[-1]
    # The edit covers the quoted messages too, so it is removed when one of them is forgotten. It is made from the edits
    # that hide them: undoing those shows the originals again, and no quote is needed (L7).
    quoted = {
        stored.id: None
        for snippet in injection.snippets
        for stored in keeper.ledger.find_messages(session.id, snippet.handle.removeprefix("m:"))
        if stored.id != item.message.id
    }
    return Edit(
        kind="replace",
        stage=RECALL,
        covers=(item.message.id, *quoted),
        made_from=tuple(edit.id for edit in session.edits if not quoted.keys().isdisjoint(edit.covers)),
        part=part,
        text=f"{item.parts[part].text}\n\n{injection.text}",
        reason=injection.reason,
        tokens_before=item.tokens,
        tokens_after=item.tokens + injection.tokens,
    )


def _store(keeper: Keeper, session: OpenSession, edit: Edit, event: Event) -> bool:
    """Store the edit; False if another process changed the session, or this edit was undone before."""
    now, version = event.created_at, session.row.edits_version
    stored = keeper.ledger.append(
        session.id, (), (), version=session.path_version, now=now, arrival=(edit,), events=(event,)
    )
    row = keeper.ledger.read_session(session.id)
    if stored is None or row is None or row.edits_version == version:
        return False
    if row.edits_version == version + 1 and row.path_version == session.path_version:
        session.row = row
    else:
        session.path_version = -1  # Another process changed it as well: the next use reloads it.
    return True


def leave_out_recalled(view: View) -> View:
    """Return the view without recalled text."""
    said = [edit for edit in view.edits if edit.stage != RECALL]
    if len(said) == len(view.edits):
        return view
    return apply(view.messages, said, view.lens, fixed_tokens=view.fixed_tokens, pinned=view.pinned)


def put_back_recalled(before: View, after: View, hard: int) -> View:
    """Return a compressed view with the recalled text: all of it, the newest, or none, as far as there is room."""
    recalled = [edit for edit in before.edits if edit.stage == RECALL]
    # A message that a compression shortened had no room: text below it would undo the cut.
    cut = {edit.covers[0] for item in after.items if not item.is_fold for edit in item.edits}
    kept = [edit for edit in recalled if edit.covers[0] not in cut]
    for some in (kept, kept[-1:]):
        if some and (view := amend(after, some)).tokens <= hard:
            return view
    return after


def make_room(keeper: Keeper, session: OpenSession, fixed_tokens: int, hard: int) -> bool:
    """Withdraw recalled text if the view does not fit because of it; False if that is not the cause."""
    if session.item_tokens + fixed_tokens <= hard or not any(edit.stage == RECALL for edit in session.edits):
        return False
    view = session.make_view(keeper.ledger, fixed_tokens=fixed_tokens)
    said = leave_out_recalled(view)
    return said.tokens <= hard and bool(give_up_recalled(keeper, session, put_back_recalled(view, said, hard)))


def give_up_recalled(keeper: Keeper, session: OpenSession, shown: View) -> int:
    """Switch off recalled text that is not in the new view; return the number of edits."""
    kept = {edit.id for edit in shown.edits}
    lost = [edit.id for edit in session.edits if edit.stage == RECALL and edit.id not in kept]
    if not lost:
        return 0
    now = keeper.clock()
    event = Event("recalled", now, {"reason": because.TAKEN_BACK().to_json(), "edits": lost})
    return keeper.ledger.switch_edits(session.id, lost, on=False, now=now, event=event)


class RecallAccess:
    """The recall index of one manager, next to the ledger's file, opened when it is first used."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._recall: Recall | None = None
        self._guard = threading.Lock()

    def open(self) -> Recall:
        """Return the index with the current settings."""
        keeper, config = self._keeper, self._keeper.config
        options, variables = config.recall, config.variables
        with self._guard:
            if self._recall is None:
                path = find_index_file(keeper.workspace, find_place(keeper.ledger, config.ledger))
                self._recall = Recall(
                    keeper.ledger,
                    path,
                    options,
                    variables=variables,
                    complain=lambda name, problem: keeper.complain(name, [problem], is_logged=False),
                    is_observed=lambda message: keeper.judge_observations()(message),
                )
        self._recall.configure(options, variables)
        return self._recall

    def forget(self, session_id: str, handle: str | None = None) -> None:
        """Remove the messages behind a handle, or a whole session, from the index, before the ledger forgets them."""
        recall = self.open()
        # Indexing in progress must not add the messages again afterwards.
        recall.upkeep.close()
        if handle is None:
            recall.delete_session(session_id)
            return
        row = self._keeper.ledger.read_session(session_id)
        if row is not None:
            recall.forget(session_id, [stored.id for stored in find_handle(self._keeper.ledger, row, handle)])

    def close(self) -> None:
        """Close the index, if it was opened."""
        if self._recall is not None:
            self._recall.close()
