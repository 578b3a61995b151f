"""Fixtures that all tests share: the project's root, the hypothesis profiles, and the optional recorded sessions.

No fixture here may reach the network, read the user's home, or replace a part of refold by a double.
"""

import gc
import ssl
import subprocess
import time
from collections.abc import Generator, Iterator
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.rigs.effort import QUICK, QUICK_EXAMPLES
from tests.rigs.postgres import stop_servers
from tests.rigs.rows import tell_rows

ROOT = Path(__file__).resolve().parents[1]
STARTED = time.monotonic()

# Machines that run this are slow and shared: a deadline would measure them, not us. Timings are benchmarks.
settings.register_profile(
    "full",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
# `make test` loads this one with --hypothesis-profile.
settings.register_profile(QUICK, settings.get_profile("full"), max_examples=QUICK_EXAMPLES)
settings.load_profile("full")


@pytest.fixture(scope="session")
def project_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded sessions, which is not part of the project; tests that want it skip without it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no recorded sessions at ../shared/data; the rest of the suite does not need them")
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let clients trust one authority of the system's: reading all takes 35 ms per client, and no test reaches one."""
    known = ssl.create_default_context().get_ca_certs(binary_form=True)
    with pytest.MonkeyPatch.context() as patch:
        if known:
            file = tmp_path_factory.mktemp("authority") / "one.pem"
            file.write_text(ssl.DER_cert_to_PEM_cert(known[0]))
            patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session", autouse=True)
def short_pauses() -> Iterator[None]:
    """Retry at once and index without pauses; the tests of the pauses name their own."""
    from refold.llm.errors import RetryLimits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RetryLimits.__init__, "__defaults__", astuple(RetryLimits(delay_s=0.01)))
        patch.setattr("refold.recall.recall.PAUSE_S", 0.0)  # Other threads still get their turn.
        patch.setattr("refold.recall.upkeep._PAUSE_S", 0.001)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep keys and trust of the tests' folders away from those of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it, so that no setting of the person who runs the tests is seen."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, never walk through them again, and then collect rarely.

    That is a fifth of the time of the collection, and a twelfth of that of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(100_000, 50, 50)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave tests over recorded sessions to ``make test-slow``: each repeats on real text what others show on small."""
    if "shared_data" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give long tests longer: on a loaded machine a growing chat in a terminal takes several minutes."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1_800))
    if config.getoption("--minutes") is not None:
        items[:] = start_elsewhere(items, read_commit())


def read_commit() -> str:
    """Return the commit under test; nothing where this is not a clone."""
    asked = subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def start_elsewhere(items: list[pytest.Item], commit: str) -> list[pytest.Item]:
    """Begin with another file at every commit, so that runs that are cut short leave out different tests."""
    if not items or not commit:
        return items
    at = int(commit[:8], 16) * len(items) // 16**8
    while at and items[at].path == items[at - 1].path:
        at -= 1
    return items[at:] + items[:at]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, help="skip the tests that have not started after this many minutes")


def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - STARTED > minutes * 60:
        pytest.skip(f"the {minutes:g} minutes of this run are over")


def pytest_unconfigure() -> None:
    stop_servers()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each row of the design documents with the number of tests that passed for it."""
    reports = [
        (report.nodeid, name)
        for name in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(name, ())
    ]
    terminalreporter.section("rows of the design documents: tests that passed, · none ran")
    for line in tell_rows(reports):
        terminalreporter.write_line(line)
