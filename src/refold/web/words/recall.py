"""Texts of recall: the search over everything that was said."""

from __future__ import annotations

from refold.web.words import Words

WORDS: Words = {
    "recall.title": ("Recall", "查找"),
    "recall.intro": (
        "Finds what was said in any session, word for word, also what was folded long ago.",
        "在所有会话中逐字查找说过的内容，包括早已折叠的部分。",
    ),
    "recall.label": ("Search everything", "搜索全部内容"),
    "recall.placeholder": ("A name, a number, a path, a question …", "名称、数字、路径或问题……"),
    "recall.go": ("Search", "搜索"),
    "recall.in": ("In", "范围"),
    "recall.all": ("All sessions", "全部会话"),
    "recall.searching": ("Searching …", "正在搜索……"),
    "recall.found_one": ("{count:,} found in one session", "在 1 个会话中找到 {count:,} 处"),
    "recall.found": ("{count:,} found in {sessions:,} sessions", "在 {sessions:,} 个会话中找到 {count:,} 处"),
    "recall.near": (
        "These words were not said. What comes nearest in meaning:",
        "没有出现这些词。意思最接近的内容：",
    ),
    "recall.nothing": ("Nothing was found", "没有找到"),
    "recall.nothing_next": (
        "Try fewer or other words, or a part of the name. Chinese and English both work.",
        "请减少或更换关键词，或只输入名称的一部分。中英文均可。",
    ),
    "recall.empty": ("There is nothing to search yet", "还没有可搜索的内容"),
    "recall.empty_next": (
        "Chat here, or point an agent’s base URL at this gateway: every message is kept and can be found.",
        "在此对话，或把智能体的接口地址指向本网关：每条消息都会保留并可被找到。",
    ),
    "recall.late": (
        "Searched {done:,} of {total:,} sessions in the time there is; choose one session to search it whole.",
        "在限定时间内搜索了 {total:,} 个会话中的 {done:,} 个；选择单个会话可完整搜索。",
    ),
    "recall.open": ("Open in the session", "在会话中打开"),
    "recall.part": ("a part of it", "节选"),
    "recall.role_user": ("User", "用户"),
    "recall.role_assistant": ("Assistant", "助手"),
    "recall.role_tool": ("Tool", "工具"),
    "recall.role_system": ("System", "系统"),
    "recall.role_summary": ("Summary", "摘要"),
    "recall.role_fact": ("Fact", "事实"),
}
