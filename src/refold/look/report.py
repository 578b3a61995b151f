"""The figures of all studies together, as an object, as JSON and as a page that can be shared.

Nothing here has words of a conversation, names of files or of projects: a study holds none.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import resources

from refold.conversation.reason import count_things, shorten_number
from refold.look.study import HABITS, LONG_TOKENS, OLD_REQUESTS, USUAL_MODEL, WINDOWS, Study
from refold.replay.page import draw_stacks

HABITS_MAX = 5
OVERFLOWS_MAX = 10
# A session whose largest request passes this fills the window that most clients have.
FULL_TOKENS = 180_000
# What each habit is, and what to do about it.
ADVICE: Mapping[str, str] = {
    "read again": "files read a second time, unchanged",
    "long files": f"files of more than {LONG_TOKENS:,} tokens read whole; ask for the lines you need",
    "long outputs": f"outputs of more than {LONG_TOKENS:,} tokens; pipe them through head, tail or grep",
    "pasted": f"pasted texts of more than {LONG_TOKENS:,} tokens; name a file instead",
    "cold cache": "pauses after which the provider's cache was cold; finish, or start anew after a break",
    "old history": f"history older than {OLD_REQUESTS} requests, sent with every one",
    "instructions": "system prompt, tools and rules files, sent with every request",
}
NOTES = (
    "Sessions with usage of the provider are billed by it, the others by their sizes and the model's prices.",
    "Bills with refold are estimated from sizes, without what an agent would read again; "
    "'refold replay' plays a session in full.",
    "Habits overlap, so their costs do not add up.",
    "Models without a known price are billed like {like}: {models}.",
)


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """All sessions with refold in one window."""

    window: int
    dollars: float
    folds: int


@dataclass(frozen=True, slots=True)
class LookReport:
    """All studies together."""

    sessions: int
    requests: int
    tokens: int
    dollars: float
    reported: int
    unpriced: tuple[str, ...]
    clients: tuple[tuple[str, int, int, float], ...]
    windows: tuple[WindowFigures, ...]
    reads: int
    repeated: int
    repeated_tokens: int
    overflowed: tuple[Study, ...]
    compactions: int
    used: int
    lost: int
    habits: tuple[tuple[str, float], ...]


def sum_up(studies: Sequence[Study]) -> LookReport:
    """Add the studies up."""
    clients: dict[str, list[Study]] = defaultdict(list)
    habits: Counter[str] = Counter()
    for study in studies:
        clients[study.client].append(study)
        habits.update({name: cost for name, cost in study.habits.items() if name in HABITS})
    full = [study for study in studies if study.compactions or study.peak > FULL_TOKENS]
    return LookReport(
        sessions=len(studies),
        requests=sum(study.requests for study in studies),
        tokens=sum(study.tokens for study in studies),
        dollars=math.fsum(study.dollars for study in studies),
        reported=sum(study.is_reported for study in studies),
        unpriced=tuple(sorted({study.model or "unknown" for study in studies if not study.is_priced})),
        clients=tuple(
            sorted(
                (
                    (name, len(some), sum(one.tokens for one in some), math.fsum(one.dollars for one in some))
                    for name, some in clients.items()
                ),
                key=lambda row: -row[3],
            )
        ),
        windows=tuple(_sum_window(studies, window) for window in WINDOWS),
        reads=sum(study.reads for study in studies),
        repeated=sum(study.repeated for study in studies),
        repeated_tokens=sum(study.repeated_tokens for study in studies),
        overflowed=tuple(sorted(full, key=lambda study: (-study.compactions, -study.peak))),
        compactions=sum(study.compactions for study in studies),
        used=sum(study.used for study in studies),
        lost=sum(study.lost for study in studies),
        habits=tuple(habits.most_common(HABITS_MAX)),
    )


def _sum_window(studies: Sequence[Study], window: int) -> WindowFigures:
    some = [study.estimates[window] for study in studies if window in study.estimates]
    return WindowFigures(window, math.fsum(one.dollars for one in some), sum(one.folds for one in some))


def describe_look(found: LookReport, days: int) -> dict[str, object]:
    """Return the figures for ``--json``."""
    return {**asdict(found), "days": days}


def write_look_page(found: LookReport, days: int) -> bytes:
    """Return the report as one HTML file that opens from disk: no script, no network, no file beside it."""
    style = (resources.files("refold.replay") / "style.css").read_text(encoding="utf-8")
    bars = {"as it was": {"dollars": found.dollars}}
    bars |= {f"refold {window.window // 1000}k": {"dollars": window.dollars} for window in found.windows}
    clients = [
        (name, f"{count:,}", shorten_number(tokens), f"${dollars:,.2f}")
        for name, count, tokens, dollars in found.clients
    ]
    habits = [(ADVICE[name], f"${dollars:,.2f}") for name, dollars in found.habits]
    full = [
        (one.client, one.model or "unknown", f"{one.requests:,}", f"{one.peak:,}", f"{one.compactions}", _say_lost(one))
        for one in found.overflowed[:OVERFLOWS_MAX]
    ]
    notes = " ".join(line.format(like=USUAL_MODEL, models=", ".join(found.unpriced)) for line in list_notes(found))
    body = (
        f"<h1>{days} days of agents</h1>"
        f'<p class="soft">{count_things(found.sessions, "session")}, {count_things(found.requests, "request")}, '
        f"{shorten_number(found.tokens)} input tokens, ${found.dollars:,.2f}.</p>"
        f"<h2>The bill, and what refold would have made of it</h2>{draw_stacks(bars, title='Dollars by window')}"
        f"{_write_rows(('client', 'sessions', 'tokens', 'bill'), clients)}"
        f"<h2>Read twice</h2><p>{found.repeated:,} of {found.reads:,} reads repeated one before, unchanged: "
        f"{found.repeated_tokens:,} tokens.</p>"
        f"<h2>Sessions that filled the window</h2>"
        f"{_write_rows(('client', 'model', 'requests', 'largest', 'compactions', 'lost'), full)}"
        f"<h2>The most expensive habits</h2>{_write_rows(('habit', 'cost'), habits)}"
        f'<p class="soft">{escape(notes)}</p>'
    )
    head = f'<meta charset="utf-8"><title>refold look</title><style>{style}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return f'<!doctype html>\n<html lang="en"><head>{head}{view}</head><body>{body}</body></html>\n'.encode()


def list_notes(found: LookReport) -> list[str]:
    """Return what a reader must know about the figures, as sentences in English; the last one may name models."""
    return [*NOTES[:-1], *([NOTES[-1]] if found.unpriced else [])]


def _say_lost(study: Study) -> str:
    return f"{study.lost} of {study.used}" if study.used else "-"


def _write_rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return '<p class="soft">None.</p>'
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>'
