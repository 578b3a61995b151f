"""Texts of the settings. What a setting is for comes from the schema where the schema says it; here is the Chinese.

A setting with a title of its own is one that people look for; all others are listed by their name.
"""

from __future__ import annotations

import re

from refold.config import PRESETS, CompressionConfig
from refold.web.words import Words

WORDS: Words = {
    "settings.title": ("Settings", "设置"),
    "settings.intro": (
        "Saved in {file}, where the command line reads them. They hold from the next request on.",
        "保存在命令行读取的 {file} 中，从下一次请求起生效。",
    ),
    "settings.read_only": (
        "Only the operator can change these; this key belongs to {tenant}.",
        "仅管理员可以修改；此密钥属于 {tenant}。",
    ),
    "settings.group_switch": ("Compression", "压缩"),
    "settings.group_preset": ("Preset", "预设"),
    "settings.group_when": ("When to act", "何时压缩"),
    "settings.group_window": ("Model and window", "模型与窗口"),
    "settings.group_keep": ("What stays as it is", "保留内容"),
    "settings.group_summary": ("Summaries", "摘要"),
    "settings.group_rest": ("All other settings", "其他全部设置"),
    "settings.rest_hint": (
        "{count} settings, by the names that refold.yaml uses",
        "共 {count} 项，名称与 refold.yaml 一致",
    ),
    "settings.unset": ("unset", "未设置"),
    "settings.from_built_in": ("built in", "内置"),
    "settings.from_preset": ("preset {place}", "预设 {place}"),
    "settings.from_user": ("your file, {place}", "用户文件 {place}"),
    "settings.from_project": ("{place}", "{place}"),
    "settings.from_folder": (".compression/config.json", ".compression/config.json"),
    "settings.from_environment": ("environment, {place}", "环境变量 {place}"),
    "settings.from_call": ("command line", "命令行"),
    "settings.from_session": ("session", "会话"),
    "settings.changed": ("not saved", "未保存"),
    "settings.locked_environment": (
        "{place} in the environment has the last word; unset it to change this here.",
        "以环境变量 {place} 为准；取消该变量后才能在此修改。",
    ),
    "settings.locked_call": (
        "The command line has the last word; start refold without it to change this here.",
        "以命令行参数为准；不带该参数启动后才能在此修改。",
    ),
    "settings.locked_start": (
        "Read when refold starts; set it in the file and start again.",
        "仅在 refold 启动时读取；请在文件中设置后重启。",
    ),
    "settings.reset": ("Reset", "重置"),
    "settings.reset_hint": ("Take it out of the file: {name}", "从文件中移除：{name}"),
    "settings.will_reset": ("will be reset", "将被重置"),
    "settings.save": ("Save", "保存"),
    "settings.discard": ("Discard", "放弃"),
    "settings.changes": ("{count:,} changes", "{count:,} 项更改"),
    "settings.together": ("These do not hold together: {why}", "这些设置互相矛盾：{why}"),
    "settings.saved": (
        "Saved in {file}. It holds from the next request on.",
        "已保存到 {file}，从下一次请求起生效。",
    ),
    # Titles.
    "settings.name_auto_compress": ("Compress by itself", "自动压缩"),
    "settings.name_preset": ("Preset", "预设"),
    "settings.name_trigger_ratio": ("Begin at", "开始压缩"),
    "settings.name_target_ratio": ("Come down to", "压缩到"),
    "settings.name_warn_ratio": ("Warn at", "警告"),
    "settings.name_threshold_rounds": ("Messages", "消息数"),
    "settings.name_threshold_tokens": ("Tokens", "词元数"),
    "settings.name_max_turns": ("Turns", "轮数"),
    "settings.name_economic": ("Also to save money", "兼顾费用"),
    "settings.name_model": ("Model", "模型"),
    "settings.name_window": ("Window", "窗口"),
    "settings.name_reserve": ("Room for the answer", "回答预留"),
    "settings.name_fold.keep_turns": ("Newest turns", "最新轮数"),
    "settings.name_fold.keep_messages": ("Newest messages", "最新消息数"),
    "settings.name_importance_threshold": ("Important messages", "重要消息"),
    "settings.name_max_tool_output": ("Tool output", "工具输出"),
    "settings.name_summariser": ("Written by", "撰写者"),
    "settings.name_compact_model": ("Their own model", "摘要模型"),
    "settings.name_compact_url": ("Its address", "模型地址"),
    "settings.name_compact_timeout_s": ("Time limit", "时间上限"),
    "settings.name_language": ("Language", "语言"),
    "settings.name_summary_max_chars": ("Length", "长度"),
    "settings.name_fold.prompt": ("Prompt", "提示词"),
    "settings.name_redact": ("Mask secrets", "遮盖密钥"),
    "settings.name_background": ("In the background", "后台撰写"),
}

# The Chinese of what the schema says.
_CHINESE = {
    "auto_compress": "无需请求即可压缩；超出窗口时始终会压缩",
    "preset": "这些设置所基于的预设",
    "trigger_ratio": "可用空间（窗口减去预留）的占比，达到后开始压缩，如 75% 或 0.75",
    "target_ratio": "压缩后要降到的可用空间占比",
    "warn_ratio": "发出警告的可用空间占比",
    "threshold_rounds": "视图中的消息达到此数即压缩",
    "threshold_tokens": "视图中的词元达到此数即压缩",
    "max_turns": "视图中的轮数超过此数即压缩",
    "economic": "若能省下预计费用的十分之一（已计入重新读取），也进行压缩",
    "model": "读取视图的模型；决定窗口、分词器和价格",
    "window": "模型窗口的词元数，或“模型: 词元数”的表；“*”表示其他模型",
    "reserve": "窗口中为回答预留的词元数",
    "fold.keep_turns": "折叠时保留的最新轮数",
    "fold.keep_messages": "折叠时保留的最新消息数",
    "importance_threshold": "得分达到此值的旧消息会被保留",
    "max_tool_output": "单个工具输出允许的字符数",
    "summariser": "由谁撰写摘要：有模型时用模型（auto）、始终用模型（llm）或仅用规则（extract）",
    "compact_model": "撰写摘要的模型；未设置时用当前模型",
    "compact_url": "撰写摘要的模型的地址",
    "compact_timeout_s": "撰写一份摘要的秒数上限，包括所有重试",
    "language": "摘要和占位内容的语言；未设置时与对话一致",
    "summary_max_chars": "摘要允许的字符数",
    "fold.prompt": "给撰写摘要的模型的自定义要求；留空则使用 refold 自带的要求",
    "redact": "在模型、记忆页或日志看到之前遮盖密钥和密码",
    "background": "在还有空间时由模型在后台撰写摘要",
}
_OWN = {
    "language": "of summaries and placeholders; unset: that of the conversation",
    "fold.keep_turns": "how many of the newest turns a fold keeps",
    "fold.keep_messages": "how many of the newest messages a fold keeps",
    "fold.prompt": "your own demands to the model that writes summaries; empty: those of refold",
}
_PRESETS_CHINESE = {
    "default": "我们所知的最佳方案：较晚触发、压得较深，先用代价低的手段",
    "archive": "达到 100 条消息或 4,000 词元时，除最新 50 条外全部变成摘要",
    "importance": "超过 50 轮后给旧消息打分；重要的保留，其余变成简短摘要",
    "offload": "旧的工具结果转存为文件；若释放不多，再总结历史",
    "hybrid": "达到窗口的 80% 时，除最后 6 条消息外变成摘要",
    "turns": "达到窗口的 75% 时，除最后 6 轮外变成摘要",
}


def _describe(name: str) -> str:
    """Return what a setting is for, as the schema says it, without the number of its document."""
    fields = CompressionConfig.model_fields
    found = _OWN.get(name) or next((one.description for key, one in fields.items() if (one.alias or key) == name), "")
    plain = re.sub(r"^S\d+\.\d+: ", "", found or "")
    return plain[:1].upper() + plain[1:]


WORDS |= {f"settings.means_{name}": (_describe(name), chinese) for name, chinese in _CHINESE.items()}
WORDS |= {f"settings.preset_{name}": (means, _PRESETS_CHINESE[name]) for name, means in PRESETS.items()}
