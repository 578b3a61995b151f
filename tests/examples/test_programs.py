"""The example programs run unchanged, and are type-checked with the package."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAYS = {
    "long_chat.py": ["120 messages were said", "INV-20417", "compressions: "],
    "agent_with_tools.py": ["folded: ", "Day 7 had three errors.", "29 of 31 requests repeat the one before them"],
    "gateway_client.py": ["answer: Noted.", "->"],
}


def test_every_program_is_tried() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize(
    "name", ["long_chat.py", *(pytest.param(n, marks=pytest.mark.slow) for n in SAYS if n != "long_chat.py")]
)
def test_a_program_does_what_it_says(name: str, tmp_path: Path, empty_home: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    for words in SAYS[name]:
        assert words in ran.stdout
