"""Detects a context overflow in any provider's error message, and the limit if it is stated.

There is no common error code: most providers send a sentence. Output limits and tokens per minute are not overflows:
compressing would not help.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_N = r"(?P<limit>\d[\d,_]{0,15})"
CHARS_MAX = 20_000

# Tried in order; those that state the limit come first.
_WORDINGS = (
    rf"(?<![\d,]){_N} maximum context length",  # Mistral
    # OpenAI, Azure, DeepSeek, vLLM, OpenRouter, xAI, Fireworks, SGLang
    rf"maximum (?:context|prompt|model|sequence) length\W{{0,3}}(?:is|of|:)?(?: only)? ?{_N}",
    rf"configured limit of {_N} tokens",  # OpenAI, newer models
    rf"prompt is too long:? [\d,]{{1,15}}(?: tokens)? > {_N}",  # Anthropic
    rf"exceed context limit: [\d,]{{1,15}} \+ [\d,]{{1,15}} > {_N}",  # Anthropic, with its output
    rf"token count.{{0,60}}exceeds the maximum number of tokens allowed \(?{_N}",  # Gemini
    rf"input token count is [\d,]{{1,15}} but model only supports up to {_N}",  # Vertex
    rf"input length should be \[\d+, ?{_N}\]",  # DashScope
    rf"exceeded model token limit:? {_N}",  # Moonshot
    rf"available context size \({_N} tokens",  # llama.cpp
    rf"context length (?:of|is) only {_N}",  # LM Studio, vLLM
    rf"longer than the (?:maximum model length|model's context length|context length)(?: of)?\W{{0,2}}{_N}",
    rf"while limit is {_N}",  # Cerebras
    rf"max_new_tokens.{{0,4}} must be <= {_N}",  # Together, text-generation-inference
    rf"inputs.{{0,4}} must have less than {_N} tokens",
    rf"prompt token count of [\d,]{{1,15}} exceeds the limit of {_N}",  # GitHub Copilot
    rf"too large for .{{1,80}} model\. max size: {_N} tokens",  # GitHub Models
    rf"max input tokens: {_N}",  # Bedrock
    rf"tokens in the prompt cannot exceed {_N}",  # Cohere
    rf"cannot exceed the total tokens limit {_N}",  # watsonx
    # Without a limit
    r"prompt is too long",
    r"input is too long",
    r"request exceeds the maximum size",
    r"exceeds? (?:the |your |this )?(?:model'?s? )?(?:maximum )?context (?:window|length|size|limit)",
    r"exceeds the available context size",
    r"context window exceeds limit",  # MiniMax
    r"context[_ ](?:length|window)[_ ]exceeded",
    r"greater than the context length",
    r"reduce the length of the (?:messages|prompt|input)",
    r"exceed_context_size_error|model_max_prompt_tokens_exceeded|tokens_limit_reached|request_too_large",
    r"exceed max message tokens",  # Volcengine
    r"too many (?:input )?tokens(?! per|, please wait)",
    r"string too long\. expected a string with maximum length",
    r"(?:prompt|输入|提示词|上下文|消息).{0,12}(?:超长|过长)",
    r"(?:超过|超出).{0,16}(?:上下文|最大).{0,6}(?:长度|限制|token)",
)
# The output limit counts towards the window: Anthropic; OpenAI, vLLM and the like.
_COUNTS_OUTPUT = re.compile(
    r"max_(?:completion_|output_)?tokens\W{0,4}(?:or \W?max_\w{1,20}\W? )?(?:exceed|is too large)"
    r"|\d in the (?:completion|output)\b",
    re.I,
)
_PATTERNS = tuple(re.compile(wording, re.I | re.S) for wording in _WORDINGS)
# A request over the tokens-per-minute limit can never pass; OpenAI and Groq answer 429 or 413.
_OVER_MINUTE = re.compile(rf"request too large for .{{1,200}}limit:? {_N},? requested", re.I | re.S)


@dataclass(frozen=True, slots=True)
class Overflow:
    """A request was too long; ``tokens_max`` is the stated limit, if any.

    ``counts_output``: the output limit counts towards the window. ``is_quoted``: the request itself contained the
    wording.
    """

    tokens_max: int | None = None
    counts_output: bool = False
    is_quoted: bool = False


def find_overflow(text: str, status: int = 400, is_quoted: Callable[[str], bool] = lambda _: False) -> Overflow | None:
    """Return the overflow that an error message reports; None if it is about something else.

    ``is_quoted`` checks whether the request contained a text: a limit in it is not the provider's.
    """
    text = text[:CHARS_MAX]
    over_minute = _OVER_MINUTE.search(text)
    if over_minute:
        return Overflow(_read_limit(over_minute)) if not is_quoted(over_minute[0]) else Overflow(is_quoted=True)
    if status in (401, 402, 403, 404, 429):
        return None
    quoted = None
    for pattern in _PATTERNS:
        found = pattern.search(text)
        if found is None:
            continue
        if is_quoted(found[0]):
            quoted = Overflow(is_quoted=True)
            continue
        return Overflow(_read_limit(found), bool(_COUNTS_OUTPUT.search(text)))
    return quoted


def _read_limit(found: re.Match[str]) -> int | None:
    limit = found.groupdict().get("limit")
    return int(limit.replace(",", "").replace("_", "")) if limit and len(limit) < 16 else None
