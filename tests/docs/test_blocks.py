"""The runner of the documents is itself checked: a runner that passes everything would keep nothing true."""

import os
from pathlib import Path

import pytest

from tests.docs.blocks import (
    Command,
    match_output,
    name_make_targets,
    read_blocks,
    read_commands,
    read_make_targets,
    run_command,
    run_python,
)

DOCUMENT = """# Title

```python
x = 1
```

<!-- not run: needs a key -->
```python
x = call_a_model()
```

Some text.

```console
$ refold count a.json
12 tokens
...
$ make test
$ cat a.json | refold compress - \\
    --budget 10  # exit 5
error: too small
```
"""


def test_blocks_carry_their_language_line_and_reason() -> None:
    python, opted_out, console = read_blocks(DOCUMENT)
    assert (python.language, python.line, python.reason_not_run) == ("python", 4, None)
    assert opted_out.reason_not_run == "needs a key"
    assert (console.language, console.reason_not_run) == ("console", None)


def test_an_opt_out_without_a_reason_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"line 1: .*reason"):
        read_blocks("<!-- not run: -->\n```python\n```\n")


def test_an_opt_out_holds_for_the_very_next_block_only() -> None:
    blocks = read_blocks("<!-- not run: slow -->\n\ntext\n\n```python\n```\n")
    assert [block.reason_not_run for block in blocks] == [None]


def test_a_console_block_yields_refold_commands_with_their_output_and_status() -> None:
    count, compact = read_commands(read_blocks(DOCUMENT)[2])
    assert count == Command("refold count a.json", ("12 tokens", "..."), 15, 0)
    assert compact.text == "cat a.json | refold compress - \\\n    --budget 10  # exit 5"
    assert (compact.expected, compact.status, compact.line) == (("error: too small",), 5, 19)


def test_a_command_that_would_escape_the_runner_is_an_error() -> None:
    (block,) = read_blocks("```sh\nrefold count a.json\n```\n")
    with pytest.raises(ValueError, match=r"write '\$ refold count"):
        read_commands(block)


@pytest.mark.parametrize(
    ("expected", "actual", "agree"),
    [
        (["a", "b"], ["a", "b  "], True),
        (["a"], ["a", "b"], False),
        (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["a", "...", "c"], ["a", "c"], True),
        (["a", "...", "d"], ["a", "b", "c"], False),
        (["...", "b", "..."], ["a", "c"], False),
        (["... [truncated 3 characters] ..."], ["anything"], False),
        ([], [], True),
    ],
)
def test_output_agrees_line_by_line_and_an_ellipsis_line_stands_for_any_lines(
    expected: list[str], actual: list[str], agree: bool
) -> None:
    assert match_output(expected, actual) is agree


@pytest.mark.parametrize(
    ("actual", "agree"),
    [
        ("98,675 → 12,186 tokens  −88%", True),
        ("98,675 →  9,900 tokens  −90%", True),
        ("98,675 → 8,000 tokens  −92%", False),
        ("98,675 → 12,186 words  −88%", False),
    ],
)
def test_with_a_tolerance_figures_may_differ_a_little_and_words_not_at_all(actual: str, agree: bool) -> None:
    text = "<!-- figures within 20% -->\n```console\n$ refold x\n98,675 → 12,186 tokens  −88%\n```\n"
    (command,) = read_commands(read_blocks(text)[0])
    assert match_output(list(command.expected), [actual], command.tolerance) is agree
    assert not match_output(list(command.expected), ["98,675 → 9,900 tokens  −90%"])


def test_a_wrong_output_or_status_fails(tmp_path: Path) -> None:
    run_command(Command("echo hello", ("hello",), 1), tmp_path, os.environ)
    run_command(Command("exit 3", (), 1, status=3), tmp_path, os.environ)
    with pytest.raises(AssertionError, match="the document shows"):
        run_command(Command("echo hello", ("goodbye",), 1), tmp_path, os.environ)
    with pytest.raises(AssertionError, match="exit status 1, not 0"):
        run_command(Command("false", (), 1), tmp_path, os.environ)
    with pytest.raises(AssertionError, match="exit status 1, not 0"):
        run_command(Command("false | cat", (), 1), tmp_path, os.environ)


def test_a_pipe_that_head_closes_early_is_not_a_failure(tmp_path: Path) -> None:
    run_command(Command("yes | head -n 1", ("y",), 1), tmp_path, os.environ)


def test_a_failing_python_block_names_the_line_of_its_document() -> None:
    (block,) = read_blocks("one\n\n```python\nx = 1\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as caught:
        run_python(block, {}, "page.md")
    assert caught.traceback[-1].lineno + 1 == 5
    assert caught.traceback[-1].frame.code.raw.co_filename == "page.md"


def test_make_targets_are_found_in_text_and_in_the_makefile() -> None:
    text = "Run `make test`, or:\n```sh\n$ make run\nmake lock\n```\nThey make nothing else."
    assert name_make_targets(text) == {"test", "run", "lock"}
    assert read_make_targets("a b: c\n\tx\nV := 1\nlint-all:  ## d\n.PHONY: z\n") == {"a", "b", "lint-all"}
