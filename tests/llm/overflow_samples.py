"""How providers say that a request does not fit: who, status, body, and the limit that the words state, if any."""

# ruff: noqa: E501 - what providers say has the length it has

import json
from typing import Any

Sample = tuple[str, int, Any, int | None]


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


SAMPLES: list[Sample] = [
    (
        "openai chat",
        400,
        error(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 150042 tokens. "
            "Please reduce the length of the messages.",
            code="context_length_exceeded",
        ),
        128_000,
    ),
    (
        "openai chat with completion",
        400,
        error(
            "This model's maximum context length is 4097 tokens, however you requested 5046 tokens (1046 in your prompt; "
            "4000 for the completion). Please reduce your prompt; or completion length."
        ),
        4_097,
    ),
    (
        "openai configured limit",
        400,
        error("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 301245 tokens."),
        272_000,
    ),
    (
        "openai responses",
        400,
        error(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            code="context_length_exceeded",
        ),
        None,
    ),
    ("openai code only", 400, error("Bad request", code="context_length_exceeded"), None),
    (
        "openai over a minute's tokens",
        429,
        error(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 41234. "
            "The input or output tokens must be reduced in order to run successfully.",
            code="rate_limit_exceeded",
        ),
        30_000,
    ),
    (
        "azure",
        400,
        error(
            "This model's maximum context length is 16385 tokens. However, you requested 17000 tokens (13000 in the "
            "messages, 4000 in the completion). Please reduce the length of the messages or completion.",
            code="context_length_exceeded",
        ),
        16_385,
    ),
    (
        "anthropic",
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"},
        },
        200_000,
    ),
    (
        "anthropic with output",
        400,
        error(
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or "
            "`max_tokens` and try again"
        ),
        200_000,
    ),
    (
        "anthropic bytes",
        413,
        {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
        None,
    ),
    (
        "gemini",
        400,
        [
            error(
                "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
                code=400,
                status="INVALID_ARGUMENT",
            )
        ],
        1_048_575,
    ),
    (
        "vertex",
        400,
        error(
            "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576. "
            "Reduce the input token count and try again."
        ),
        1_048_576,
    ),
    (
        "mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            "code": "3051",
        },
        32_768,
    ),
    (
        "deepseek",
        400,
        error(
            "This model's maximum context length is 131072 tokens. However, you requested 140001 tokens (136001 in the "
            "messages, 4000 in the completion). Please reduce the length of the messages or completion."
        ),
        131_072,
    ),
    (
        "dashscope",
        400,
        error("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"),
        129_024,
    ),
    (
        "dashscope native",
        400,
        {"code": "InvalidParameter", "message": "Range of input length should be [1, 30720]"},
        30_720,
    ),
    ("moonshot", 400, error("Invalid request: Your request exceeded model token limit: 131072"), 131_072),
    ("zhipu", 400, {"error": {"code": "1261", "message": "Prompt 超长"}}, None),
    ("minimax", 400, error("invalid params, context window exceeds limit (2013)"), None),
    ("volcengine", 400, error("Total tokens of image and text exceed max message tokens"), None),
    ("ollama", 400, {"error": "the input length exceeds the context length"}, None),
    ("ollama prompt", 400, error("prompt is too long for this model"), None),
    (
        "vllm",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the "
            "messages, Please reduce the length of the messages.",
            "type": "BadRequestError",
        },
        4_096,
    ),
    (
        "vllm decoder",
        400,
        error("The decoder prompt (length 5017) is longer than the maximum model length of 4096. Make sure that ..."),
        4_096,
    ),
    (
        "vllm max_tokens",
        400,
        error(
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 "
            "tokens and your request has 1200 input tokens (8192 > 8192 - 1200)."
        ),
        8_192,
    ),
    (
        "vllm newer",
        400,
        error(
            "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your "
            "prompt contains at least 134145 input tokens, for a total of at least 262145 tokens."
        ),
        262_144,
    ),
    (
        "llama.cpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "request (9021 tokens) exceeds the available context size (8192 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9021,
                "n_ctx": 8192,
            }
        },
        8_192,
    ),
    (
        "llama.cpp older",
        500,
        error(
            "the request exceeds the available context size. try increasing the context size or enable context shift"
        ),
        None,
    ),
    (
        "llama.cpp field only",
        400,
        {"error": {"message": "the request exceeds the available context size", "n_ctx": 4096}},
        4_096,
    ),
    (
        "lm studio",
        400,
        {
            "error": "Trying to keep the first 6240 tokens when context the overflows. However, the model is loaded with "
            "context length of only 4096 tokens, which is not enough."
        },
        4_096,
    ),
    (
        "groq",
        400,
        error("Please reduce the length of the messages or completion.", code="context_length_exceeded"),
        None,
    ),
    (
        "groq over a minute's tokens",
        413,
        error(
            "Request too large for model `llama-3.3-70b` in organization `org_x` service tier `on_demand` on tokens per "
            "minute (TPM): Limit 6000, Requested 8432, please reduce your message size and try again.",
            code="rate_limit_exceeded",
        ),
        6_000,
    ),
    (
        "together",
        422,
        error(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and "
            "1000 `max_new_tokens`"
        ),
        8_193,
    ),
    (
        "text-generation-inference",
        422,
        {
            "error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1200",
            "error_type": "validation",
        },
        1_024,
    ),
    (
        "xai",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        },
        131_072,
    ),
    ("bedrock", 400, {"message": "Input is too long for requested model."}, None),
    (
        "bedrock titan",
        400,
        {"message": "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9001 "},
        8_192,
    ),
    (
        "openrouter",
        400,
        error(
            "This endpoint's maximum context length is 200000 tokens. However, you requested about 239016 tokens (206248 "
            'of text input, 32768 in the output). Please reduce the length of either one, or use the "middle-out" transform.'
        ),
        200_000,
    ),
    (
        "openrouter quoting another",
        400,
        error(
            "Provider returned error",
            metadata={
                "raw": json.dumps(error("This model's maximum context length is 262144 tokens. However, ...")),
                "provider_name": "Some",
            },
        ),
        262_144,
    ),
    (
        "cohere",
        400,
        {
            "message": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4400. Try using "
            "a shorter prompt or a smaller max_tokens value."
        },
        4_081,
    ),
    (
        "github models",
        413,
        error("Request body too large for gpt-4o model. Max size: 8000 tokens.", code="tokens_limit_reached"),
        8_000,
    ),
    (
        "github copilot",
        400,
        error("prompt token count of 130512 exceeds the limit of 128000", code="model_max_prompt_tokens_exceeded"),
        128_000,
    ),
    ("fireworks", 400, error("The prompt is too long: 140000, model maximum context length: 131071"), 131_071),
    (
        "cerebras",
        400,
        {
            "message": "Please reduce the length of the messages or completion. Current length is 10000 while limit is 8192",
            "code": "context_length_exceeded",
        },
        8_192,
    ),
    ("sglang", 400, error("The input (5000 tokens) is longer than the model's context length (4096 tokens)."), 4_096),
    (
        "sglang total",
        400,
        error(
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
            "5000 tokens: 4000 tokens from the input messages and 1000 tokens for the completion."
        ),
        4_096,
    ),
    (
        "watsonx",
        400,
        {
            "errors": [
                {"message": "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model"}
            ]
        },
        4_096,
    ),
    ("some chinese gateway", 400, {"msg": "输入内容超出模型最大上下文长度限制"}, None),
    ("plain text", 400, "Error: context length exceeded", None),
    ("a proxy that only says 413", 413, "", None),
]

# Things that sound alike. Compressing would not help, so none of them may pass for an overflow.
OTHERS: list[tuple[str, int, Any]] = [
    (
        "openai output limit",
        400,
        error("max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
    ),
    (
        "anthropic output limit",
        400,
        error("max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-x"),
    ),
    (
        "openai tokens per minute",
        429,
        error(
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try "
            "again in 2s."
        ),
    ),
    (
        "anthropic tokens per minute",
        429,
        error("This request would exceed your organization's rate limit of 30,000 input tokens per minute."),
    ),
    ("bedrock throttling", 429, {"message": "Too many tokens, please wait before trying again."}),
    ("bedrock throttling as 400", 400, {"message": "Too many tokens, please wait before trying again."}),
    (
        "orphan result",
        400,
        error("messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."),
    ),
    ("wrong key", 401, error("Incorrect API key provided: your context length is fine")),
    ("no model", 404, error("The model `gpt-9` does not exist or you do not have access to it.")),
    ("image too large", 400, error("image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes")),
    ("unsupported", 400, error("Unsupported parameter: 'max_tokens' is not supported with this model.")),
    ("overloaded", 529, error("Overloaded", type="overloaded_error")),
]
