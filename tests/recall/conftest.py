from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.recall import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path)
    yield made
    made.recall.close()
    made.ledger.close()
