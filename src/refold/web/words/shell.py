"""Texts of the frame around every page, and of the sign-in form."""

from __future__ import annotations

from refold.web.words import Words

WORDS: Words = {
    "shell.skip": ("Skip to content", "跳到正文"),
    "shell.navigation": ("Pages", "页面"),
    "shell.sessions": ("Sessions", "会话"),
    "shell.session": ("Session", "会话"),
    "shell.chat": ("Chat", "对话"),
    "shell.recall": ("Recall", "查找"),
    "shell.memory": ("Memory", "记忆"),
    "shell.statistics": ("Statistics", "统计"),
    "shell.settings": ("Settings", "设置"),
    "shell.not_stored": (
        "The ledger cannot be written. Requests still go through and are compressed in memory, but nothing is stored. "
        "Check the disk and the log.",
        "账本无法写入。请求仍会放行并在内存中压缩，但不会保存任何内容。请检查磁盘和日志。",
    ),
    "shell.language": ("中文", "English"),
    "shell.language_hint": ("切换到中文", "Switch to English"),
    "shell.colours_auto": ("Colours: as the system", "颜色：跟随系统"),
    "shell.colours_light": ("Colours: light", "颜色：浅色"),
    "shell.colours_dark": ("Colours: dark", "颜色：深色"),
    "shell.sign_out": ("Sign out", "退出"),
    "shell.sign_in": ("Sign in", "登录"),
    "shell.sign_in_why": (
        "This gateway is protected. Enter one of its keys; “refold key add TENANT” makes one.",
        "此网关受密钥保护。请输入一个密钥；用“refold key add 租户”创建。",
    ),
    "shell.key": ("Key", "密钥"),
    "shell.key_wrong": ("This key does not work. Check it, or ask the operator.", "此密钥无效。请检查，或联系管理员。"),
    "shell.offline": ("The connection is lost; trying again …", "连接已断开，正在重试……"),
    "shell.lost": ("The connection to refold is lost.", "与 refold 的连接已断开。"),
    "shell.reconnecting": (
        "The page comes back by itself once refold runs again.",
        "refold 恢复运行后页面会自动恢复。",
    ),
    "shell.problem": ("This page cannot be shown", "无法显示此页面"),
    "shell.failed": ("That did not work: {why}", "操作未成功：{why}"),
    "shell.unexpected": (
        "Something went wrong in refold itself ({kind}). The log of “refold serve” says more.",
        "refold 内部出错（{kind}）。详情见“refold serve”的日志。",
    ),
    "shell.not_found": ("There is no such page.", "没有这个页面。"),
    "shell.home": ("Go to the sessions", "返回会话列表"),
    "shell.close": ("Close", "关闭"),
    "shell.cancel": ("Cancel", "取消"),
    "shell.copy": ("Copy", "复制"),
    "shell.copied": ("Copied", "已复制"),
}
