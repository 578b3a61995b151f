"""Names of events on the page: every kind that is logged has one in both languages."""

from __future__ import annotations

import pytest

from refold.manager.notices import KINDS
from refold.manager.status import DECISION_KINDS
from refold.sentences import tr
from refold.web.visit import LANGUAGES, has_words

# A question to listeners is never stored; the event after it is logged without a listener.
LOGGED = sorted({*KINDS, *DECISION_KINDS, "recalled", "tuned", "forgotten"} - {"before_compress"})


@pytest.mark.parametrize("kind", LOGGED)
def test_every_kind_of_event_has_its_name_in_both_languages(kind: str) -> None:
    assert has_words(f"statistics.kind_{kind}")
    assert len({tr(f"statistics.kind_{kind}", language) for language in LANGUAGES}) == 2
