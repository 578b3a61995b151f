"""Readers of what other programs write: session files, request logs, trace exports, datasets.

Each reader turns rows of JSON into recorded sessions in one of the three wire formats. Nothing is written, and content
that no reader knows is refused with a reason. ``replay``, ``import``, ``compact`` and ``count`` all read through here.
"""

from refold.readers.file import (
    FileReading,
    NoConversation,
    find_conversations,
    is_session_file,
    list_files,
    read_file,
    read_files,
    read_value,
)
from refold.readers.session import Session, find_title

__all__ = [
    "FileReading",
    "NoConversation",
    "Session",
    "find_conversations",
    "find_title",
    "is_session_file",
    "list_files",
    "read_file",
    "read_files",
    "read_value",
]
