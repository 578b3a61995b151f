"""The bundled sample is the example session, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from tests.web.stories import sample_messages


def test_the_bundled_sample_is_the_example_of_a_coding_agent(project_root: Path) -> None:
    example = json.loads((project_root / "examples" / "sessions" / "coding_agent.json").read_text("utf-8"))
    assert sample_messages() == example["messages"]
