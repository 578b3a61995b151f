"""``refold eval``: what of recorded sessions a compressor keeps, and an exit code for continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import unite_sessions
from refold.cli.options import AsJson, Model, Window
from refold.cli.output import (
    make_console,
    note_broken,
    print_line,
    print_tables,
    show_progress,
    write_json,
    write_result,
)
from refold.cli.words import clean_line, tr, use_language
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.config import CompressionConfig
    from refold.evaluation.judge import ModelJudge
    from refold.evaluation.report import EvalReport
    from refold.evaluation.run import SessionEvaluation
    from refold.readers.session import Session

FAILED = 1
_WRITERS = ("json", "md", "xml", "html")


@app.command(
    "eval",
    epilog=format_examples(
        "refold eval ~/.claude/projects --window 64k",
        "refold eval sessions/ --questions questions.yaml --ci --out report.xml",
        "refold eval sessions/ --compressors default,trim,my_agent.compact:shorten",
    ),
)
def evaluate_files(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Sessions, as 'refold replay' reads them.")],
    compressors: Annotated[
        str,
        typer.Option(
            "--compressors",
            metavar="NAMES",
            help="Presets (default+depth=generous), baselines, package.module:function or addresses, comma-separated.",
        ),
    ] = "default",
    questions: Annotated[
        str | None, typer.Option("--questions", metavar="FILE", help="Your own questions, in YAML or JSON.")
    ] = None,
    model: Model = None,
    window: Window = None,
    points: Annotated[
        int, typer.Option("--points", metavar="N", min=1, max=1_000, help="Requests of each session to look at.")
    ] = 8,
    judge: Annotated[
        bool, typer.Option("--judge", help="Let the model for summaries answer and grade the questions.")
    ] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Also write a .json, .md, .html or .xml (JUnit) report.")
    ] = None,
    ci: Annotated[bool, typer.Option("--ci", help="Exit with 1 if the first compressor misses a threshold.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what compressors keep of recorded sessions.

    Each session grows request by request. At several points everything that its state holds (task, rules, files,
    checks, receipts, open asks, values) is looked for in the view: retained, recoverable, mutated, stale or missing.
    Thresholds are set by 'eval' in refold.yaml.
    """
    from refold.evaluation.report import describe

    ending = out.rpartition(".")[2].lower() if out else "json"
    if ending not in _WRITERS:
        raise typer.BadParameter(tr("name a .json, .md, .html or .xml file"), param_hint="--out")
    report = _evaluate(files, compressors, questions, (model, window, points), with_judge=judge)
    if out is not None:
        write_result(_write_as(report, ending), out)
    if as_json:
        write_json(describe(report))
    else:
        _show(report)
    if ci and not report.is_passed:
        raise typer.Exit(FAILED)


def _evaluate(
    files: list[str],
    compressors: str,
    questions: str | None,
    asked: tuple[str | None, int | None, int],
    *,
    with_judge: bool,
) -> EvalReport:
    from refold.config import load_config
    from refold.evaluation.arms import read_arm
    from refold.evaluation.questions import read_questions
    from refold.evaluation.report import EvalReport
    from refold.evaluation.run import EvalTerms, evaluate

    config = load_config()
    use_language(config.language)
    arms = [read_arm(name) for name in dict.fromkeys(compressors.split(",")) if name.strip()]
    if not arms:
        raise ConfigError("--compressors is empty; name some, for example --compressors default,trim")
    model, window, points = asked
    own = read_questions(questions) if questions else ()
    terms = EvalTerms(model, window, own, points, _make_judge(config) if with_judge else None)
    sessions = _read_sessions(files)
    made: list[SessionEvaluation] = []
    with show_progress(tr("evaluating")) as advance:
        for session in sessions:
            for arm in arms:
                advance(len(made), len(sessions) * len(arms))
                made.append(evaluate(session, arm, terms))
    return EvalReport(tuple(arm.name for arm in arms), tuple(made), config.eval, window)


def _make_judge(config: CompressionConfig) -> ModelJudge:
    from refold.evaluation.judge import ModelJudge
    from refold.llm.summariser import Summariser

    summariser = Summariser(config).join()
    if not summariser.is_there:
        raise ConfigError("--judge needs a model; set compact_model and its key, or model")
    return ModelJudge(summariser.answer_now)


def _read_sessions(files: list[str]) -> list[Session]:
    from refold.readers.file import list_files, read_files

    read = list(read_files(list_files(files)))
    note_broken([f"{Path(file.path).name}, line {one.line}: {one.why}" for file in read for one in file.broken])
    return unite_sessions(read)


def _write_as(report: EvalReport, ending: str) -> bytes:
    import json

    from refold.evaluation.report import describe, write_junit, write_markdown, write_page

    if ending == "xml":
        return write_junit(report)
    if ending == "json":
        return json.dumps(describe(report), indent=2).encode()
    text = write_markdown(report) if ending == "md" else write_page(report)
    return text.encode("utf-8", "replace")


def _show(report: EvalReport) -> None:
    from refold.evaluation.report import list_differences, list_kinds, list_losses, list_rows

    console = make_console(err=False)
    tables = [list_rows(report), list_kinds(report)]
    tables += [list_differences(report)] if len(report.arms) > 1 else []
    print_tables(console, tables)
    for problem in dict.fromkeys(f"{one.session}: {one.problem}" for one in report.evaluations if one.problem):
        print_line(console, clean_line(problem, 300))
    for session, loss in list_losses(report, report.arms[0])[:5]:
        line = f"{loss.verdict} {loss.expected.kind} ({session}, {loss.at}): {loss.expected.text}"
        print_line(console, clean_line(line, 160))
    missed = [check for check in report.checks(report.arms[0]) if not check.is_met]
    for check in missed:
        print_line(console, f"✗ {report.arms[0]}: {check.sentence}")
    if not missed:
        print_line(console, tr("✓ {arm} meets every threshold", arm=report.arms[0]))
