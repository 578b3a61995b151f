"""Texts of the statistics: figures, curves, the bill and what of it is estimated, events."""

from __future__ import annotations

from refold.web.words import Words

WORDS: Words = {
    "statistics.title": ("Statistics", "统计"),
    "statistics.of": ("Of", "范围"),
    "statistics.all": ("All sessions", "全部会话"),
    "statistics.adding": ("Adding up …", "正在汇总……"),
    "statistics.none_title": ("Nothing was sent yet", "还没有任何请求"),
    "statistics.none_all": (
        "Figures appear with the first answer: chat here, or point an agent’s base URL at this gateway.",
        "收到第一个回答后这里就会有数据：可以在此对话，或把智能体的接口地址指向本网关。",
    ),
    "statistics.none_one": (
        "No provider reported usage for this session yet. Its events are below.",
        "尚无提供商为此会话报告用量。事件见下方。",
    ),
    "statistics.chat": ("Start a chat", "开始对话"),
    "statistics.tile_tokens": ("Tokens sent", "已发送词元"),
    "statistics.tile_tokens_sub": ("instead of about {raw:,}", "原本约 {raw:,}"),
    "statistics.tile_tokens_same": ("in {requests:,} requests", "共 {requests:,} 次请求"),
    "statistics.tile_bill": ("Bill", "费用"),
    "statistics.tile_bill_sub": ("instead of about {raw}", "原本约 {raw}"),
    "statistics.tile_bill_same": ("at list prices", "按公开价格"),
    "statistics.tile_bill_none": ("no known price", "价格未知"),
    "statistics.tile_cached": ("From the cache", "缓存命中"),
    "statistics.tile_cached_sub": ("{tokens:,} tokens read at a lower price", "{tokens:,} 个词元按更低价格读取"),
    "statistics.tile_cached_none": ("no provider reported any", "提供商未报告命中"),
    "statistics.tile_folds": ("Compressions", "压缩次数"),
    "statistics.tile_folds_sub": ("{freed:,} tokens out of view, none lost", "移出视图 {freed:,} 个词元，无一丢失"),
    "statistics.tile_folds_none": ("nothing had to go yet", "目前无需压缩"),
    "statistics.tokens": ("Tokens per request", "每次请求的词元"),
    "statistics.tokens_mean": ("Tokens per request, mean of each span", "每次请求的词元（各时段平均）"),
    "statistics.sent": ("Sent", "实际发送"),
    "statistics.raw": ("Without refold (estimated)", "不使用 refold（估算）"),
    "statistics.cached": ("Of it from the cache", "其中来自缓存"),
    "statistics.fold": ("Compression", "压缩"),
    "statistics.request": ("Request", "请求"),
    "statistics.time": ("Time", "时间"),
    "statistics.bill": ("Bill, added up", "累计费用"),
    "statistics.paid": ("With refold", "使用 refold"),
    "statistics.save": ("Save as picture", "保存为图片"),
    "statistics.zoom": ("Zoom", "缩放"),
    "statistics.zoom_back": ("Zoom back", "还原"),
    "statistics.estimated": (
        "Sent, cached and answered tokens are what the providers reported. “Without refold” is estimated: what was "
        "sent, plus all that compressions had taken out by then, cached as far as the provider’s rules allow. "
        "Prices are list prices of {date}.",
        "发送、缓存和回答的词元数由提供商报告。“不使用 refold”为估算：实际发送量加上当时已被压缩移出的内容，"
        "并按提供商规则计入缓存。价格为 {date} 的公开价格。",
    ),
    "statistics.over": (
        "{over:,} of {requests:,} requests would not have fitted the model’s window at all without refold; they are "
        "priced as if they had.",
        "若不使用 refold，{requests:,} 次请求中有 {over:,} 次会超出模型窗口；此处按能够发送计价。",
    ),
    "statistics.unpriced": (
        "{count:,} requests went to models without a known price and are not in the bill.",
        "有 {count:,} 次请求的模型价格未知，未计入费用。",
    ),
    "statistics.summaries": (
        "Summaries written by a model cost about {dollars} on top (estimated); the saving counts them.",
        "由模型撰写的摘要另需约 {dollars}（估算），节省金额已扣除。",
    ),
    "statistics.saved": ("Saved about {dollars} ({share:.0%}).", "约节省 {dollars}（{share:.0%}）。"),
    "statistics.lost": (
        "Compression cost about {dollars} more than it saved so far.",
        "到目前为止，压缩的花费比节省多约 {dollars}。",
    ),
    "statistics.cut": (
        "Only the newest sessions and requests are counted; older ones are left out.",
        "只统计最近的会话和请求，更早的未计入。",
    ),
    "statistics.sessions": ("By session", "按会话"),
    "statistics.session": ("Session", "会话"),
    "statistics.requests": ("Requests", "请求"),
    "statistics.column_sent": ("Sent", "发送"),
    "statistics.column_raw": ("Without (est.)", "不使用（估算）"),
    "statistics.column_cached": ("Cached", "缓存"),
    "statistics.column_bill": ("Bill", "费用"),
    "statistics.column_saved": ("Saved (est.)", "节省（估算）"),
    "statistics.events": ("Events", "事件"),
    "statistics.no_events": ("Nothing happened yet.", "还没有事件。"),
    "statistics.kind": ("What", "类型"),
    "statistics.reason": ("Why", "原因"),
    "statistics.change": ("Tokens", "词元"),
    "statistics.kind_compressed": ("compressed", "已压缩"),
    "statistics.kind_offloaded": ("offloaded", "已转存"),
    "statistics.kind_skipped": ("skipped", "已跳过"),
    "statistics.kind_failed": ("failed", "失败"),
    "statistics.kind_warned": ("warning", "警告"),
    "statistics.kind_undone": ("undone", "已撤销"),
    "statistics.kind_redone": ("redone", "已重做"),
    "statistics.kind_forgotten": ("forgotten", "已抹除"),
    "statistics.kind_imported": ("imported", "已导入"),
    "statistics.kind_waited": ("waited", "已等待"),
    "statistics.kind_recalled": ("recalled", "已召回"),
    "statistics.kind_tuned": ("tuned", "已调优"),
    "statistics.open": ("Open the session", "打开会话"),
}
