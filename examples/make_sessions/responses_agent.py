"""The support session: a back-office agent of an invented outdoor shop, as a body of the OpenAI Responses API.

This file holds the voice: message, reasoning, function_call and function_call_output items. The cases of the day are
in ``responses_agent_cases``. Reasoning is encrypted, as it comes when nothing is stored at the provider.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.make_sessions import responses_agent_cases
from examples.make_sessions.story import HEX, Story, write_body, write_facts

SEED = 20260518
INSTRUCTIONS = """You are the back-office agent of Marrowick Outfitters, a shop for camping gear. A clerk hands you cases;
you look things up, apply the policies and act through the tools.

Policies are binding: read the article before you decide, and name its number. Money moves only after the clerk says
yes. Amounts are in cents in the tools and in euros when you write. Dates are ISO. One case at a time; close a case
with one line that says what was done. What the clerk says overrides a policy only if the clerk names the article."""


def describe_tool(name: str, description: str, /, **properties: str) -> dict[str, Any]:
    """A tool definition in the flat form of the Responses API; every property is required."""
    fields = {}
    for key, text in properties.items():
        kind, meaning = text.split(": ", 1)
        fields[key] = {"type": kind, "description": meaning}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": True}


TOOLS = [
    describe_tool("find_customer", "Find a customer.", customer="string: number, K-…"),
    describe_tool("list_orders", "Orders of a customer, newest first.", customer="string: number, K-…"),
    describe_tool("track_parcel", "Scans of a parcel.", parcel="string: number of the parcel"),
    describe_tool("read_policy", "Read a policy article.", topic="string: returns, warranty, parcels, invoices"),
    describe_tool("check_stock", "Stock of an article.", sku="string: article number"),
    describe_tool(
        "refund",
        "Refund to the card that paid.",
        order="string: MW-…",
        cents="integer: amount",
        approval="string: code of the shift lead, or empty",
    ),
    describe_tool(
        "give_credit", "Give store credit.", customer="string: K-…", cents="integer: amount", note="string: why"
    ),
    describe_tool("ship", "Ship an article free of charge.", order="string: MW-…", sku="string: article number"),
    describe_tool("open_trace", "Open a trace with the carrier.", parcel="string: number of the parcel"),
    describe_tool(
        "check_tax_number", "Check a tax number.", number="string: the number", country="string: two letters"
    ),
    describe_tool("list_recall", "Orders concerned by a recall.", recall="string: RC-…"),
    describe_tool("note_case", "Write a note into a case.", case="string: CS-…", text="string: the note"),
]

Call = tuple[str, dict[str, Any], str]


class BackOffice(Story):
    """The story as the back-office agent tells it."""

    def __init__(self) -> None:
        super().__init__(SEED)
        self.tracking = ""

    def user(self, text: str) -> None:
        self.add({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})

    def say(self, text: str) -> None:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        self.add(
            {
                "type": "message",
                "id": "msg_" + self.draw(40, HEX),
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )

    def reason(self, summary: str = "") -> None:
        """A reasoning item; most have no summary, as most requests do not ask for one."""
        self.add(
            {
                "type": "reasoning",
                "id": "rs_" + self.draw(40, HEX),
                "summary": [{"type": "summary_text", "text": summary}] if summary else [],
                "encrypted_content": "gAAAAAB" + self.draw_base64(self.rng.randrange(260, 460)),
            }
        )

    def act(self, *calls: Call, summary: str = "") -> None:
        """Reasoning, then the calls, then their outputs: the order in which the API gives and takes them."""
        self.reason(summary)
        ids = ["call_" + self.draw(24) for _ in calls]
        for call_id, (name, arguments, _) in zip(ids, calls, strict=True):
            self.add(
                {
                    "type": "function_call",
                    "id": "fc_" + self.draw(40, HEX),
                    "call_id": call_id,
                    "name": name,
                    "arguments": json.dumps(arguments, ensure_ascii=False),
                    "status": "completed",
                }
            )
        for call_id, (_, _, output) in zip(ids, calls, strict=True):
            self.add({"type": "function_call_output", "call_id": call_id, "output": output})


def write_session(folder: Path) -> None:
    """Write the session and its facts into ``folder``."""
    office = BackOffice()
    responses_agent_cases.tell(office)
    body = {
        "model": "gpt-5.2",
        "instructions": INSTRUCTIONS,
        "input": office.messages,
        "tools": TOOLS,
        "reasoning": {"effort": "medium"},
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "parallel_tool_calls": True,
    }
    write_body(folder / "responses_agent.json", body)
    write_facts(folder / "responses_agent.facts.json", office.facts)
