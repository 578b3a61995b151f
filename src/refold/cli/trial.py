"""``refold trial``: does an agent still finish its task when its context is compressed?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refold.cli.app import app, format_examples
from refold.cli.options import AsJson, read_tokens
from refold.cli.output import OutputError, make_console, print_line, print_tables, show_progress, write_json
from refold.cli.words import clean_line, tr, use_language
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.evaluation.arms import Arm
    from refold.trial.player import TrialPlayer
    from refold.trial.report import TrialReport
    from refold.trial.run import TrialRun
    from refold.trial.task import TrialTask

FAILURES_SHOWN = 5
WINDOW = 16_000
# Dollars for a million input tokens of a model whose price is unknown.
PRICE_ASSUMED = 5.0


@app.command(
    epilog=format_examples(
        "refold trial --window 16k --compressors raw,default,trim,last-n",
        "refold trial --player model --model gpt-5.5 --tasks 'booking-*' --dollars 2",
    )
)
def trial(
    compressors: Annotated[
        str, typer.Option("--compressors", metavar="NAMES", help="As for 'refold eval'; the first is compared with.")
    ] = "raw,default",
    window: Annotated[
        int | None, typer.Option("--window", parser=read_tokens, metavar="TOKENS", help="32000 or 32k; default: 16k.")
    ] = None,
    player: Annotated[
        str, typer.Option("--player", metavar="NAME", help="view, perfect, forgetful, or model for a real one.")
    ] = "view",
    model: Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="The model that plays.")] = "",
    tasks: Annotated[str, typer.Option("--tasks", metavar="PATTERN", help="Only tasks such as 'booking-*'.")] = "*",
    dollars: Annotated[float, typer.Option("--dollars", metavar="N", help="The most that a model may cost.")] = 1.0,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="FILE", help="Keep finished runs here, and continue from it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let agents solve small tasks whose reading overflows the window.

    Scripted players need no model: 'view' acts on what it sees in its context alone, so it fails when that has lost
    something. With 'model', a model of yours plays. Tasks and tools are in memory; nothing else is touched.
    """
    from refold.config import load_config
    from refold.evaluation.arms import read_arm
    from refold.trial.player import PLAYERS
    from refold.trial.report import TrialReport, describe_trial
    from refold.trial.run import list_tasks

    use_language(load_config().language)
    if player not in (*PLAYERS, "model"):
        raise ConfigError("--player is {player!r}; give view, perfect, forgetful or model", player=player[:40])
    arms = [read_arm(name) for name in dict.fromkeys(compressors.split(",")) if name.strip()]
    window = window or WINDOW
    chosen = [task for task in list_tasks(window) if fnmatch(task.name, tasks)]
    if not arms or not chosen:
        raise ConfigError("there is nothing to run: name compressors, and tasks such as booking-1")
    make, name = _make_players(model, dollars) if player == "model" else (None, "")
    runs = list(_run_all(chosen, arms, (window, player, name), make=make, kept=Path(resume) if resume else None))
    report = TrialReport(tuple(arm.name for arm in arms), tuple(runs), window, player)
    if as_json:
        write_json(describe_trial(report))
    else:
        _show(report)


MakeTrialPlayer = Callable[["TrialTask", Sequence[Mapping[str, Any]]], "TrialPlayer"]


def _make_players(model: str, dollars: float) -> tuple[MakeTrialPlayer, str]:
    from refold.agent.models import Wanted, choose_chat_model, speak
    from refold.config.load import read_model_variables
    from refold.tokens import model_info
    from refold.trial.player import ModelPlayer, Purse

    found = speak(choose_chat_model(Wanted(model), read_model_variables()).model, "openai-chat")
    prices = model_info(found.name).prices
    price = (prices.input if prices else PRICE_ASSUMED) / 1_000_000
    purse = Purse(dollars)
    return (lambda _, tools: ModelPlayer(found, tools, purse, price)), found.name


def _run_all(
    tasks: Sequence[TrialTask],
    arms: Sequence[Arm],
    terms: tuple[int, str, str],
    *,
    make: MakeTrialPlayer | None,
    kept: Path | None,
) -> Iterator[TrialRun]:
    from refold.trial.run import run_task

    window, player, model = terms
    known = _read_kept(kept)
    with show_progress(tr("running")) as advance:
        for number, task in enumerate(tasks):
            for arm in arms:
                advance(number, len(tasks))
                key = f"{task.name} {arm.name} {player} {model} {window}"
                run = known.get(key)
                if run is None:
                    run = run_task(task, arm, window=window, player=player, model=model, make=make)
                    _keep(kept, key, run)
                yield run


def _read_kept(path: Path | None) -> dict[str, TrialRun]:
    from refold import __version__
    from refold.trial.run import TrialRun

    found: dict[str, TrialRun] = {}
    with suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines() if path else ():
            with suppress(ValueError, TypeError, KeyError):  # A line that was cut off is run again.
                entry = json.loads(line)
                if entry["version"] == __version__:
                    found[entry["key"]] = TrialRun(**{**entry["run"], "wrong": tuple(entry["run"]["wrong"])})
    return found


def _keep(path: Path | None, key: str, run: TrialRun) -> None:
    from refold import __version__

    # A run that a provider cut short is not a result.
    if path is None or run.problem:
        return
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"version": __version__, "key": key, "run": asdict(run)}) + "\n")
    except OSError as error:
        raise OutputError("cannot write {path}: {error}", path=path, error=error.strerror) from error


def _show(report: TrialReport) -> None:
    from refold.trial.report import list_failures, list_families, list_figures, list_tests

    console = make_console(err=False)
    tables = [list_figures(report), list_families(report)]
    tables += [list_tests(report)] if len(report.arms) > 1 else []
    print_tables(console, tables)
    failures = list_failures(report.runs)
    for line in failures[:FAILURES_SHOWN]:
        print_line(console, clean_line(line, 160))
    if len(failures) > FAILURES_SHOWN:
        print_line(console, tr("and {count} more that were not solved", count=len(failures) - FAILURES_SHOWN))
