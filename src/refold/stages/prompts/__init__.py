"""What a model is asked when it writes a summary: demands per preset, in both languages, and the span as a record.

Pure text. The conversation always stands behind a line that says it is a record and before a line that ends it, and
is cut to limits, so that a prompt always fits the model it is meant for.
"""

from refold.stages.prompts.demands import Demands, PromptStyle, write_demands
from refold.stages.prompts.question import (
    Question,
    cut_middle,
    write_archive_prompt,
    write_facts_prompt,
    write_question,
    write_record,
    write_repair,
)

__all__ = [
    "Demands",
    "PromptStyle",
    "Question",
    "cut_middle",
    "write_archive_prompt",
    "write_demands",
    "write_facts_prompt",
    "write_question",
    "write_record",
    "write_repair",
]
