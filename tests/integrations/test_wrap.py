"""``refold.wrap`` keeps the contract of integrations, on each interface of the providers' SDKs."""

from pathlib import Path
from typing import Any

import pytest

from refold.testing.integration import CASES, run_case
from tests.integrations.driving import ChatDriver, ClaudeDriver, ResponsesDriver
from tests.tokens.oracle import count_reference


@pytest.mark.parametrize("driver", [ChatDriver, ClaudeDriver, ResponsesDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_contract(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))
