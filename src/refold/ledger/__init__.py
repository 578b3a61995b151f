"""The durable record of sessions: messages, edits, events, facts. It does IO and makes no decisions."""
