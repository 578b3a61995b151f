"""The durable record of sessions: messages, edits, events, facts. A shell layer: it does IO, it decides nothing."""
