"""Tasks on files: repairing many modules by their specifications, and renaming a function under a rule."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from refold.trial.task import Facts, Filler, Move, PlayedReply, TrialTask, TrialTool, TrialTurn, World, give

SYSTEM = "You work on a repository with the tools you have. Do what the person asks, exactly, and then answer briefly."
_MODULES = ["billing", "search", "queue", "export", "audit", "session", "mailer", "ledger", "pricing", "report"]
_MARKS = ["KITE", "ORBIT", "FERN", "TALON", "MAPLE"]


class _Files(World):
    """Files in memory."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__()
        self.files = files
        self.tools = [
            TrialTool("read_file", "Return the content of a file.", ("path",), self._read),
            TrialTool("edit_file", "Replace a text in a file; footer, if any, is added as the last line.",
                 ("path", "old", "new", "footer"), self._edit),
            TrialTool("rename_in_file", "Rename an identifier in a file.", ("path", "old", "new"), self._rename),
            TrialTool("count_in_file", "Count an identifier in a file.", ("path", "name"), self._count),
            TrialTool("write_file", "Write a whole file.", ("path", "text"), self._write),
        ]  # fmt: skip

    def _read(self, path: str) -> str:
        return self.files.get(path, f"error: no file {path}")

    def _edit(self, path: str, old: str, new: str, footer: str) -> str:
        text = self.files.get(path, "")
        if not old or old not in text:
            return f"error: {path} does not contain that text"
        self.files[path] = text.replace(old, new, 1) + (f"\n{footer}" if footer else "")
        return f"{path} changed: {new}"

    def _rename(self, path: str, old: str, new: str) -> str:
        text = self.files.get(path, "")
        count = len(re.findall(rf"\b{re.escape(old)}\b", text))
        self.files[path] = re.sub(rf"\b{re.escape(old)}\b", new, text)
        return f"{path}: {count} occurrences renamed to {new}\n{self.files[path]}"

    def _count(self, path: str, name: str) -> str:
        count = len(re.findall(rf"\b{re.escape(name)}\b", self.files.get(path, "")))
        return f"{path}: {count} occurrences of {name}"

    def _write(self, path: str, text: str) -> str:
        self.files[path] = text
        return f"{path} written, {len(text)} characters"


def make_repair(seed: int, tokens: int) -> TrialTask:
    """Make a task: set a limit in each of ten modules to what its specification says, under a standing rule."""
    dice = random.Random(seed)
    limits = {name: (dice.randint(2, 9), dice.randint(10, 97)) for name in _MODULES}
    mark, ticket = f"{dice.choice(_MARKS)}-{dice.randint(11, 99)}", f"QL-{dice.randint(1000, 9999)}"

    def build() -> tuple[World, Callable[[], list[str]]]:
        filler = Filler(seed, tokens)
        files = {"docs/overview.md": filler.write()}
        for name, (old, new) in limits.items():
            files[f"docs/{name}.md"] = filler.around(f"The retry limit of module {name} is {new}.")
            files[f"src/{name}.py"] = filler.around(f"{name.upper()}_RETRIES = {old}")
        world = _Files(files)

        def check() -> list[str]:
            wrong = [
                f"src/{name}.py has not {new} retries"
                for name, (_, new) in limits.items()
                if f"{name.upper()}_RETRIES = {new}\n" not in files[f"src/{name}.py"] + "\n"
            ]
            wrong += [f"src/{name}.py has no mark" for name in limits if f"# {mark}" not in files[f"src/{name}.py"]]
            total, said = sum(new for _, new in limits.values()), " ".join(world.answers)
            return wrong + [f"the answer lacks {one}" for one in (str(total), ticket) if one not in said]

        return world, check

    rule = {"mark": re.compile(r"must end with the line `# ([A-Z]+-\d+)`")}
    edits = tuple(_edit_limit(name, new, rule) for name, (_, new) in limits.items())
    lookups = tuple(
        Move(f"read {folder}/{name}", "read_file", give(path=f"{folder}/{name}.{end}"))
        for name in limits
        for folder, end in (("docs", "md"), ("src", "py"))
    )
    read = Move("read the overview", "read_file", give(path="docs/overview.md"), re.compile("overview"))
    sums = {name: re.compile(rf"{name.upper()}_RETRIES = (\d\d)\b") for name in limits}
    final = PlayedReply(
        lambda facts: f"All retries sum up to {sum(int(facts[name]) for name in limits)}. Ticket {facts['ticket']}.",
        needs=sums,
        sources={name: f"read src/{name}" for name in limits},
        rules={"ticket": re.compile(r"ticket is (QL-\d+)")},
    )
    first = (
        f"Before we start, one rule for all you do here: each file that you change must end with the line `# {mark}`. "
        f"The ticket is {ticket}. Now read docs/overview.md and tell me when you have."
    )
    second = (
        f"Now the work. Ten modules have a wrong number of retries: {', '.join(limits)}. For each, read docs/NAME.md "
        "and set NAME_RETRIES in src/NAME.py to the limit that it states. At the end tell me the sum of all limits and "
        "the ticket."
    )
    turns = (
        TrialTurn(first, PlayedReply(lambda _: "I have read it."), (read,)),
        TrialTurn(second, final, edits, lookups),
    )
    return TrialTask(f"repair-{seed}", "repair", SYSTEM, turns, build, is_talkative=seed % 2 == 0)


def _edit_limit(name: str, new: int, rule: dict[str, re.Pattern[str]]) -> Move:
    key = f"{name.upper()}_RETRIES"

    def arguments(facts: Facts) -> dict[str, str]:
        footer = f"# {facts['mark']}" if facts["mark"] else ""
        new_line = f"{key} = {facts['limit']}"
        return {"path": f"src/{name}.py", "old": f"{key} = {facts['old']}", "new": new_line, "footer": footer}

    return Move(
        f"set {key}",
        "edit_file",
        arguments,
        re.compile(rf"{key} = {new}\b"),
        {"limit": re.compile(rf"retry limit of module {name} is (\d+)"), "old": re.compile(rf"{key} = (\d+)")},
        {"limit": f"read docs/{name}", "old": f"read src/{name}"},
        rule,
    )


def make_refactor(seed: int, tokens: int) -> TrialTask:
    """Make a task: rename a function in many files, but not in one folder, and write down how often."""
    dice = random.Random(seed)
    old, new = f"load_{dice.choice(_MODULES)}", f"fetch_{dice.choice(_MODULES)}_{dice.randint(2, 9)}"
    paths = [f"app/{name}.py" for name in _MODULES] + ["legacy/bridge.py"]
    counts = {path: dice.randint(2, 9) for path in paths}
    ticket = f"RF-{dice.randint(1000, 9999)}"
    free = paths[:-1]

    def build() -> tuple[World, Callable[[], list[str]]]:
        filler = Filler(seed, tokens)
        files = {path: filler.around(*[f"    value = {old}(key)"] * count) for path, count in counts.items()}
        files["docs/history.md"] = filler.write()
        world = _Files(files)

        def check() -> list[str]:
            wrong = [f"{path} still has {old}" for path in free if old in files[path]]
            wrong += [] if old in files[paths[-1]] else ["legacy/ was changed"]
            total, noted = sum(counts[path] for path in free), files.get("CHANGES.md", "")
            return wrong + [f"CHANGES.md lacks {one}" for one in (str(total), ticket) if one not in noted]

        return world, check

    renames = tuple(
        Move(f"rename in {path}", "rename_in_file", give(path=path, old=old, new=new),
             re.compile(rf"{path}: \d+ occurrences"))
        for path in free
    )  # fmt: skip
    # Whoever still sees the rule leaves the folder alone.
    bridge = Move("rename in legacy/bridge.py", "rename_in_file",
                  give(path=paths[-1], old=old, new=new),
                  re.compile(r"leave (?:everything below )?legacy/ alone|legacy/bridge\.py: \d+ occ"))  # fmt: skip
    write = Move(
        "write CHANGES.md",
        "write_file",
        lambda facts: {
            "path": "CHANGES.md",
            "text": f"{facts['ticket']}: {sum(int(facts[path]) for path in free)} occurrences renamed to {new}",
        },
        re.compile("CHANGES.md written"),
        {path: re.compile(rf"{path}: (\d+) occurrences") for path in free},
        {path: f"count in {path}" for path in free},
        {"ticket": re.compile(r"ticket (RF-\d+)")},
    )
    lookups = tuple(Move(f"count in {path}", "count_in_file", give(path=path, name=new)) for path in free)
    first = (
        f"We rename {old} soon, for ticket {ticket}. Please leave everything below legacy/ alone, always. "
        "First read docs/history.md."
    )
    second = (
        f"Rename {old} to {new} in these files: {', '.join(paths)}. What I said earlier holds. Then write CHANGES.md "
        "with the ticket and how many occurrences were renamed in all."
    )
    read = Move("read the history", "read_file", give(path="docs/history.md"), re.compile("history"))
    turns = (
        TrialTurn(first, PlayedReply(lambda _: "Understood, and read."), (read,)),
        TrialTurn(second, PlayedReply(lambda _: "Renamed and written down."), (*renames, bridge, write), lookups),
    )
    return TrialTask(f"refactor-{seed}", "refactor", SYSTEM, turns, build, is_talkative=seed % 2 == 0)
