"""The report of an evaluation: one value, written as tables, JSON, Markdown, JUnit or a page.

The same evaluations give the same bytes. A report quotes what was lost, so it holds text of the conversations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from refold.config.thresholds import EvalOptions
from refold.evaluation.compare import PairedDifference, compare_pairs
from refold.evaluation.run import Loss, SessionEvaluation, sum_verdicts
from refold.evaluation.verdict import VERDICTS

LOSSES_MAX, TEXT_CHARS = 20, 200
# The worst first: what is wrong misleads, what is missing is asked for again.
_ORDER = {"mutated": 0, "stale": 1, "missing": 2}
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #8884;"
    "text-align:right}td:first-child,th:first-child,.l td{text-align:left}.bad{color:#c33}.ok{color:#2a2}"
)


@dataclass(frozen=True, slots=True)
class EvalCheck:
    """One demand on an arm: whether it holds, and the figure beside its threshold."""

    arm: str
    name: str
    figure: float
    limit: float
    is_met: bool

    @property
    def sentence(self) -> str:
        """The demand in words."""
        return f"{self.name}: {self.figure:.3f}, wanted {'≤' if self.is_most else '≥'} {self.limit:g}"

    @property
    def is_most(self) -> bool:
        """Whether the figure is limited from above."""
        return self.name not in ("retained", "known", "questions", "graded")


@dataclass(frozen=True, slots=True)
class EvalReport:
    """All evaluations, by arm and session, and the thresholds that they are held to."""

    arms: tuple[str, ...]
    evaluations: tuple[SessionEvaluation, ...]
    limits: EvalOptions
    window: int | None = None

    def of(self, arm: str) -> list[SessionEvaluation]:
        """Return the evaluations of one arm, in the order of the sessions."""
        return [evaluation for evaluation in self.evaluations if evaluation.arm == arm]

    def checks(self, arm: str) -> Iterator[EvalCheck]:
        """Yield every demand on an arm."""
        made = self.of(arm)
        figures = sum_figures(made)
        for name in ("retained", "known", "questions", "graded"):
            limit = self.limits.questions if name == "graded" else getattr(self.limits, name)
            if name in figures:
                yield EvalCheck(arm, name, figures[name], limit, figures[name] >= limit - 1e-9)
        for name in ("mutated", "stale"):
            limit = getattr(self.limits, name)
            yield EvalCheck(arm, name, figures[name], limit, figures[name] <= limit + 1e-9)
        for name in ("unfit", "invalid", "problems"):
            yield EvalCheck(arm, name, figures[name], 0, figures[name] == 0)

    @property
    def is_passed(self) -> bool:
        """Whether the first arm meets every demand; others are there to be compared with."""
        return all(check.is_met for check in self.checks(self.arms[0]))

    def compare(self, name: str = "retained") -> dict[str, PairedDifference]:
        """Return how the other arms differ from the first, session by session, in one figure."""
        first = [_figure(one, name) for one in self.of(self.arms[0])]
        return {arm: compare_pairs(first, [_figure(one, name) for one in self.of(arm)]) for arm in self.arms[1:]}


def _figure(one: SessionEvaluation, name: str) -> float:
    return one.share("retained", "recoverable") if name == "known" else one.share(name)  # type: ignore[arg-type]


def sum_figures(made: Sequence[SessionEvaluation]) -> dict[str, float]:
    """Return the figures of one arm: means over sessions, counts of requests that failed."""
    count = max(1, len(made))
    figures = {name: sum(_figure(one, name) for one in made) / count for name in ("retained", "known", *VERDICTS[2:])}
    asked = [question for evaluation in made for question in evaluation.questions]
    if asked:
        figures["questions"] = sum(one.is_answered for one in asked) / len(asked)
    graded = [one.graded for one in asked if one.graded is not None]
    if graded:
        figures["graded"] = sum(graded) / len(graded)
    figures |= {"unfit": sum(one.unfit for one in made), "invalid": sum(one.invalid for one in made)}
    return figures | {"problems": sum(bool(one.problem) for one in made)}


def list_rows(report: EvalReport) -> list[list[str]]:
    """Return one row of figures for each arm, below a row of names."""
    figures = {arm: sum_figures(report.of(arm)) for arm in report.arms}
    names = list(dict.fromkeys(name for figure in figures.values() for name in figure))
    rows = [["compressor", *names]]
    for arm in report.arms:
        cells = [figures[arm].get(name) for name in names]
        counts = ("unfit", "invalid", "problems")
        rows.append(
            [
                arm,
                *(
                    "–" if cell is None else f"{cell:,.0f}" if name in counts else f"{100 * cell:.1f}%"
                    for name, cell in zip(names, cells, strict=True)
                ),
            ]
        )
    return rows


def list_kinds(report: EvalReport) -> list[list[str]]:
    """Return one row for each arm and kind of expected text: how many, and the share of each verdict."""
    rows = [["compressor", "kind", "expected", *VERDICTS]]
    for arm in report.arms:
        for kind, count in sum_verdicts(report.of(arm)).items():
            whole = count.total()
            rows.append([arm, kind, f"{whole:,}", *(f"{100 * count[one] / whole:.0f}%" for one in VERDICTS)])
    return rows


def list_differences(report: EvalReport) -> list[list[str]]:
    """Return one row for each figure and arm that is compared with the first."""
    rows = [[f"against {report.arms[0]}", "figure", "differs", "95% interval", "better/worse", "p sign", "p swap"]]
    for name in ("retained", "known"):
        for arm, found in report.compare(name).items():
            interval = f"{100 * found.low:+.1f} … {100 * found.high:+.1f}"
            wins = f"{found.wins}/{found.losses} of {found.pairs}"
            chance = (f"{found.p_sign:.3f}", f"{found.p_permutation:.3f}")
            rows.append([arm, name, f"{100 * found.mean:+.1f}", interval, wins, *chance])
    return rows


def list_losses(report: EvalReport, arm: str) -> list[tuple[str, Loss]]:
    """Return what an arm lost, the worst first, each text once for a session."""
    found: dict[tuple[str, str], tuple[str, Loss]] = {}
    for one in report.of(arm):
        for loss in one.losses:
            found.setdefault((one.session, loss.expected.text), (one.session, loss))
    return sorted(found.values(), key=lambda pair: _ORDER[pair[1].verdict])[:LOSSES_MAX]


def describe(report: EvalReport) -> dict[str, Any]:
    """Return the report as plain values for JSON."""
    return {
        "window": report.window,
        "passed": report.is_passed,
        "checks": [asdict(check) for arm in report.arms for check in report.checks(arm)],
        "differences": {
            name: {arm: asdict(found) for arm, found in report.compare(name).items()} for name in ("retained", "known")
        },
        "arms": {
            arm: {
                "figures": sum_figures(report.of(arm)),
                "kinds": {kind: dict(count) for kind, count in sum_verdicts(report.of(arm)).items()},
                "sessions": [_describe_session(one) for one in report.of(arm)],
            }
            for arm in report.arms
        },
    }


def _describe_session(one: SessionEvaluation) -> dict[str, Any]:
    plain = {name: getattr(one, name) for name in ("session", "points", "requests", "tokens_peak", "unfit", "invalid")}
    asked = [
        {"question": q.question.question, "at": q.at, "answered": q.is_answered, "graded": q.graded}
        for q in one.questions
    ]
    losses = [
        {"at": loss.at, "verdict": loss.verdict, "kind": loss.expected.kind, "text": loss.expected.text[:TEXT_CHARS]}
        for loss in one.losses
    ]
    return {
        **plain,
        "retained": one.share("retained"),
        "questions": asked,
        "losses": losses,
        "invented": one.invented,
        "problem": one.problem,
    }


def write_markdown(report: EvalReport) -> str:
    """Return the report as Markdown."""
    pieces = ["# Evaluation", _mark_table(list_rows(report)), _mark_table(list_kinds(report))]
    if len(report.arms) > 1:
        pieces.append(_mark_table(list_differences(report)))
    for arm in report.arms:
        pieces.append(f"## {arm}")
        pieces.append("\n".join(f"- {'✓' if check.is_met else '✗'} {check.sentence}" for check in report.checks(arm)))
        losses = [
            f"- {loss.verdict} {loss.expected.kind}, `{session}` at {loss.at}: `{_flat(loss.expected.text)}`"
            for session, loss in list_losses(report, arm)
        ]
        pieces.append("\n".join(losses))
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def _mark_table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _flat(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())[:TEXT_CHARS].replace("`", "'")


def write_junit(report: EvalReport) -> bytes:
    """Return the demands on every arm as a JUnit file; those on the others are skipped if they fail."""
    root = Element("testsuites", name="refold eval")
    for number, arm in enumerate(report.arms):
        checks = list(report.checks(arm))
        failed = [one for one in checks if not one.is_met]
        counts = {"failures": "0" if number else str(len(failed)), "skipped": str(len(failed)) if number else "0"}
        suite = SubElement(root, "testsuite", {"name": arm, "tests": str(len(checks)), **counts})
        for check in checks:
            case = SubElement(suite, "testcase", classname=arm, name=check.name)
            if not check.is_met:
                SubElement(case, "skipped" if number else "failure", message=check.sentence)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True))


def write_page(report: EvalReport) -> str:
    """Return the report as one HTML file without scripts or anything from outside."""
    tables = [list_rows(report), list_kinds(report)]
    tables += [list_differences(report)] if len(report.arms) > 1 else []
    pieces = [_write_table(rows) for rows in tables]
    for arm in report.arms:
        checks = "".join(
            f'<li class="{"ok" if one.is_met else "bad"}">{"✓" if one.is_met else "✗"} {escape(one.sentence)}</li>'
            for one in report.checks(arm)
        )
        losses = [["verdict", "kind", "session", "at", "text"]] + [
            [loss.verdict, loss.expected.kind, session, str(loss.at), _flat(loss.expected.text)]
            for session, loss in list_losses(report, arm)
        ]
        pieces.append(f'<h2>{escape(arm)}</h2><ul>{checks}</ul><div class="l">{_write_table(losses)}</div>')
    body = "\n".join(pieces)
    head = f'<meta charset="utf-8"><title>refold eval</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><h1>Evaluation</h1>\n{body}</body></html>\n'


def _write_table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
