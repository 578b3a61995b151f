"""Replaying request by request: what is counted, billed and checked, on sessions small enough to follow."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from refold.budget import Budget, Tariff
from refold.config import CompressionConfig
from refold.conversation import because
from refold.errors import ConfigError
from refold.readers.session import Probe, Session
from refold.replay.page import write_page
from refold.replay.policy import BASELINES, LadderPolicy, PolicyRoom, Step, TrimWords
from refold.replay.record import SessionRecord
from refold.replay.report import ReplayReport, describe, tally_preset, write_bill_rows, write_probe_rows, write_rows
from refold.replay.run import ReplayJob, Terms, check_presets, replay_session, run_jobs
from refold.tokens import CacheRules, counter_for
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.histories import agent_messages

CACHE = CacheRules(read=0.1, write=1.25, lifetime_s=300)
TARIFF = Tariff(CACHE, output=5.0)
COUNTER = counter_for("gpt-4o")


def make_budget(hard: int) -> Budget:
    return Budget(hard=hard, soft=hard * 98 // 100, warn=hard // 2, target=hard // 5, window=hard)


def replay(session: Session, preset: str, hard: int) -> SessionRecord:
    baseline = BASELINES.get(preset)
    make = baseline or (lambda room: LadderPolicy(room, CompressionConfig(preset=preset)))
    return replay_session(session, preset, make, lambda _: make_budget(hard), counter=COUNTER, tariff=TARIFF)


@pytest.fixture
def session() -> Session:
    return Session("s", tuple(agent_messages(30)), probes=(Probe(18, "lib/used_003.py", "file", 9, True),))


def test_there_is_a_request_wherever_the_assistant_spoke(session: Session) -> None:
    record = replay(session, "raw", 10**6)
    spoken = [at for at, message in enumerate(session.messages) if message["role"] == "assistant"]
    assert [request.at for request in record.requests] == spoken
    sizes = [COUNTER.count_messages(list(session.messages[:at])) for at in spoken]
    assert [request.tokens for request in record.requests] == sizes


def test_raw_shares_all_that_was_sent_before(session: Session) -> None:
    record = replay(session, "raw", 10**6)
    assert record.requests[0].shared_tokens == 0
    for one, two in zip(record.requests, record.requests[1:], strict=False):
        assert two.shared_tokens == one.tokens
    first = record.requests[0]
    assert record.charge(TARIFF).write == pytest.approx(1.25 * (record.requests[-1].tokens))
    assert first.charge(TARIFF).output == 5.0 * first.output_tokens


@pytest.mark.parametrize("hard", [1_500, 4_000])
def test_default_fits_is_valid_and_keeps_the_newest_message(session: Session, hard: int) -> None:
    record = replay(session, "default", hard)
    assert all(request.is_fit and not request.violations and request.is_intact for request in record.requests)
    acted = [request for request in record.requests if request.stages]
    assert acted
    assert all(request.reason for request in acted)
    assert all(request.is_break == bool(request.stages) for request in record.requests)
    raw = replay(session, "raw", hard)
    assert record.charge(TARIFF).total < raw.charge(TARIFF).total
    assert not all(request.is_fit for request in raw.requests)


def test_what_was_prepared_stays_until_the_next_change(session: Session) -> None:
    record = replay(session, "default", 3_000)
    for one, two in zip(record.requests, record.requests[1:], strict=False):
        if not two.stages:
            assert two.shared_tokens == one.tokens


def test_a_probe_is_looked_for_in_the_view_of_its_own_request(session: Session) -> None:
    assert [probe.in_view for probe in replay(session, "raw", 10**6).probes] == [True]
    assert [probe.in_view for probe in replay(session, "last-n", 500).probes] == [False]


def test_what_left_the_view_is_found_by_recall_where_originals_are_kept() -> None:
    probes = (Probe(40, "word2x7", "identifier", 30, True), Probe(40, "word39x1", "identifier", 1, True))
    session = Session("s", tuple(agent_messages(60)), probes=probes)
    lost = replay(session, "last-n", 1_000)
    assert [(one.in_view, one.is_found) for one in lost.probes] == [(False, False), (False, False)]
    kept = replay(session, "default", 1_500)
    assert [(one.in_view, one.is_found) for one in kept.probes] == [(False, True), (False, False)]
    # word39x1 is said long after: later messages are not searched.
    tally = tally_preset("default", [kept], lambda _: TARIFF)
    assert (tally.probes.view_percent, tally.probes.found_percent) == (0.0, 50.0)
    assert tally.by_distance["21-40"].found == 1
    assert tally.by_sort["identifier"].whole == 2


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_other_formats_are_replayed_as_they_are(wire: str) -> None:
    messages = agent_messages(30)
    body = to_anthropic(messages) if wire == "anthropic" else to_responses(messages, reasoning=True)
    system = body.get("system")
    session = Session("s", tuple(body.get("messages") or body["input"]), wire, system)
    record = replay(session, "default", 2_500)
    assert len(record.requests) == 31, "one for each answer, however many items it has"
    assert all(request.is_fit and not request.violations for request in record.requests)
    assert any(request.stages for request in record.requests)


@pytest.mark.parametrize("preset", list(BASELINES))
def test_every_baseline_replays_a_session(session: Session, preset: str) -> None:
    record = replay(session, preset, 2_000)
    assert len(record.requests) == 31
    assert not any(request.violations for request in record.requests)


def test_a_cold_cache_is_billed_and_acted_on() -> None:
    messages = tuple(agent_messages(60))
    # The pause comes while much has gathered, and before the first fold that pays with a warm cache.
    times = tuple(float(at) if at < 63 else 10_000.0 + at for at in range(len(messages)))
    config = CompressionConfig(economic_ratio=0.2)

    def run(session: Session) -> SessionRecord:
        def make(room: PolicyRoom) -> LadderPolicy:
            return LadderPolicy(room, config)

        return replay_session(session, "default", make, lambda _: make_budget(20_000), counter=COUNTER, tariff=TARIFF)

    cold, warm = run(Session("s", messages, times=times)), run(Session("s", messages))
    assert any(request.reason.is_a(because.COLD) for request in cold.requests if request.stages)
    assert not any(request.reason.is_a(because.COLD) for request in warm.requests)


def test_a_window_that_nothing_fits_into_is_reported_and_raises_nothing() -> None:
    record = replay(Session("s", tuple(agent_messages(5))), "default", 20)
    assert not any(request.is_fit for request in record.requests)
    assert "budget" in record.problem


def test_a_record_comes_back_from_json_as_it_was(session: Session) -> None:
    record = replay(session, "default", 2_000)
    assert SessionRecord.from_dict(json.loads(json.dumps(asdict(record)))) == record


def make_report(processes: int = 1, keep: Path | None = None) -> ReplayReport:
    sessions = tuple(
        Session(f"s{n}", tuple(agent_messages(20 + n)), probes=(Probe(18, "lib/used_003.py", "file", 9, True),))
        for n in range(3)
    )
    terms = Terms("gpt-4o", 2_500)
    jobs = [ReplayJob(one, preset, terms) for one in sessions for preset in ("raw", "default", "turns")]
    records = run_jobs(jobs, processes=processes, keep=keep)
    return ReplayReport(terms, ("raw", "default", "turns"), sessions, tuple(records))


def test_the_same_input_gives_the_same_report_whatever_runs_beside_it() -> None:
    one, two = make_report(1), make_report(2)
    assert json.dumps(describe(one)) == json.dumps(describe(two))
    assert write_page(one) == write_page(two)


def test_a_stopped_run_continues_where_it_was(tmp_path: Path) -> None:
    keep = tmp_path / "kept.jsonl"
    whole = make_report(keep=keep)
    lines = keep.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 9
    keep.write_text("".join(lines[:4]) + lines[4][:100] + "\n", encoding="utf-8")
    again = make_report(keep=keep)
    assert write_page(again) == write_page(whole)
    assert len(keep.read_text(encoding="utf-8").splitlines()) == 10, "four were kept, one was cut off, five came new"


def test_the_tally_adds_up_and_raw_is_the_measure() -> None:
    report = make_report()
    raw, default, _ = report.tallies()
    assert raw.requests == default.requests == sum(len(one.requests) for one in report.records_of("raw"))
    assert default.fit.percent == 100.0
    assert raw.probes.view_percent == 100.0
    assert default.charge.total < raw.charge.total
    told = describe(report)["presets"]
    assert isinstance(told, list)
    assert told[0]["bill_to_raw"] == 1.0
    assert sum(default.reasons.values()) == default.breaks
    assert told[1]["probes"]["all"]["found"] >= told[1]["probes"]["all"]["in_view"]
    assert told[1]["summariser"] == {"calls": 0, "tokens": 0, "bill": 0.0}


def test_a_preset_that_asks_a_model_is_billed_for_its_calls() -> None:
    session = Session("s", tuple(agent_messages(60)))
    baseline = CompressionConfig(preset="default", fold={"summariser": "llm"})
    made = replay_session(
        session,
        "asking",
        lambda room: LadderPolicy(room, baseline),
        lambda _: make_budget(3_000),
        counter=COUNTER,
        tariff=TARIFF,
    )
    tally = tally_preset("asking", [made], lambda _: TARIFF)
    assert tally.asked >= 1
    asked = [one for request in made.requests for one in request.asked]
    assert any(one.cached_tokens for one in asked), "asked on the conversation that is in the cache"
    # Its prompt at the plain price, what is cached of it at a tenth, its answer at five times that.
    paid = (one.prompt_tokens - 0.9 * one.cached_tokens + 5.0 * one.reply_tokens for one in asked)
    assert tally.charge.summariser == pytest.approx(sum(paid))


def test_nothing_to_tally_is_not_an_error() -> None:
    tally = tally_preset("default", [], lambda _: TARIFF)
    assert (tally.requests, tally.fit.percent, tally.charge.total) == (0, None, 0.0)


def test_an_unknown_preset_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="defualt"):
        check_presets(["raw", "defualt"])
    assert check_presets(["raw", "turns", "raw"]) == ["raw", "turns"]


def test_text_of_a_recording_cannot_leave_its_place_on_the_page() -> None:
    name = "<script>alert(1)</script>\"'&"
    sessions = (Session(name, tuple(agent_messages(12))),)
    records = run_jobs([ReplayJob(sessions[0], "default", Terms(None, 1_500))])
    page = write_page(ReplayReport(Terms(None, 1_500), ("default",), sessions, tuple(records)))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_tables_fit_a_terminal_of_eighty_columns() -> None:
    report = make_report()
    for rows in (write_rows(report), write_bill_rows(report), write_probe_rows(report)):
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        assert sum(widths) + len(widths) - 1 <= 80, rows[0]


def test_trimming_keeps_the_task_the_newest_half_and_both_ends_of_older_words() -> None:
    task = "Fix the export of reports. Run `make submit` when you are done."
    said = [
        message
        for n in range(40)
        for message in (
            {
                "role": "assistant",
                "content": f"head-{n} {'word ' * 60} tail-{n}",
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"result-{n} " * 20},
        )
    ]
    session = Session("s", ({"role": "user", "content": task}, *said, {"role": "assistant", "content": "done"}))
    sent: list[str] = []

    class Watched(TrimWords):
        def prepare(self, idle_s: float = 0.0) -> Step:
            step = super().prepare(idle_s)
            sent.append("\n".join(part.text for item in step.items for part in item.parts))
            return step

    budget = Budget(hard=2_000, soft=2_000, warn=2_000, target=1_000, window=2_000)
    record = replay_session(session, "trim", Watched, lambda _: budget, counter=COUNTER, tariff=TARIFF)
    assert all(request.is_fit and not request.violations for request in record.requests)
    assert task in sent[-1]
    assert all(f"head-{n} " in sent[-1] and f" tail-{n}" in sent[-1] for n in range(40))
    assert "result-39 " in sent[-1]
    assert "result-0 " not in sent[-1]
