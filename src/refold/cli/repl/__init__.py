"""The interactive chat in a terminal: session, screen, keyboard, slash commands and approval of tool calls."""
