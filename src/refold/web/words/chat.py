"""Texts of the chat: the box, what a run tells, and which model answers."""

from __future__ import annotations

from refold.web.words import Words

WORDS: Words = {
    "chat.title": ("New chat", "新对话"),
    "chat.intro": (
        "Say something. Everything is kept, and the context is folded before it overflows.",
        "请开始对话。所有内容都会保留，上下文会在溢出前自动折叠。",
    ),
    "chat.label": ("Message", "消息"),
    "chat.placeholder": ("Message the model …", "给模型发消息……"),
    "chat.send": ("Send", "发送"),
    "chat.stop": ("Stop", "停止"),
    "chat.keys": ("Enter sends, Shift+Enter makes a new line", "Enter 发送，Shift+Enter 换行"),
    "chat.model": ("Model", "模型"),
    "chat.other_model": ("Another model …", "其他模型……"),
    "chat.other_title": ("Talk to another model", "使用其他模型"),
    "chat.other_why": (
        "The name as its provider spells it. It is reached with the keys and addresses that refold was started with.",
        "按提供商的写法填写名称。refold 用启动时的密钥和地址访问它。",
    ),
    "chat.use": ("Use it", "使用"),
    "chat.looking": ("Looking for a model …", "正在查找可用模型……"),
    "chat.again": ("Look again", "重新查找"),
    "chat.no_model": (
        "There is no model to talk to yet: set OPENAI_API_KEY or ANTHROPIC_API_KEY and start refold again, start "
        "Ollama, or run “refold local install” for a small one on this machine.",
        "还没有可用的模型：请设置 OPENAI_API_KEY 或 ANTHROPIC_API_KEY 后重启 refold，或启动 Ollama，"
        "或运行“refold local install”在本机安装一个小模型。",
    ),
    "chat.no_named": (
        "The model “{model}” of this session cannot be reached from here: {why}",
        "无法从这里访问此会话的模型“{model}”：{why}",
    ),
    "chat.by_key": ("{model} answers, because a key for it is set.", "由 {model} 回答，因为已设置其密钥。"),
    "chat.by_settings": ("{model} answers, as the settings say.", "按设置由 {model} 回答。"),
    "chat.by_ollama": ("{model} answers, from Ollama on this machine.", "由本机 Ollama 中的 {model} 回答。"),
    "chat.by_choice": ("{model} answers, as you chose.", "按你的选择由 {model} 回答。"),
    "chat.by_local": (
        "{model}, a very small model on this machine, answers: enough for a first try, without a key. It makes "
        "mistakes and uses no tools. Set OPENAI_API_KEY or ANTHROPIC_API_KEY for a real one.",
        "由本机的微型模型 {model} 回答：无需密钥即可试用，但它会出错，也不使用工具。"
        "设置 OPENAI_API_KEY 或 ANTHROPIC_API_KEY 可使用真正的模型。",
    ),
    "chat.squeeze": (
        "{tokens:,} tokens are in view and {model} takes {window:,}: sending folds the rest. It can be unfolded again.",
        "当前视图有 {tokens:,} 个词元，而 {model} 只能容纳 {window:,} 个：发送时会折叠其余内容，之后可以展开。",
    ),
    "chat.writing": ("Writing …", "正在回答……"),
    "chat.thinking": ("Thinking", "思考过程"),
    "chat.optimising": ("Optimising context …", "正在优化上下文……"),
    "chat.compressed": (
        "The context was folded: {before:,} → {after:,} tokens. Nothing is lost.",
        "上下文已折叠：{before:,} → {after:,} 个词元。没有丢失任何内容。",
    ),
    "chat.retrying": ("Asking again: {why}", "正在重试：{why}"),
    "chat.warned": ("Note: {what}", "注意：{what}"),
    "chat.stopped": ("Stopped. What was said is kept.", "已停止。已说的内容都保留着。"),
    "chat.ended_steps": ("Ended after the most steps a run may take.", "已达到一次运行的最大步数，运行结束。"),
    "chat.ended_stuck": (
        "Ended: the same calls had the same results again and again.",
        "运行结束：相同的调用反复得到相同的结果。",
    ),
    "chat.ended_length": ("The answer was cut off at its length limit.", "回答达到长度上限，已被截断。"),
    "chat.failed": ("No answer: {why}", "没有回答：{why}"),
    "chat.call_runs": ("running", "运行中"),
    "chat.call_done": ("{seconds:.1f} s", "{seconds:.1f} 秒"),
    "chat.call_failed": ("failed", "失败"),
    "chat.arguments": ("Arguments", "参数"),
    "chat.result": ("Result", "结果"),
}
