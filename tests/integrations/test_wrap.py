"""``refold.wrap`` keeps the contract of integrations, on each interface of the providers' SDKs."""

from pathlib import Path
from typing import Any

import pytest

from refold.testing.integration import CASES, run_case
from tests.integrations.driving import ChatDriver, ClaudeDriver, ResponsesDriver
from tests.tokens.oracle import count_reference

# `make test` plays every case but the one with processes on one wire, and these on all of them.
ON_EVERY_WIRE = ("sync", "stream", "overflow", "images", "metadata")


def list_cases() -> list[Any]:
    return [
        pytest.param(
            *(case, driver),
            id=f"{case}-{driver.wire}",
            marks=() if case in ON_EVERY_WIRE or (driver is ClaudeDriver and case != "restart") else pytest.mark.slow,
        )
        for case in CASES
        for driver in (ChatDriver, ClaudeDriver, ResponsesDriver)
    ]


@pytest.mark.parametrize(("case", "driver"), list_cases())
def test_contract(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))
