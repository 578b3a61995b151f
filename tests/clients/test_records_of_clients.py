"""What records keep of the tool results of Claude Code and Codex: the outcome, not the words of the harness."""

import json
import re
from typing import Any

import refold

REMINDER = "<system-reminder>\nThe task tools haven't been used recently; consider TaskCreate.\n</system-reminder>"
COMMANDS = {
    "npm install": "added 212 packages in 4s",
    "git push origin main": "To github.com:a/b.git\n   1a2b3c4..5d6e7f8  main -> main",
    "python tools/check.py": "checked 14 prices\nall fine",
    "make build": "cc -o shop shop.c\nbuild finished",
    "rm -rf dist": "",
}


def read_records(prepared: refold.PreparedContext) -> str:
    texts = [text if isinstance(text := one.get("content"), str) else json.dumps(text) for one in prepared.messages]
    found = "\n".join(text.replace("\\n", "\n") for text in texts if text.startswith("⟦") or "\\u27e6" in text)
    assert found, "nothing was folded"
    return found


def test_the_harness_words_in_a_result_are_not_its_outcome() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the rounding in src/shop/price.py."}]
    for number, (command, output) in enumerate(list(COMMANDS.items()) * 6):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": command}}
        noise = "log " * 150 * (number % 2)
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"{noise}\n{output}\n\n{REMINDER}\n"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    records = read_records(refold.compress(messages, format="anthropic", budget=1_600))
    assert "system-reminder" not in records
    assert re.search(r"\$ npm install ×\d → added 212 packages in 4s", records)
    assert re.search(r"\$ make build ×\d → build finished", records)


def test_reads_of_codex_stay_and_its_chunk_ids_are_no_values() -> None:
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "Fix the rounding in src/price.py."}]
    for number in range(24):
        path = ("src/price.py", "src/cart.py", "tests/test_price.py", "README.md")[number % 4]
        command = (f"sed -n '1,120p' {path}", f"cat {path}", f"rg -n 'round' {path}")[number % 3]
        lines = "\n".join(f"{n}: value_{number} = round(total * {n}.5, {number % 4})" for n in range(60))
        head = f"Chunk ID: 8{number:05x}\nWall time: 0.0512 seconds\nProcess exited with code 0\n"
        items += [
            {
                "type": "function_call",
                "name": "exec_command",
                "arguments": json.dumps({"cmd": command, "yield_time_ms": 1_000}),
                "call_id": f"c{number}",
            },
            {
                "type": "function_call_output",
                "call_id": f"c{number}",
                "output": f"{head}Original token count: {900 + number}\nOutput:\n{lines}",
            },
        ]
    records = read_records(refold.compress(items, format="openai-responses", budget=7_000))
    assert "800" not in records
    assert "count: 9" not in records
    assert all(path in records for path in ("src/price.py", "src/cart.py", "tests/test_price.py", "README.md"))


def test_what_codex_has_read_is_in_the_record_also_where_every_step_has_words() -> None:
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "Why do prices differ by one cent?"}]
    paths = [f"src/shop/{name}.py" for name in ("price", "cart", "tax", "order", "stock", "invoice", "user", "mail")]
    for number in range(24):
        words = f"Let me look at the next module, which rounds its amounts in place {number}."
        command = f"sed -n '1,120p' {paths[number]}" if number < len(paths) else f"make check-{number}"
        lines = "\n".join(f"{n}: total_{number} = round(amount * {n}.5, {number % 4})" for n in range(60))
        items += [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]},
            {
                "type": "function_call",
                "name": "exec_command",
                "arguments": json.dumps({"cmd": command}),
                "call_id": f"c{number}",
            },
            {
                "type": "function_call_output",
                "call_id": f"c{number}",
                "output": f"Chunk ID: 8{number:05x}\nProcess exited with code 0\nOutput:\n{lines}",
            },
        ]
    records = read_records(refold.compress(items, format="openai-responses", budget=9_000))
    assert all(path in records for path in paths), records
