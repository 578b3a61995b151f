"""The catalogue of reasons: every code, the values it carries, and its English words.

Make one by calling it: ``because.OVER_HARD(tokens=131072, limit=128000)``. A template is a phrase that can follow
"why:" and can be quoted inside another one. Codes are stored in ledgers and counted in metrics: never rename one.
``locale/zh.json`` has the Chinese.
"""

from __future__ import annotations

from refold.conversation.reason import define_reason

# Text without a specific code, see ``text_reason``.
TEXT = define_reason("text", "{text}")

# When to act.
OVER_HARD = define_reason("fold.hard", "{tokens:,} tokens are over the limit of {limit:,}")
OVER_SOFT = define_reason("fold.soft", "{tokens:,} tokens reached the soft limit of {limit:,}")
NEAR_SOFT = define_reason("fold.warn", "{tokens:,} tokens; compression starts at {limit:,}")
UNSENT = define_reason("fold.unsent", "{tokens:,} tokens, {unsent:,} of which have not been sent yet")
ROUNDS = define_reason("trigger.rounds", "{messages:,} messages reached threshold_rounds {limit:,}")
MESSAGES = define_reason("trigger.messages", "{messages:,} messages are more than {limit:,}, twice keep_recent")
TOKENS = define_reason("trigger.tokens", "{tokens:,} tokens reached threshold_tokens {limit:,}")
TURNS = define_reason("trigger.turns", "{turns:,} turns are more than max_turns {limit:,}")
REPORTED = define_reason("trigger.reported", "the provider reported {tokens:,} tokens, {share:.0%} of the window")
TOO_FEW = define_reason(
    "trigger.too_few",
    "{because}, but nothing can be compressed yet: there are {messages:,} messages, and {kept:,} are kept",
)
SPACED = define_reason(
    "trigger.spaced", "{because}, but the last compression was only a few messages ago: {missing:,} more are needed"
)
NOTHING_OLD = define_reason(
    "trigger.nothing_old", "{because}, but there is nothing to compress: every message is recent or important"
)
TOO_LITTLE = define_reason(
    "trigger.too_little",
    "{because}, but a record of the {messages:,} older messages ({tokens:,} tokens) would save nothing",
)
OVERFLOW = define_reason("trigger.overflow", "the provider rejected the last request as too long")
CUT_OFF = define_reason("trigger.cut_off", "the last answer was cut off by the length limit")
MANUAL = define_reason("trigger.manual", "requested manually")
BY_TOOL = define_reason("trigger.tool", "requested by a tool")

# When a change of the cached prefix pays.
CLIFF = define_reason("economic.cliff", "above {above:,} tokens every request costs {factor:g} times as much")
COLD = define_reason("economic.cold", "the cache expired {minutes:,.0f} min ago, so a change is free now")
PAYS = define_reason(
    "economic.pays",
    "to save money: keeping {removable:,} old tokens has cost more than rewriting the cached prefix",
    "paid",
    "requests",
    "cost",
)
SAVES = define_reason(
    "economic.saves",
    "to save money: without {removable:,} old tokens the next {requests:count request} cost about {share:.0%} less, "
    "expected re-reads included",
)
WAIT = define_reason(
    "economic.wait",
    "waiting: removing {removable:,} old tokens now would save less than a tenth of the expected bill",
    "share",
)

# Why nothing was done.
FITS = define_reason("skip.fits", "it fits: nothing to do")
EMPTY = define_reason("skip.empty", "nothing to compress")
EXHAUSTED = define_reason("skip.exhausted", "nothing is left to compress")
AUTO_OFF = define_reason("auto.off", "automatic compression is off")
HELD_OFF = define_reason("auto.held", "automatic compression is off: {because}")
HAD_TO = define_reason("auto.overridden", "automatic compression is off, but {because}: it had to run")
BRAKED = define_reason(
    "auto.braked",
    "automatic compression has stopped after {misses:,} failed attempts ({because}); new messages, a manual "
    "compression, another model or other settings restart it",
)
STOPPED = define_reason("auto.stopped", "{misses:,} compressions in a row did not help: {because}")
STILL_LARGE = define_reason("auto.still_large", "{tokens:,} tokens in {messages:count message} remain")
LEASED = define_reason("skip.leased", "another process is compressing this session")
VETOED = define_reason("veto", "vetoed: {because}")
VETO_OVERRIDDEN = define_reason("veto.overridden", "a veto was overridden: {because}")
IN_BACKGROUND = define_reason("skip.background", "{because}: a summary is being prepared in the background")
PINNED_MEANWHILE = define_reason("skip.pinned_meanwhile", "a message was pinned in the meantime")
EDITED_MEANWHILE = define_reason("skip.edited_meanwhile", "edits were made or undone in the meantime")
REFUSED = define_reason(
    "skip.refused", "the ledger rejected a compression of {messages:count message} with {edits:count edit} ({because})"
)
HISTORY_REFUSED = define_reason("refused.history", "the ledger rejected a history of {messages:count message}")
MESSAGES_REFUSED = define_reason("refused.messages", "the ledger rejected {messages:count new message}")
BOTH = define_reason("both", "{first}; {second}")
UNCHANGED = define_reason("refused.unchanged", "everything it depends on appears unchanged")
MISSING = define_reason("refused.missing", "{count:count message} missing: {ids}")
FORGOTTEN = define_reason("refused.forgotten", "{count:count message} forgotten: {ids}")
UNSEEN = define_reason("refused.unseen", "{count:count edit} in force but not seen: {ids}")
STALE = define_reason("refused.stale", "{count:count edit} no longer in force: {ids}")
ERROR = define_reason("failed.error", "{error}: {detail}")
STAGE_FAILED = define_reason("failed.stage", "{detail}")
WARNED = define_reason("warned", "{detail}")
TOO_SMALL = define_reason("failed.too_small", "the budget is smaller than what cannot shrink")
WINDOW_STATED = define_reason("window.stated", "the provider says its window has {tokens:,} tokens")
WINDOW_REJECTED = define_reason("window.rejected", "the provider rejected a request of {tokens:,} tokens as too long")
FAILED_OPEN = define_reason("failed-open", "preparation failed, the request was sent unchanged: {error}")
# Actions of the gateway on a request. Clients read these codes in x-refold-reason.
SENT_UNCHANGED = define_reason("unchanged", "sent unchanged: it fits")
SENT_KEPT = define_reason("kept", "earlier compressions stay in force")
SENT_WHOLE = define_reason("originals", "the client summarises its conversation itself, so it was sent without records")
RETRIED = define_reason("overflow-retried", "compressed further and resent after the provider rejected it as too long")
IN_MEMORY = define_reason(
    "compressed-in-memory", "preparation failed ({error}), so the request was compressed without the ledger"
)
TRIMMED = define_reason("trimmed", "preparation failed ({error}), so only the newest part of the request was sent")
NOT_STORED = define_reason(
    "not-stored", "the request was not stored: the tenant has reached its limit of {limit:,} bytes"
)
OVER_BUDGET = define_reason(
    "over-budget", "the smallest possible context has {tokens:,} tokens, over the budget of {limit:,}"
)
BYPASS = define_reason("bypass", "the client asked to bypass compression")
COMPRESSION_OFF = define_reason("compression-off", "compression is off in the gateway")
NO_MESSAGES = define_reason("no-messages", "the request has no messages")
NOT_JSON = define_reason("not-json", "the request is not valid JSON")
NOT_AN_OBJECT = define_reason("not-an-object", "the request is not a JSON object")
UNREADABLE_MESSAGE = define_reason("unreadable-message", "a message of the request cannot be read")
UNREADABLE_CODING = define_reason("unreadable-coding", "the content encoding of the request is not supported")
PROVIDER_COMPACTION = define_reason("provider-compaction", "the provider compacts this conversation itself")
PREVIOUS_RESPONSE = define_reason("previous-response-id", "the provider holds the earlier messages")
PROVIDER_ITEMS = define_reason("provider-items", "the provider holds results of its own tools")
CONVERSATION = define_reason("conversation", "the provider holds the conversation")
PROMPT = define_reason("prompt", "the provider holds the prompt")
REFUSED_REQUEST = define_reason("refused", "{detail}")

# Edits of one message or span.
FOLDED = define_reason("edit.folded", "old messages folded")
OLD_OBSERVATION = define_reason("edit.old_observation", "old tool result")
OLD_LARGE = define_reason("edit.old_large", "old large tool result")
OLD_THINKING = define_reason("edit.old_thinking", "thinking before the newest step")
SAYS_NOTHING = define_reason("edit.says_nothing", "no content")
NEWER_RESULT = define_reason("edit.newer_result", "a newer result says the same")
NEWER_MESSAGE = define_reason("edit.newer_message", "a newer message says the same")
DENSER = define_reason("edit.denser", "{chars_before:,} characters rewritten in {chars_after:,} without loss")
OUTPUT_CUT = define_reason(
    "edit.output_cut", "output of {chars_before:,} characters is over its limit; {chars_after:,} are shown"
)
WINDOWED = define_reason("edit.windowed", "over the limit: only the newest part stays")
STEP_TOO_LARGE = define_reason("edit.step_too_large", "the newest step alone does not fit")
PIECE_TOO_LARGE = define_reason("edit.piece_too_large", "had {tokens:,} tokens; the rest would not fit beside it")
NO_ROOM_TO_THINK = define_reason("edit.no_thinking_room", "no room for thinking")

# Why the ladder did not take an edit.
WOULD_GROW = define_reason("rejected.growth", "would not shrink: {before:,} → {after:,} tokens")
OUT_OF_VIEW = define_reason("rejected.out_of_view", "its message is not in view")
NOTHING_NEW = define_reason("rejected.nothing_new", "nothing new to fold: the earlier fold stays")
LAW_BROKEN = define_reason("rejected.law", "{law}: {detail}")

# Why snippets of hidden messages are recalled, or not.
RECALL_OFF = define_reason("recall.off", "inject is off")
RECALL_ALWAYS = define_reason("recall.always", "inject is always")
RECALL_NO_WORDS = define_reason("recall.no_words", "the newest user message has no words")
RECALL_LONG = define_reason("recall.long", "a message of this length carries its own context")
RECALL_VAGUE = define_reason("recall.vague", "the message names too little to search for")
RECALL_CUE = define_reason("recall.cue", "the message refers back ({cue!r})")
RECALL_QUESTION = define_reason("recall.question", "the message asks a question")
RECALL_UNRELATED = define_reason("recall.unrelated", "the message does not refer to folded messages")
RECALL_VALUE = define_reason("recall.value", "the message names {value!r}, which is only in folded messages")
RECALL_NO_FOLDS = define_reason("recall.no_folds", "nothing is folded")
RECALL_NO_MATCH = define_reason("recall.no_match", "nothing hidden matches")
RECALL_IN_VIEW = define_reason("recall.in_view", "the matching text is already in view")
RECALL_WEAK = define_reason("recall.weak", "{because}; the best match covers {score:.0%} of it, {needed:.0%} is needed")
RECALL_NO_FIT = define_reason("recall.no_fit", "{because}; but no snippet fits into {tokens:,} tokens")
RECALL_QUOTED = define_reason("recall.quoted", "{because}: {handles} added")
RECALLED = define_reason("recall.added", "added below the newest user message")
TAKEN_BACK = define_reason("recall.taken_back", "removed: there is no room for it")
REMEMBERED = define_reason("memory.added", "{notes} notes from earlier sessions added")
TUNED = define_reason("tuned", "tuned: {changes}")

# The writer of a summary, and what was dropped, added or wrong about it.
BY_MODEL = define_reason("summary.model", "summary by a model")
BY_RULES = define_reason("summary.rules", "extractive summary: {because}")
NO_SUMMARY = define_reason("summary.none", "no summary: {because}")
TOO_LONG = define_reason("stage.too_long", "it took too long")
NO_MODEL = define_reason("summary.no_model", "no model is configured")
LITTLE_NEW = define_reason("summary.little_new", "too little is new for a model")
NO_GAIN = define_reason("summary.no_gain", "nothing to gain: the summary is not shorter than what it replaces")
ASKED_AGAIN = define_reason("summary.asked_again", "asked again: {because}")
CUT_TO = define_reason("summary.cut", "cut to {chars:,} characters")
ASKS_ADDED = define_reason("summary.asks", "{asks:count open ask} added")
RULES_ADDED = define_reason("summary.rules_added", "{rules:count standing rule} added")
VALUES_ADDED = define_reason("summary.values", "{values:count exact value} added")
NOT_IN_SOURCE = define_reason("summary.not_in_source", "not in the source: {claims}")
NOT_CITED = define_reason("summary.not_cited", "{claims} is not in the messages it cites")
OTHER_OWNER = define_reason("summary.owner", "{value} belongs to {owner}")
RUN_SAYS = define_reason("summary.run_says", "says *{says}*, the run says {source}")
NO_RUN = define_reason("summary.no_run", "says *{says}*, no run says so")
NO_CALL = define_reason("summary.no_call", "says *{says}*, no call did that")
NOBODYS_WISH = define_reason("summary.no_wish", "no person said that")
OTHER_SENSE = define_reason("summary.sense", "the words are: {source}")
OTHER_SPEAKER = define_reason("summary.speaker", "somebody else said: {source}")
NOTE_KEPT = define_reason("summary.kept", "the earlier note stays: {because}")
MORE = define_reason("summary.more", "{count:,} more")
NOT_A_RECORD = define_reason("summary.not_a_record", "instructions, not a record")
DROPPED = define_reason("summary.dropped", "{sentences:count sentence} dropped ({because})")
MOSTLY_INVENTED = define_reason("answer.invented", "most of the answer is not in the conversation ({because})")
ANSWER_CUT_OFF = define_reason("answer.cut_off", "the answer was cut off")
ANSWER_CALLS = define_reason("answer.tool_call", "the answer was a tool call")
ANSWER_REFUSES = define_reason("answer.refusal", "the model refused")
ANSWER_FILTERED = define_reason("answer.filtered", "the provider's filter stopped the answer")
NO_ANSWER = define_reason("answer.none", "there was no answer")
ANSWER_EMPTY = define_reason("answer.empty", "the answer was empty")
ANSWER_IS_PAGE = define_reason("answer.page", "the answer was a web page")
ANSWER_ECHOES = define_reason("answer.echo", "the answer repeats its prompt")
ANSWER_IS_DATA = define_reason("answer.data", "the answer was data, not words")
ANSWER_BARE = define_reason("answer.headings", "the answer lacks the headings that were asked for")
ANSWER_LONG = define_reason("answer.long", "the answer has {tokens:,} tokens, its source {source:,}")
ANSWER_HUGE = define_reason("answer.huge", "the answer has {chars:,} characters, far more than requested")
ANSWER_LATE = define_reason("answer.late", "no answer within {seconds:g} s; raise the time-out or ask for less")
MODEL_TOO_SMALL = define_reason(
    "summary.window", "{model} has a window of {window:,} tokens, the summary needs {needed:,}"
)
ANSWER_LONGER = define_reason("answer.longer", "the answer has {chars:,} characters, its source {source:,}")
COMPRESSOR_FAILED = define_reason("summary.compressor", "the compressor failed: {detail}")
COMPRESSOR_SILENT = define_reason("summary.compressor_silent", "the compressor wrote no summary")
PLUGIN_MISSING = define_reason(
    "plugin.unloaded", "plugin {name} of {origin} could not be loaded ({detail}); it was left out"
)
PLUGIN_FAILED = define_reason("plugin.failed", "plugin {name} failed ({detail}); nothing of it was used")
PLUGIN_REJECTED = define_reason("plugin.rejected", "plugin {name}: {because}")

# Notes of a report about recalled text and about the window.
RECALL_NOTE = define_reason("recall.note", "recall: {because}")
RECALL_NOTHING = define_reason("recall.nothing", "recall: nothing added: {because}")
RECALL_NO_ROOM = define_reason("recall.no_room", "{because}, but there is no room")
MODEL_UNKNOWN = define_reason(
    "window.unknown_model", "the model {model!r} is not known: a window of {window:,} tokens is assumed"
)
MODEL_UNNAMED = define_reason(
    "window.unnamed_model", "no model is named: a window of {window:,} tokens is assumed; name it, or give a budget"
)
