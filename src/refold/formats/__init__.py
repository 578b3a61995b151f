"""Providers' wire formats: reading without loss, writing without touching what nobody changed."""

from refold.formats.anthropic import Anthropic
from refold.formats.canonical import Volatile, digest_message, leave_out
from refold.formats.detect import NAMES, detect, make_format
from refold.formats.openai_chat import OpenAIChat
from refold.formats.openai_responses import OpenAIResponses
from refold.formats.request import Conversation, parse_messages, read_conversation, write_conversation

__all__ = [
    "NAMES",
    "Anthropic",
    "Conversation",
    "OpenAIChat",
    "OpenAIResponses",
    "Volatile",
    "detect",
    "digest_message",
    "leave_out",
    "make_format",
    "parse_messages",
    "read_conversation",
    "write_conversation",
]
