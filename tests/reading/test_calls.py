"""Calls and results, read into events: tables of examples."""

import json

import pytest

from refold.conversation.message import Part
from refold.reading.calls import read_call, read_fenced_call, read_result
from refold.reading.events import Action, CallOutcome, FileChange, HarnessNote, PlanItem, Verb, WorkPlan


def call(name: str, **arguments: object) -> Part:
    return Part("call", json.dumps(arguments), name=name, call_id="c1")


def act(name: str, **arguments: object) -> Action:
    (action, *_) = read_call(call(name, **arguments), 0)
    assert isinstance(action, Action)
    return action


def changes(name: str, **arguments: object) -> list[tuple[str, str, str, str]]:
    found = [event for event in read_call(call(name, **arguments), 0) if isinstance(event, FileChange)]
    return [(one.kind, one.path, one.removed, one.added) for one in found]


def outcome(text: str, action: Action | None = None, *, is_error: bool = False) -> CallOutcome:
    (found, *_) = read_result(Part("result", text, call_id="c1", is_error=is_error), 0, action)
    assert isinstance(found, CallOutcome)
    return found


@pytest.mark.parametrize(
    ("command", "verb", "targets"),
    [
        ("cd /app && pytest -q tests/test_a.py | tail -5", "test", ("tests/test_a.py",)),
        ("sed -i 's/a/b/' f.go && go build ./... && go test -count=1 ./color/...", "test", ("./color/...",)),
        ("sed -n '1,40p' src/a.py", "read", ("src/a.py",)),
        ("cat <<'EOF' > new.py\nprint('pytest')\nEOF", "create", ("new.py",)),
        ("cat <<'EOF' > t.py\nx = 1\nEOF\npython t.py", "run", ("t.py",)),
        ("git add -A && git commit -m 'fix: pytest && make'", "commit", ()),
        ("git checkout -- src/a.py", "revert", ("src/a.py",)),
        ("git checkout main", "other", ()),
        ("python test_edge_cases.py", "test", ("test_edge_cases.py",)),
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git add -A && git diff --cached", "finish", ()),
        ("grep -rn 'def foo' src | head", "search", ("def foo", "src")),
        ("FOO=1 timeout 60 .venv/bin/python -m pytest tests/a.py", "test", ("tests/a.py",)),
        ("bash -lc 'npm run build'", "build", ()),
        ("rm -f repro.py", "delete", ("repro.py",)),
    ],
)
def test_a_command_of_a_shell_is_what_its_most_telling_part_does(
    command: str, verb: str, targets: tuple[str, ...]
) -> None:
    for name, key in (("Bash", "command"), ("exec_command", "cmd"), ("execute_bash", "command")):
        action = act(name, **{key: command})
        assert (action.verb, action.targets, action.text) == (verb, targets, command)
    assert act("shell", command=["bash", "-lc", command]).verb == verb


@pytest.mark.parametrize(
    ("name", "arguments", "verb", "is_final"),
    [
        ("Read", {"file_path": "/a/b.py"}, "read", False),
        ("Grep", {"pattern": "x", "path": "src"}, "search", False),
        ("TodoWrite", {"todos": []}, "plan", False),
        ("think", {"thought": "hm"}, "think", False),
        ("finish", {}, "finish", False),
        ("WebFetch", {"url": "https://a.b"}, "fetch", False),
        ("str_replace_editor", {"command": "view", "path": "/a"}, "read", False),
        ("str_replace_editor", {"command": "create", "path": "/a", "file_text": "x"}, "create", False),
        ("cancel_reservation", {"reservation_id": "EHGLP3"}, "cancel", True),
        ("book_reservation", {"user_id": "mia"}, "book", True),
        ("send_certificate", {"user_id": "mia", "amount": 50}, "pay", True),
        ("update_reservation_flights", {"reservation_id": "A"}, "update", True),
        ("transfer_to_human_agents", {"summary": "x"}, "send", True),
        ("get_reservation_details", {"reservation_id": "A"}, "fetch", False),
        ("mcp__github__create_issue", {"title": "x"}, "send", True),
    ],
)
def test_a_tool_is_known_by_its_name(name: str, arguments: dict[str, object], verb: str, is_final: bool) -> None:
    action = act(name, **arguments)
    assert (action.verb, action.is_final) == (verb, is_final)


PATCH = """*** Begin Patch
*** Update File: src/a.py
@@ def f():
-    return 1
+    return 2
*** Add File: b.txt
+hello
*** Delete File: c.txt
*** End Patch"""
PATCHED = [
    ("edited", "src/a.py", "    return 1", "    return 2"),
    ("created", "b.txt", "", "hello"),
    ("deleted", "c.txt", "", ""),
]


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"}, [("edited", "a.py", "x", "y")]),
        (
            "MultiEdit",
            {
                "file_path": "a.py",
                "edits": [{"old_string": "x", "new_string": "y"}, {"old_string": "p", "new_string": "q"}],
            },
            [("edited", "a.py", "x\np", "y\nq")],
        ),
        ("edit", {"path": "a.py", "edits": [{"oldText": "x", "newText": "y"}]}, [("edited", "a.py", "x", "y")]),
        ("Write", {"file_path": "a.py", "content": "z\n"}, [("created", "a.py", "", "z\n")]),
        (
            "str_replace_editor",
            {"command": "str_replace", "path": "a.py", "old_str": "x", "new_str": ""},
            [("edited", "a.py", "x", "")],
        ),
        ("str_replace_editor", {"command": "undo_edit", "path": "a.py"}, [("reverted", "a.py", "", "")]),
        (
            "apply_patch",
            {"input": PATCH},
            PATCHED,
        ),
        (
            "shell",
            {"command": ["apply_patch", PATCH]},
            PATCHED,
        ),
        (
            "bash",
            {"command": f"cd x && apply_patch <<'EOF'\n{PATCH}\nEOF"},
            PATCHED,
        ),
        ("bash", {"command": "sed -i '12s/foo(a)/foo(b)/' a.py"}, [("edited", "a.py", "foo(a)", "foo(b)")]),
        (
            "bash",
            {"command": "sed -i -e 's|/x|/y|g' -e '3d' a.py b.py"},
            [
                ("edited", "a.py", "/x", "/y"),
                ("edited", "b.py", "/x", "/y"),
            ],
        ),
        ("bash", {"command": "sed -i '408a\\        print(1)' a.py"}, [("edited", "a.py", "", "        print(1)")]),
        ("bash", {"command": "cat > a.py <<EOF\nx = 1\nEOF"}, [("created", "a.py", "", "x = 1\n")]),
        ("bash", {"command": "cat <<'E' >> a.py\nx = 1\nE\necho done"}, [("edited", "a.py", "", "x = 1\n")]),
        ("bash", {"command": "echo 'a: 1' > c.yml 2>&1"}, [("created", "c.yml", "", "a: 1")]),
        ("bash", {"command": "pytest > /dev/null 2>&1"}, []),
        ("bash", {"command": "git stash && pytest; git stash pop"}, [("restored", ".", "", "")]),
        ("bash", {"command": "git stash"}, [("reverted", ".", "", "")]),
        ("bash", {"command": "printf 'a\\nb\\n' | tee out.txt"}, [("created", "out.txt", "", "a\nb\n")]),
        (
            "bash",
            {"command": "git apply <<'E'\n--- a/f.py\n+++ b/f.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\nE"},
            [("edited", "f.py", "b", "c")],
        ),
        ("exec", {"input": f"const r = await tools.apply_patch({json.dumps(PATCH)});"}, PATCHED),
        (
            "exec",
            {"input": 'await tools.exec_command({\n  cmd: "sed -i \'s/a/b/\' x.py",\n  workdir: "/x"});'},
            [("edited", "x.py", "a", "b")],
        ),
        (
            "replace_in_file",
            {"path": "a.py", "diff": "------- SEARCH\nx\n=======\ny\n+++++++ REPLACE\n"},
            [("edited", "a.py", "x", "y")],
        ),
        ("execute_ipython_cell", {"code": "open('a.txt', 'w').write(x)"}, [("created", "a.txt", "", "")]),
        ("bash", {"command": "git restore --staged a.py"}, []),
        (
            "bash",
            {
                "command": "cat > fix.py <<'E'\ns = open('a.py').read()\n"
                "open('a.py', 'w').write(s.replace('x', 'y'))\nE\npython fix.py"
            },
            [
                ("created", "fix.py", "", "s = open('a.py').read()\nopen('a.py', 'w').write(s.replace('x', 'y'))\n"),
                ("edited", "a.py", "x", "y"),
            ],
        ),
        (
            "bash",
            {"command": "sed -i 's/    a,/    a,\\n    b,/' f.py"},
            [("edited", "f.py", "    a,", "    a,\n    b,")],
        ),
        ("bash", {"command": "mv a.py b.py"}, [("moved", "b.py", "", "")]),
        (
            "bash",
            {
                "command": "python3 - <<'EOF'\np = 'a.py'\ns = open(p).read()\n"
                "s = s.replace('x\\n', \"y\")\nopen(p, 'w').write(s)\nEOF"
            },
            [("edited", "a.py", "x\n", "y")],
        ),
    ],
)
def test_a_change_of_a_file_is_verbatim(
    name: str, arguments: dict[str, object], wanted: list[tuple[str, str, str, str]]
) -> None:
    assert changes(name, **arguments) == wanted


def test_a_plan_is_read_whole() -> None:
    steps = [{"step": "Write", "status": "completed"}, {"step": "Test", "status": "pending"}]
    events = read_call(call("update_plan", plan=steps), 2)
    assert [event for event in events if isinstance(event, WorkPlan)] == [
        WorkPlan(
            part=2,
            stop=len(call("update_plan", plan=steps).text),
            text="Write\nTest",
            items=(PlanItem("Write", "completed"), PlanItem("Test", "pending")),
        )
    ]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("I look.\n\n```bash\nls -la\n```\n", "ls -la"),
        ("THOUGHT: x\n```mswea_bash_command\ncat a.py\n```", "cat a.py"),
        ("DISCUSSION\nx\n```\nls\n```", "ls"),
        ("<execute_bash>\nls\n</execute_bash>", "ls\n"),
        ("<function=execute_bash>\n<parameter=command>ls</parameter>\n</function>", "ls"),
        ('<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>', "ls"),
    ],
)
def test_a_call_in_a_protocol_of_text_is_read(text: str, command: str) -> None:
    (action, *_) = read_fenced_call(text)
    assert isinstance(action, Action)
    assert (action.text, action.verb) == (command, "read" if "cat" in command else "search")


def test_code_that_is_only_shown_is_no_call() -> None:
    assert read_fenced_call("Use it so:\n```python\nx = 1\n```") == ()


TEST = Action(verb="test", tool="bash")
RUN = Action(verb="run", tool="bash")
READ = Action(verb="read", tool="bash")


@pytest.mark.parametrize(
    ("text", "action", "status", "line", "fields"),
    [
        ("<returncode>0</returncode>\n<output>\n</output>", RUN, "ok", "", {"exit_code": "0"}),
        (
            "<returncode>1</returncode>\n<output>\n"
            "FAILED tests/a.py::test_b - x\n=== 1 failed, 2 passed in 0.1s ===\n</output>",
            TEST,
            "failed",
            "1 failed, 2 passed in 0.1s",
            {"exit_code": "1", "failed": "1", "passed": "2"},
        ),
        ("1 failed, 2 passed in 0.1s", TEST, "failed", "1 failed, 2 passed in 0.1s", {"failed": "1", "passed": "2"}),
        (
            "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 128\nOutput:\n"
            "remote: Not Found\nfatal: no repo\n",
            RUN,
            "failed",
            "remote: Not Found",
            {"exit_code": "128"},
        ),
        ("ok  \ta/b/color\t0.1s\nok  \ta/b/prompt\t0.9s", TEST, "ok", "ok  \ta/b/prompt\t0.9s", {}),
        (
            "done\nWaiting for the debugger to disconnect...\n[Command finished with exit code 0]",
            RUN,
            "ok",
            "done",
            {"exit_code": "0"},
        ),
        ("def f():\n    raise ValueError('x')\nValueError: x\n", READ, "ok", "", {}),
        (
            "[main 3f2a91c] fix the build\n 1 file changed",
            Action(verb="commit"),
            "ok",
            "[main 3f2a91c] fix the build",
            {"branch": "main", "hash": "3f2a91c"},
        ),
        (
            "The user doesn't want to proceed with this tool use.",
            Action(verb="delete", tool="Bash"),
            "failed",
            "The user doesn't want to proceed with this tool use.",
            {},
        ),
        (
            "Adds behaviour without a failing test.",
            Action(verb="edit", tool="edit"),
            "unknown",
            "Adds behaviour without a failing test.",
            {},
        ),
        (
            "Command running in background with ID: b7",
            Action(verb="commit", tool="Bash"),
            "unknown",
            "Command running in background with ID: b7",
            {},
        ),
        ("", Action(verb="build", tool="bash"), "ok", "", {}),
        ("", Action(verb="test", tool="bash"), "unknown", "", {}),
        (
            "FAILED (failures=1, expected failures=2)",
            TEST,
            "failed",
            "FAILED (failures=1, expected failures=2)",
            {"failed": "1"},
        ),
        ("Transfer successful", Action(verb="send"), "ok", "Transfer successful", {}),
        (
            "Error: Payment amount does not add up",
            Action(verb="book"),
            "failed",
            "Error: Payment amount does not add up",
            {},
        ),
    ],
)
def test_an_outcome_is_what_proves_it(
    text: str, action: Action, status: str, line: str, fields: dict[str, str]
) -> None:
    found = outcome(text, action)
    assert (found.status, found.text, dict(found.fields)) == (status, line, fields)
    assert text[found.start : found.stop] == found.text


def test_a_cancelled_reservation_says_so_and_what_was_paid_back() -> None:
    record = {
        "reservation_id": "S61CZX",
        "user_id": "sophia_silva_7557",
        "origin": "LAX",
        "flights": [{"origin": "LAX", "flight_number": "HAT228", "price": 131}],
        "payment_history": [
            {"payment_id": "credit_card_4196779", "amount": 667},
            {"payment_id": "credit_card_4196779", "amount": -667},
        ],
        "created_at": "2024-05-02T04:38:01",
        "status": "cancelled",
    }
    found = outcome(json.dumps(record), act("cancel_reservation", reservation_id="S61CZX"))
    fields = dict(found.fields)
    assert found.status == "ok"
    assert fields["status"] == "cancelled"
    assert fields["payment_history.amount"] == "-667"
    assert found.text.startswith("status: cancelled, payment_history.amount: -667")


def test_a_booking_names_its_price_and_number_before_what_the_call_said() -> None:
    record = {
        "reservation_id": "HATHAU",
        "user_id": "mia_li_3668",
        "origin": "JFK",
        "destination": "SEA",
        "flight_type": "one_way",
        "cabin": "economy",
        "payment_history": [{"payment_id": "credit_card_4421486", "amount": 305}],
        "insurance": "no",
    }
    asked = {"user_id": "mia_li_3668", "origin": "JFK", "destination": "SEA", "flight_type": "one_way"}
    same = outcome(json.dumps(record), act("book_reservation", **asked, cabin="economy", insurance="no"))
    assert same.text.startswith("payment_history.amount: 305, reservation_id: HATHAU")
    # What came otherwise than it was asked for is the news.
    other = outcome(json.dumps(record), act("book_reservation", **asked, cabin="business", insurance="no"))
    assert other.text.startswith("cabin: economy, payment_history.amount: 305, reservation_id: HATHAU")


def test_what_a_harness_writes_into_a_result_is_a_note() -> None:
    text = "     1→package cli\n<system-reminder>\nWhenever you read a file, error: x\n</system-reminder>\n"
    found, note = read_result(Part("result", text), 0, READ)
    assert isinstance(found, CallOutcome)
    assert isinstance(note, HarnessNote)
    assert (found.status, found.text, note.text) == ("ok", "", text[text.index("<") : -1])


HOSTILE = {
    "empty": "",
    "lone surrogates": "\ud800 rm -rf \udfff > \ud800.txt",
    "open quotes": "echo 'a \"b $(cat <<EOF",
    "here-documents without an end": "cat <<A <<'B' <<-C > x\n" * 40,
    "deep substitutions": "echo " + "$(" * 3_000,
    "null bytes": "cat \x00 > a\x00b",
    "a line of two megabytes": "cat " + "a" * 2_000_000,
    "a flood of commands": "rm a;" * 20_000,
    "brackets": "[" * 20_000,
    "tags": "<parameter=a>" * 5_000 + "<function=b>" * 5_000,
    "notes": "<system-reminder>" * 5_000,
    "fences": "```bash\n" * 5_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_read_without_an_error(text: str) -> None:
    for name in (
        "Bash",
        "shell",
        "apply_patch",
        "Edit",
        "str_replace_editor",
        "TodoWrite",
        "cancel_order",
        "",
        "x" * 999,
    ):
        for arguments in (text, json.dumps({"command": text, "path": text, "todos": [text], "input": text})):
            (action, *others) = read_call(Part("call", arguments, name=name), 0)
            assert isinstance(action, Action)
            assert len(others) <= 101
            read_result(Part("result", text), 0, action)
    read_fenced_call(text)


@pytest.mark.parametrize(
    "arguments",
    ["{", "[1, 2", '"just text"', "null", "12", "[]", '{"command": null}', '{"command": {"a": 1}}', '{"command": [1]}'],
)
def test_broken_arguments_are_still_a_call(arguments: str) -> None:
    for name in ("bash", "Edit", "TodoWrite", "apply_patch", "book_flight"):
        (action, *_) = read_call(Part("call", arguments, name=name, call_id="c"), 0)
        assert isinstance(action, Action)
        assert (action.tool, action.call_id) == (name, "c")


@pytest.mark.parametrize(
    ("text", "verb", "status", "line"),
    [
        ("错误：余额不足，无法支付", "pay", "failed", "错误：余额不足，无法支付"),
        ("预订成功，订单号 A10293", "book", "ok", "预订成功，订单号 A10293"),
        ("运行完毕\n退出码：1\n", "run", "failed", "运行完毕"),
        ("共 12 个用例，3 个失败", "test", "failed", "共 12 个用例，3 个失败"),
    ],
)
def test_outcomes_in_chinese_are_read(text: str, verb: Verb, status: str, line: str) -> None:
    found = outcome(text, Action(verb=verb, tool="bash" if verb in ("run", "test") else "api"))
    assert (found.status, found.text) == (status, line)
