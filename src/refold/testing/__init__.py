"""For your own tests: a scripted provider on loopback, a scripted model, what providers refuse.

Nothing here needs a key, a network or a library beyond refold's own. docs/how-to/testing.md has examples.
"""

from refold.testing.provider_rules import find_violations
from refold.testing.script import (
    Fault,
    RecordedRequest,
    ScriptedCall,
    ScriptedModel,
    ScriptedReply,
    ScriptedUsage,
    call_tool,
    drip,
    drop,
    echo_prompt,
    empty_body,
    fail,
    fail_mid_stream,
    half_json,
    hang,
    html_page,
    never_end,
    refuse,
    say,
    say_much,
)
from refold.testing.server import ScriptedProvider

__all__ = [
    "Fault",
    "RecordedRequest",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedProvider",
    "ScriptedReply",
    "ScriptedUsage",
    "call_tool",
    "drip",
    "drop",
    "echo_prompt",
    "empty_body",
    "fail",
    "fail_mid_stream",
    "find_violations",
    "half_json",
    "hang",
    "html_page",
    "never_end",
    "refuse",
    "say",
    "say_much",
]
