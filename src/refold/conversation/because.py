"""The catalogue of reasons: every code, the values it carries, and its words in English and Chinese.

Make one by calling it: ``because.OVER_HARD(tokens=131072, limit=128000)``. A template is a phrase that can follow
"why:" and can be quoted inside another one. Codes are stored in ledgers and counted in metrics: never rename one.
"""

from __future__ import annotations

from refold.conversation.reason import define_reason

# Words without a code of their own, see ``text_reason``.
TEXT = define_reason("text", "{text}", "{text}")

# When to act.
OVER_HARD = define_reason(
    "fold.hard", "{tokens:,} tokens are over the limit of {limit:,}", "{tokens:,} 词元超过上限 {limit:,}"
)
OVER_SOFT = define_reason(
    "fold.soft", "{tokens:,} tokens reached the soft limit of {limit:,}", "{tokens:,} 词元达到软上限 {limit:,}"
)
NEAR_SOFT = define_reason(
    "fold.warn", "{tokens:,} tokens; compression starts at {limit:,}", "{tokens:,} 词元；从 {limit:,} 开始压缩"
)
UNSENT = define_reason(
    "fold.unsent",
    "{tokens:,} tokens, {unsent:,} of which have not been sent yet",
    "{tokens:,} 词元，其中 {unsent:,} 尚未发送过",
)
ROUNDS = define_reason(
    "trigger.rounds",
    "{messages:,} messages reached threshold_rounds {limit:,}",
    "{messages:,} 条消息达到 threshold_rounds {limit:,}",
)
MESSAGES = define_reason(
    "trigger.messages",
    "{messages:,} messages are more than {limit:,}, twice keep_recent",
    "{messages:,} 条消息超过 {limit:,} 条（keep_recent 的两倍）",
)
TOKENS = define_reason(
    "trigger.tokens",
    "{tokens:,} tokens reached threshold_tokens {limit:,}",
    "{tokens:,} 词元达到 threshold_tokens {limit:,}",
)
TURNS = define_reason(
    "trigger.turns", "{turns:,} turns are more than max_turns {limit:,}", "{turns:,} 轮超过 max_turns {limit:,}"
)
REPORTED = define_reason(
    "trigger.reported",
    "the provider reported {tokens:,} tokens, {share:.0%} of the window",
    "服务商报告 {tokens:,} 词元，占窗口的 {share:.0%}",
)
TOO_FEW = define_reason(
    "trigger.too_few",
    "{because}, but nothing can be compressed yet: there are {messages:,} messages, and {kept:,} are kept",
    "{because}，但还没有可压缩的内容：共 {messages:,} 条消息，保留 {kept:,} 条",
)
SPACED = define_reason(
    "trigger.spaced",
    "{because}, but the last compression was a few messages ago: {missing:,} more come first",
    "{because}，但距上次压缩只有几条消息：再来 {missing:,} 条后压缩",
)
OVERFLOW = define_reason(
    "trigger.overflow", "the provider rejected the last request as too long", "服务商以过长为由拒绝了上一次请求"
)
CUT_OFF = define_reason(
    "trigger.cut_off", "the last answer was cut off by the length limit", "上一次回答因长度限制被截断"
)
MANUAL = define_reason("trigger.manual", "requested manually", "手动要求")
BY_TOOL = define_reason("trigger.tool", "requested by a tool", "由工具要求")

# When a change of the cached prefix pays.
CLIFF = define_reason(
    "economic.cliff",
    "above {above:,} tokens every request costs {factor:g} times as much",
    "超过 {above:,} 词元后每次请求的费用为 {factor:g} 倍",
)
COLD = define_reason(
    "economic.cold",
    "the cache expired {minutes:,.0f} min ago, so a change is free now",
    "缓存已失效 {minutes:,.0f} 分钟：此时修改没有代价",
)
PAYS = define_reason(
    "economic.pays",
    "to save money: keeping {removable:,} old tokens has cost more than rewriting the cached prefix",
    "为节省费用：保留 {removable:,} 个旧词元的花费已超过重写缓存前缀",
    "paid",
    "requests",
    "cost",
)
SAVES = define_reason(
    "economic.saves",
    "to save money: without {removable:,} old tokens the next {requests:count request} cost about {share:.0%} less, "
    "expected re-reads included",
    "为节省费用：去掉 {removable:,} 个旧词元后，接下来 {requests:,} 次请求约便宜 {share:.0%}（已计入预计的重新读取）",
)
WAIT = define_reason(
    "economic.wait",
    "waiting: removing {removable:,} old tokens now would save less than a tenth of the expected bill",
    "暂缓：现在移除 {removable:,} 个旧词元，节省不到预计费用的一成",
    "share",
)

# Why nothing was done.
FITS = define_reason("skip.fits", "it fits: nothing to do", "未超出预算：无需处理")
EMPTY = define_reason("skip.empty", "nothing to compress", "没有可压缩的内容")
EXHAUSTED = define_reason("skip.exhausted", "nothing is left to compress", "已没有可压缩的内容")
AUTO_OFF = define_reason("auto.off", "automatic compression is off", "自动压缩已关闭")
HELD_OFF = define_reason("auto.held", "automatic compression is off: {because}", "自动压缩已关闭：{because}")
HAD_TO = define_reason(
    "auto.overridden",
    "automatic compression is off, but {because}: it had to run",
    "自动压缩已关闭，但{because}：必须执行",
)
BRAKED = define_reason(
    "auto.braked",
    "automatic compression has stopped after {misses:,} failed attempts ({because}); new messages, a manual "
    "compression, another model or other settings restart it",
    "自动压缩连续 {misses:,} 次没有效果，已停止（{because}）；新消息、手动压缩、更换模型或修改设置即可恢复",
)
STOPPED = define_reason(
    "auto.stopped",
    "{misses:,} compressions in a row did not help: {because}",
    "连续 {misses:,} 次压缩没有效果：{because}",
)
STILL_LARGE = define_reason(
    "auto.still_large",
    "{tokens:,} tokens in {messages:count message} remain",
    "仍剩 {tokens:,} 词元，共 {messages:,} 条消息",
)
LEASED = define_reason("skip.leased", "another process is compressing this session", "另一个进程正在压缩此会话")
VETOED = define_reason("veto", "vetoed: {because}", "已被否决：{because}")
VETO_OVERRIDDEN = define_reason("veto.overridden", "a veto was overridden: {because}", "否决未被采纳：{because}")
IN_BACKGROUND = define_reason(
    "skip.background", "{because}: a summary is being prepared in the background", "{because}：正在后台准备摘要"
)
PINNED_MEANWHILE = define_reason("skip.pinned_meanwhile", "a message was pinned in the meantime", "其间有消息被固定")
EDITED_MEANWHILE = define_reason(
    "skip.edited_meanwhile", "edits were made or undone in the meantime", "其间有修改被执行或撤销"
)
REFUSED = define_reason(
    "skip.refused",
    "the ledger rejected a compression of {messages:count message} with {edits:count edit} ({because})",
    "账本拒绝了对 {messages:,} 条消息的压缩，共 {edits:,} 处修改（{because}）",
)
HISTORY_REFUSED = define_reason(
    "refused.history",
    "the ledger rejected a history of {messages:count message}",
    "账本拒绝了 {messages:,} 条消息的历史",
)
MESSAGES_REFUSED = define_reason(
    "refused.messages", "the ledger rejected {messages:count new message}", "账本拒绝了 {messages:,} 条新消息"
)
BOTH = define_reason("both", "{first}; {second}", "{first}；{second}")
UNCHANGED = define_reason("refused.unchanged", "everything it depends on appears unchanged", "其依据似乎没有变化")
MISSING = define_reason("refused.missing", "{count:count message} missing: {ids}", "缺少 {count:,} 条消息：{ids}")
FORGOTTEN = define_reason(
    "refused.forgotten", "{count:count message} forgotten: {ids}", "{count:,} 条消息已遗忘：{ids}"
)
UNSEEN = define_reason(
    "refused.unseen", "{count:count edit} in force but not seen: {ids}", "{count:,} 处有效修改未见到：{ids}"
)
STALE = define_reason("refused.stale", "{count:count edit} no longer in force: {ids}", "{count:,} 处修改已失效：{ids}")
ERROR = define_reason("failed.error", "{error}: {detail}", "{error}：{detail}")
STAGE_FAILED = define_reason("failed.stage", "{detail}", "{detail}")
WARNED = define_reason("warned", "{detail}", "{detail}")
TOO_SMALL = define_reason("failed.too_small", "the budget is smaller than what cannot shrink", "预算小于无法压缩的部分")
WINDOW_STATED = define_reason(
    "window.stated", "the provider says its window has {tokens:,} tokens", "服务商说明其窗口为 {tokens:,} 词元"
)
WINDOW_REJECTED = define_reason(
    "window.rejected",
    "the provider rejected a request of {tokens:,} tokens as too long",
    "服务商以过长为由拒绝了 {tokens:,} 词元的请求",
)
FAILED_OPEN = define_reason(
    "failed-open", "preparation failed, the request was sent unchanged: {error}", "压缩失败，原样放行：{error}"
)
# Actions of the gateway on a request. Clients read these codes in x-refold-reason.
SENT_UNCHANGED = define_reason("unchanged", "sent unchanged: it fits", "原样发送：未超出预算")
SENT_KEPT = define_reason("kept", "earlier compressions stay in force", "沿用之前的压缩")
RETRIED = define_reason(
    "overflow-retried",
    "compressed further and resent after the provider rejected it as too long",
    "服务商以过长为由拒绝后，进一步压缩并重发",
)
IN_MEMORY = define_reason(
    "compressed-in-memory",
    "preparation failed ({error}), so the request was compressed without the ledger",
    "准备失败（{error}），未使用账本，在内存中压缩",
)
TRIMMED = define_reason(
    "trimmed",
    "preparation failed ({error}), so only the newest part of the request was sent",
    "准备失败（{error}），只发送了请求中最新的部分",
)
NOT_STORED = define_reason(
    "not-stored",
    "the request was not stored: the tenant has reached its limit of {limit:,} bytes",
    "请求未保存：租户已达到 {limit:,} 字节的存储上限",
)
OVER_BUDGET = define_reason(
    "over-budget",
    "the smallest possible context has {tokens:,} tokens, over the budget of {limit:,}",
    "最小的上下文也有 {tokens:,} 词元，超过预算 {limit:,}",
)
BYPASS = define_reason("bypass", "the client asked to bypass compression", "客户端要求跳过压缩")
COMPRESSION_OFF = define_reason("compression-off", "compression is off in the gateway", "网关已关闭压缩")
NO_MESSAGES = define_reason("no-messages", "the request has no messages", "请求中没有消息")
NOT_JSON = define_reason("not-json", "the request is not valid JSON", "请求不是有效的 JSON")
NOT_AN_OBJECT = define_reason("not-an-object", "the request is not a JSON object", "请求不是 JSON 对象")
UNREADABLE_MESSAGE = define_reason(
    "unreadable-message", "a message of the request cannot be read", "请求中有无法读取的消息"
)
UNREADABLE_CODING = define_reason(
    "unreadable-coding", "the content encoding of the request is not supported", "不支持请求的内容编码"
)
PROVIDER_COMPACTION = define_reason(
    "provider-compaction", "the provider compacts this conversation itself", "服务商自行压缩此对话"
)
PREVIOUS_RESPONSE = define_reason(
    "previous-response-id", "the provider holds the earlier messages", "较早的消息保存在服务商处"
)
PROVIDER_ITEMS = define_reason(
    "provider-items", "the provider holds results of its own tools", "服务商保存着其自有工具的结果"
)
CONVERSATION = define_reason("conversation", "the provider holds the conversation", "对话保存在服务商处")
PROMPT = define_reason("prompt", "the provider holds the prompt", "提示词保存在服务商处")
REFUSED_REQUEST = define_reason("refused", "{detail}", "{detail}")

# Edits of one message or span.
FOLDED = define_reason("edit.folded", "old messages folded", "较早的内容已折叠")
OLD_OBSERVATION = define_reason("edit.old_observation", "old tool result", "较早的工具输出")
OLD_LARGE = define_reason("edit.old_large", "old large tool result", "较早的大型工具结果")
OLD_THINKING = define_reason("edit.old_thinking", "thinking before the newest step", "最新一步之前的思考")
SAYS_NOTHING = define_reason("edit.says_nothing", "no content", "没有内容")
NEWER_RESULT = define_reason("edit.newer_result", "a newer result says the same", "较新的结果内容相同")
NEWER_MESSAGE = define_reason("edit.newer_message", "a newer message says the same", "较新的消息内容相同")
DENSER = define_reason(
    "edit.denser",
    "{chars_before:,} characters rewritten in {chars_after:,} without loss",
    "{chars_before:,} 字符缩写为 {chars_after:,}，没有丢失内容",
)
OUTPUT_CUT = define_reason(
    "edit.output_cut",
    "output of {chars_before:,} characters is over its limit; {chars_after:,} are shown",
    "输出共 {chars_before:,} 字符，超过上限；显示其中 {chars_after:,}",
)
WINDOWED = define_reason("edit.windowed", "over the limit: only the newest part stays", "超过上限：只保留最新部分")
STEP_TOO_LARGE = define_reason("edit.step_too_large", "the newest step alone does not fit", "仅最新一步就已放不下")
PIECE_TOO_LARGE = define_reason(
    "edit.piece_too_large",
    "had {tokens:,} tokens; the rest would not fit beside it",
    "原有 {tokens:,} 词元；其余内容会放不下",
)
NO_ROOM_TO_THINK = define_reason("edit.no_thinking_room", "no room for thinking", "没有空间留给思考内容")

# Why the ladder did not take an edit.
WOULD_GROW = define_reason(
    "rejected.growth", "would not shrink: {before:,} → {after:,} tokens", "不会变小：{before:,} → {after:,} 词元"
)
OUT_OF_VIEW = define_reason("rejected.out_of_view", "its message is not in view", "其消息不在视图中")
NOTHING_NEW = define_reason(
    "rejected.nothing_new", "nothing new to fold: the earlier fold stays", "没有新内容可折叠：保留之前的折叠"
)
LAW_BROKEN = define_reason("rejected.law", "{law}: {detail}", "{law}：{detail}")

# Why snippets of hidden messages are recalled, or not.
RECALL_OFF = define_reason("recall.off", "inject is off", "inject 已关闭")
RECALL_ALWAYS = define_reason("recall.always", "inject is always", "inject 为 always")
RECALL_NO_WORDS = define_reason("recall.no_words", "the newest user message has no words", "最新的用户消息没有文字")
RECALL_LONG = define_reason("recall.long", "a message of this length carries its own context", "消息较长，自带所需内容")
RECALL_VAGUE = define_reason("recall.vague", "the message names too little to search for", "消息中可供查找的内容太少")
RECALL_CUE = define_reason("recall.cue", "the message refers back ({cue!r})", "消息提到了之前的内容（{cue}）")
RECALL_QUESTION = define_reason("recall.question", "the message asks a question", "消息在提问")
RECALL_UNRELATED = define_reason(
    "recall.unrelated", "the message does not refer to folded messages", "消息与已折叠的内容无关"
)
RECALL_VALUE = define_reason(
    "recall.value",
    "the message names {value!r}, which is only in folded messages",
    "消息提到的 {value} 只出现在已折叠的消息中",
)
RECALL_NO_FOLDS = define_reason("recall.no_folds", "nothing is folded", "没有已折叠的内容")
RECALL_NO_MATCH = define_reason("recall.no_match", "nothing hidden matches", "没有匹配的隐藏内容")
RECALL_IN_VIEW = define_reason("recall.in_view", "what matches is already in view", "匹配的内容已在视图中")
RECALL_WEAK = define_reason(
    "recall.weak",
    "{because}; the best match covers {score:.0%} of it, {needed:.0%} is needed",
    "{because}；最佳匹配覆盖 {score:.0%}，需要 {needed:.0%}",
)
RECALL_NO_FIT = define_reason(
    "recall.no_fit",
    "{because}; but no snippet fits into {tokens:,} tokens",
    "{because}；但没有摘录能放进 {tokens:,} 词元",
)
RECALL_QUOTED = define_reason("recall.quoted", "{because}: {handles} added", "{because}：已附上 {handles}")
RECALLED = define_reason("recall.added", "added below the newest user message", "已附在最新的用户消息之后")
TAKEN_BACK = define_reason("recall.taken_back", "removed: there is no room for it", "已撤回：没有空间")
REMEMBERED = define_reason(
    "memory.added", "{notes} notes from earlier sessions added", "已附上较早会话的 {notes} 条记录"
)
TUNED = define_reason("tuned", "tuned: {changes}", "已调整：{changes}")

# The writer of a summary, and what was dropped, added or wrong about it.
BY_MODEL = define_reason("summary.model", "summary by a model", "摘要由模型撰写")
BY_RULES = define_reason("summary.rules", "extractive summary: {because}", "抽取式摘要：{because}")
NO_SUMMARY = define_reason("summary.none", "no summary: {because}", "没有摘要：{because}")
TOO_LONG = define_reason("stage.too_long", "it took too long", "耗时过长")
NO_MODEL = define_reason("summary.no_model", "no model is configured", "未配置模型")
LITTLE_NEW = define_reason("summary.little_new", "too little is new for a model", "新内容太少，不必调用模型")
NOT_SMALL_ENOUGH = define_reason(
    "summary.not_small_enough", "with the answer the context would not be small enough", "采用该回答后上下文仍然过大"
)
ASKED_AGAIN = define_reason("summary.asked_again", "asked again: {because}", "已重新请求：{because}")
CUT_TO = define_reason("summary.cut", "cut to {chars:,} characters", "截至 {chars:,} 个字符")
ASKS_ADDED = define_reason("summary.asks", "{asks:count open ask} added", "补上 {asks:,} 个未完成的请求")
RULES_ADDED = define_reason("summary.rules_added", "{rules:count standing rule} added", "补上 {rules:,} 条规矩")
VALUES_ADDED = define_reason("summary.values", "{values:count exact value} added", "补上 {values:,} 个精确值")
NOT_IN_SOURCE = define_reason("summary.not_in_source", "not in the source: {claims}", "原文中没有：{claims}")
NOT_A_RECORD = define_reason("summary.not_a_record", "instructions, not a record", "是指令，不是记录")
DROPPED = define_reason(
    "summary.dropped", "{sentences:count sentence} dropped ({because})", "删去 {sentences:,} 句（{because}）"
)
MOSTLY_INVENTED = define_reason(
    "answer.invented",
    "most of the answer is not in the conversation ({because})",
    "回答的大部分内容不在对话中（{because}）",
)
ANSWER_CUT_OFF = define_reason("answer.cut_off", "the answer was cut off", "回答被截断")
ANSWER_CALLS = define_reason("answer.tool_call", "the answer was a tool call", "回答是工具调用")
ANSWER_REFUSES = define_reason("answer.refusal", "the model refused", "模型拒绝回答")
ANSWER_FILTERED = define_reason(
    "answer.filtered", "the provider's filter stopped the answer", "服务商的过滤器拦截了回答"
)
NO_ANSWER = define_reason("answer.none", "there was no answer", "没有回答")
ANSWER_EMPTY = define_reason("answer.empty", "the answer was empty", "回答为空")
ANSWER_IS_PAGE = define_reason("answer.page", "the answer was a web page", "回答是一个网页")
ANSWER_ECHOES = define_reason("answer.echo", "the answer repeats its prompt", "回答重复了提示词")
ANSWER_IS_DATA = define_reason("answer.data", "the answer was data, not words", "回答是数据而不是文字")
ANSWER_BARE = define_reason(
    "answer.headings", "the answer lacks the headings that were asked for", "回答缺少要求的标题"
)
ANSWER_LONG = define_reason(
    "answer.long",
    "the answer has {tokens:,} tokens, what it sums up {source:,}",
    "回答有 {tokens:,} 词元，而所概括的内容为 {source:,} 词元",
)
ANSWER_HUGE = define_reason(
    "answer.huge",
    "the answer has {chars:,} characters, far more than it was to have",
    "回答有 {chars:,} 个字符，远超要求的长度",
)
ANSWER_LATE = define_reason(
    "answer.late",
    "no answer within {seconds:g} s; raise the time-out or ask for less",
    "{seconds:g} 秒内没有回答；请延长超时时间或减少内容",
)
MODEL_TOO_SMALL = define_reason(
    "summary.window",
    "{model} has a window of {window:,} tokens, the summary needs {needed:,}",
    "{model} 的窗口为 {window:,} 词元，而摘要需要 {needed:,} 词元",
)
ANSWER_LONGER = define_reason(
    "answer.longer",
    "the answer has {chars:,} characters, what it sums up {source:,}",
    "回答有 {chars:,} 个字符，而所概括的内容为 {source:,} 个字符",
)
COMPRESSOR_FAILED = define_reason("summary.compressor", "the compressor failed: {detail}", "压缩器失败：{detail}")
COMPRESSOR_SILENT = define_reason("summary.compressor_silent", "the compressor wrote no summary", "压缩器没有写出摘要")
PLUGIN_MISSING = define_reason(
    "plugin.unloaded",
    "plugin {name} of {origin} could not be loaded ({detail}); it was left out",
    "{origin} 的插件 {name} 无法加载（{detail}）；已略过",
)
PLUGIN_FAILED = define_reason(
    "plugin.failed",
    "plugin {name} failed ({detail}); nothing of it was used",
    "插件 {name} 出错（{detail}）；其结果未被采用",
)
PLUGIN_REJECTED = define_reason("plugin.rejected", "plugin {name}: {because}", "插件 {name}：{because}")

# Notes of a report about recalled text and about the window.
RECALL_NOTE = define_reason("recall.note", "recall: {because}", "召回：{because}")
RECALL_NOTHING = define_reason("recall.nothing", "recall: nothing added: {because}", "召回：没有附上内容：{because}")
RECALL_NO_ROOM = define_reason("recall.no_room", "{because}, but there is no room", "{because}，但没有空间")
MODEL_UNKNOWN = define_reason(
    "window.unknown_model",
    "the model {model!r} is not known: a window of {window:,} tokens is assumed",
    "未知模型 {model}：假定窗口为 {window:,} 词元",
)
MODEL_UNNAMED = define_reason(
    "window.unnamed_model",
    "no model is named: a window of {window:,} tokens is assumed; name it, or give a budget",
    "未指定模型：假定窗口为 {window:,} 词元；请指定模型或给出预算",
)
