"""Providers' wire formats: reading without loss, and writing without touching unchanged messages."""

from refold.formats.anthropic import Anthropic, place_messages
from refold.formats.canonical import digest_message
from refold.formats.detect import (
    NAMES,
    Conversation,
    detect,
    make_format,
    parse_messages,
    read_conversation,
    write_conversation,
)
from refold.formats.intake import Beside, Codec, Intake, MessageSource, ModelReply, read_intake, read_output_limit
from refold.formats.openai_chat import OpenAIChat
from refold.formats.openai_responses import OpenAIResponses

__all__ = [
    "NAMES",
    "Anthropic",
    "Beside",
    "Codec",
    "Conversation",
    "Intake",
    "MessageSource",
    "ModelReply",
    "OpenAIChat",
    "OpenAIResponses",
    "detect",
    "digest_message",
    "make_format",
    "parse_messages",
    "place_messages",
    "read_conversation",
    "read_intake",
    "read_output_limit",
    "write_conversation",
]
