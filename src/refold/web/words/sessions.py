"""Texts of the list of sessions."""

from __future__ import annotations

from refold.web.words import Words

WORDS: Words = {
    "sessions.title": ("Sessions", "会话"),
    "sessions.intro": (
        "Every conversation that went through refold: what was said, what the model sees of it, what that saved.",
        "经过 refold 的每一段对话：说了什么，模型看到什么，节省了多少。",
    ),
    "sessions.search": ("Search titles, first words, models", "搜索标题、开头内容、模型"),
    "sessions.name": ("Session", "会话"),
    "sessions.model": ("Model", "模型"),
    "sessions.messages": ("Messages", "消息"),
    "sessions.tokens": ("Tokens", "词元"),
    "sessions.folds": ("Folds", "折叠"),
    "sessions.saved": ("Saved", "节省"),
    "sessions.saved_hint": (
        "At list prices; what requests would have been without refold is estimated",
        "按标价计算；没有 refold 时的请求量为估算",
    ),
    "sessions.changed": ("Last activity", "最近活动"),
    "sessions.actions": ("Actions", "操作"),
    "sessions.rename": ("Rename", "重命名"),
    "sessions.export": ("Export", "导出"),
    "sessions.delete": ("Delete", "删除"),
    "sessions.more": ("Show {count:,} more", "再显示 {count:,} 个"),
    "sessions.none": ("No sessions yet", "还没有会话"),
    "sessions.none_next": (
        "Start a chat here, or point an agent at this gateway; its sessions appear by themselves:",
        "在这里开始对话，或让智能体连接此网关；会话会自动出现：",
    ),
    "sessions.sample_coming": ("A sample session is being made …", "正在准备示例会话……"),
    "sessions.sample_why": (
        "It takes a few seconds: an agent's day of work, folded as it would have been.",
        "需要几秒钟：一个智能体一天的工作，按实际情况折叠。",
    ),
    "sessions.chat": ("Start a chat", "开始对话"),
    "sessions.no_match": ("Nothing matches “{query}”", "没有与“{query}”匹配的会话"),
    "sessions.no_match_next": (
        "Titles, first words, names and models are searched. Recall searches everything that was said.",
        "这里搜索标题、开头内容、名称和模型。“查找”可搜索全部内容。",
    ),
    "sessions.new_title": ("Title", "标题"),
    "sessions.title_hint": ("Empty: its first words", "留空则显示开头内容"),
    "sessions.save": ("Save", "保存"),
    "sessions.renamed": ("Renamed", "已重命名"),
    "sessions.delete_title": ("Delete this session?", "删除此会话？"),
    "sessions.delete_why": (
        "{count:,} messages go for good, with their folds and files. Daily memory pages stay. There is no undo.",
        "{count:,} 条消息及其折叠和文件将被永久删除。每日记忆页会保留。此操作无法撤销。",
    ),
    "sessions.deleted": ("Deleted", "已删除"),
    "sessions.now": ("just now", "刚刚"),
    "sessions.minutes": ("{count} min ago", "{count} 分钟前"),
    "sessions.hours": ("{count} h ago", "{count} 小时前"),
    "sessions.days": ("{count} d ago", "{count} 天前"),
    "sessions.sample": ("sample", "示例"),
    "sessions.total_one": ("1 session", "1 个会话"),
    "sessions.total": ("{count:,} sessions", "{count:,} 个会话"),
}
