"""A gateway on loopback in front of a scripted provider: both real servers, both in this process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.rigs.server import Rig, start_rig


@pytest.fixture
def start(tmp_path: Path, empty_home: Path) -> Iterator[Callable[..., Rig]]:
    """Start a gateway with settings of the test's own; it is closed with the test."""
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(start_rig(tmp_path / "work", *args, **kwargs))


@pytest.fixture
def rig(start: Callable[..., Rig]) -> Rig:
    """A gateway whose provider always says the same."""
    return start()
