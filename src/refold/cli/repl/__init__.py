"""The chat in a terminal: what it shows, what its slash commands do, how it reads and talks."""
