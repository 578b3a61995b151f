"""The slash commands by name: how each is written and what it does. Apart from what they do, so that typing can begin
before anything heavy is loaded."""

from __future__ import annotations

from typing import NamedTuple


class CommandName(NamedTuple):
    """A command as the help lists it."""

    name: str
    argument: str
    means: str


COMMAND_LIST = (
    CommandName("help", "", "this list"),
    CommandName("context", "", "how full the context is, and of what"),
    CommandName("compact", "[instructions]", "compress now; say what to keep"),
    CommandName("undo", "[id]", "take the last compression back, or one by its id"),
    CommandName("redo", "", "put what was undone in force again"),
    CommandName("pin", "HANDLE", "never compress this message"),
    CommandName("recall", "WORDS", "search everything that was said"),
    CommandName("expand", "HANDLE [offset]", "the exact original behind a handle"),
    CommandName("summary", "[n]", "the newest summaries"),
    CommandName("facts", "", "what is known: decisions, preferences, todos"),
    CommandName("memory", "[date]", "the page of a day"),
    CommandName("config", "[name=value]", "settings of compression, or change them"),
    CommandName("model", "[name]", "which model answers, or another one"),
    CommandName("sessions", "", "the sessions of this workspace"),
    CommandName("resume", "SESSION", "go on with another session"),
    CommandName("export", "[file]", "write this session to a file"),
    CommandName("cost", "", "what this session has cost"),
    CommandName("quit", "", "leave; the session stays"),
)
