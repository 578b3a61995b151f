"""Collects every English text that the command line and the page translate, from the code and from the help."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from refold import errors
from tests.rigs.source import walk_module

SOURCE = Path(__file__).resolve().parents[2] / "src" / "refold"
# What is translated by exact match where it is laid out, and whose English is not an argument of ``tr``.
_PARTS = "system prompt,tools,user,assistant,tool output,tool outputs,folds,free,framing,total"
_LAYERS = "built in,preset,user,project,environment,session,call"
_PAIRS = "budget,next,note,refused,summary,stays,shorter,folded,changes,undo,compressions,archived,postponed,other"
_COLUMNS = (
    "tokens before,after,freed,rejected,folded away,sent,bill,saved,client,first words,model,reason,"
    "tokens freed,times,decision,stage,session,changed"
)
_KINDS = "notes by a model,preference,decision,todo,key,undone,redone,not read"
_FIXED = "system prompt and tools,system messages,newest user message"
_OWN_ERRORS = [
    name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, errors.RefoldError)
]
_ERRORS = frozenset((*_OWN_ERRORS, "OutputError", "NotFound", "Forbidden", "NoLongerAllowed", "StorageFull")) - {
    "LawBroken"
}
# Functions that print their first argument in the user's language.
_PRINTS = frozenset(("say", "note", "show"))
# Neither the command line nor the page shows errors that only these raise.
_OTHER_FACES = frozenset(("integrations", "testing"))
_EXAMPLES = (
    "chat without overflowing the window",
    "run a gateway for agents, and a web page",
    "make a conversation fit",
    "see what refold would have saved",
)


def list_words_in_use() -> set[str]:
    """Return every key that the Chinese words must have."""
    listed = ",".join((_PARTS, _LAYERS, _PAIRS, _COLUMNS, _KINDS, _FIXED)).split(",")
    words = {*listed, *_EXAMPLES, *_list_help(), *_list_tables_of_words()}
    for path in [*SOURCE.rglob("*.py")]:
        is_ours = "cli" in path.parts or path.name == "mcp.py"
        is_shown = not _OTHER_FACES.intersection(path.parts)
        for node in walk_module(path):
            if isinstance(node, ast.Call):
                words |= set(_read_call(node, is_ours=is_ours, is_shown=is_shown))
            if is_ours and isinstance(node, ast.Tuple):
                words |= set(_read_pair(node))
    return words


def _read_call(node: ast.Call, *, is_ours: bool, is_shown: bool) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = [part for one in node.args for part in ((one.body, one.orelse) if isinstance(one, ast.IfExp) else (one,))]
    texts = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if name == "Sentence" or (is_ours and name == "tr") or (is_shown and name in _ERRORS):
        yield from texts
    elif is_ours and name in _PRINTS and node.args:
        given = [node.args[0].body, node.args[0].orelse] if isinstance(node.args[0], ast.IfExp) else node.args[:1]
        yield from (one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str))
    elif is_ours and name == "Check":
        yield from (one.value for one in node.args[:1] if isinstance(one, ast.Constant))
    elif is_ours and name == "count_things":
        yield from (f"# {text}" for text in texts[-1:])
    elif is_ours and name == "make_table":
        yield from (text for text in texts if text.strip("# "))


def _read_pair(node: ast.Tuple) -> Iterator[str]:
    """Yield the name of a pair that ``show_pairs`` prints: a constant, or one of two."""
    if len(node.elts) != 2 or not isinstance(node.ctx, ast.Load):
        return
    first = node.elts[0]
    for one in (first.body, first.orelse) if isinstance(first, ast.IfExp) else ():
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def _list_help() -> Iterator[str]:
    """Yield the paragraphs of every command's help, its options, and the headings."""
    import typer.main

    from refold.cli.app import PANELS, split_paragraphs
    from refold.cli.main import app, load_commands

    load_commands()

    def walk(command: object) -> Iterator[str]:
        yield from split_paragraphs(getattr(command, "help", "") or "")
        for param in command.params:  # type: ignore[attr-defined]
            if getattr(param, "help", None):
                yield param.help
        for inner in getattr(command, "commands", {}).values():
            yield from walk(inner)

    yield from PANELS
    yield from ("Usage", "Arguments", "Options", "Commands", "Examples", "Exit codes", "default:")
    yield "Show this message and exit."
    yield from walk(typer.main.get_command(app))


def _list_tables_of_words() -> Iterator[str]:
    """Yield what the code keeps in tables: exit codes, slash commands, presets, extras, legends, settings."""
    from refold.cli.app import _USAGE, EXIT_CODES
    from refold.cli.doctor import EXTRAS
    from refold.cli.measure import LEGEND
    from refold.cli.repl.keyboard import COMMAND_LIST, PROMPT
    from refold.cli.repl.screen import OPTIMISING
    from refold.cli.sessions import REASONS
    from refold.config import PRESETS, CompressionConfig
    from refold.config.layers import MEANINGS
    from refold.look.report import ADVICE, NOTES
    from refold.manager.notices import KINDS
    from refold.stages import STAGES

    yield from KINDS
    yield from (*ADVICE.values(), *NOTES)
    yield from (meaning.idea for meaning in MEANINGS)
    yield OPTIMISING
    yield from _USAGE
    yield PROMPT
    yield from EXIT_CODES.values()
    yield from (command.means for command in COMMAND_LIST)
    yield from PRESETS.values()
    yield from EXTRAS.values()
    yield from REASONS.values()
    yield from (means for _, means in LEGEND)
    yield from (field.description or "" for field in CompressionConfig.model_fields.values())
    yield from _OWN_ERRORS
    yield from STAGES
    yield from (", ", ": ")
    yield from _list_tools()


def _list_tools() -> Iterator[str]:
    """Yield what the MCP server says about itself, its tools and their arguments."""
    from refold.agent.context_tools import ContextTools
    from refold.agent.tools import make_tool
    from refold.manager import ContextCompressionManager
    from refold.mcp import INSTRUCTIONS, SESSION, Sessions

    own = Sessions(ContextCompressionManager())
    tools = ContextTools(own.manager, "").list_tools()
    tools += [make_tool(getattr(own, name)) for name in dir(own) if name.startswith("context_")]
    yield from (INSTRUCTIONS, SESSION)
    for tool in tools:
        yield tool.description
        yield from (one.description or "" for one in tool.arguments.model_fields.values())


def list_untranslated() -> list[str]:
    """Return the places in the command line that print an English sentence which is not an argument of ``tr``."""
    prints = {"write_line", "print_line", "echo", "fail", "BadParameter", "confirm"}
    found = []
    for path in sorted((SOURCE / "cli").rglob("*.py")):
        for node in walk_module(path):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _ERRORS or (name not in prints and not name.endswith("Error")):
                continue
            texts = filter(_is_sentence, map(_read_literal, node.args))
            found += [f"{path.relative_to(SOURCE)}:{node.lineno} {text[:60]}" for text in texts]
    return found


def _read_literal(node: ast.expr) -> str:
    """Return the fixed text of a string or an f-string; empty for anything else."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return " ".join(one.value for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _is_sentence(text: str) -> bool:
    return len([word for word in text.split() if word.isalpha()]) >= 2
