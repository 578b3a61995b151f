"""What a person asks a summary to keep ("keep the API names"), where no model writes it.

The words of the instructions, and the sorts of things that they name, raise the rank of what matches: sentences are
quoted that would else be left out, exact values come first in the index. Nothing of the instructions themselves is
written, and nothing that does not match is lowered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from refold.conversation.view import Artifact
from refold.patterns import lazy_regex
from refold.stages.record.lines import RecordLine

INSTRUCTIONS_CHARS_MAX = 2_000
WORDS_MAX = 24
LINE_BOOST = 12.0
VALUE_BOOST = 20.0

_WORD = lazy_regex(r"[A-Za-z0-9_][\w./:-]*[A-Za-z0-9_]|[\u3400-\u9fff]+")
# Words that tell what to do, not about what.
_STOP = frozenset(
    re.findall(
        r"\w+",
        """the and all any for with about from into that this these those what which when where how who keep keeps kept
        retain preserve remember include focus mention note please make sure summary summarise summarize compress out
        our your their its are was were has have had not but only also every each exact exactly verbatim everything
        anything important details detail things stuff""",
    )
)
_STOP_ZH = lazy_regex("请|保留|保持|记住|关于|所有|全部|重要|摘要|总结|压缩|内容|信息|一下|以及|还有|的|和|与|在|把|要")
_CAMEL = lazy_regex(r"(?<=[a-z0-9])(?=[A-Z])")
_CLAUSE = lazy_regex(r"[.,;!?，。；！？、\n]+|\bbut\b|但是?", re.I)
# A clause that says what may go asks for nothing to be kept.
_MAY_GO = lazy_regex(
    r"\b(?:drop|forget|omit|skip|ignore|remove|discard|leave out|without|no need|don't|do not)\b|"
    r"不要|不用|不必|丢掉|丢弃|忘记|忽略|省略|去掉|删",
    re.I,
)
# Words that people use, with the index sorts and sections that hold such things.
_SORTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\b(?:apis?|endpoints?|functions?|methods?|class(?:es)?|symbols?|identifiers?)\b", ("identifier", "url")),
    (r"\b(?:variables?|fields?)\b|接口|函数|变量|标识", ("identifier", "url")),
    (r"\b(?:files?|paths?|folders?|director(?:y|ies)|modules?)\b|文件|路径|目录", ("file",)),
    (r"\b(?:urls?|links?|address(?:es)?)\b|链接|网址|地址", ("url", "address", "email")),
    (r"\b(?:ids?|order numbers?|tickets?|keys?)\b|编号|订单号|单号", ("id",)),
    (r"\b(?:numbers?|figures?|amounts?|prices?|costs?|budgets?)\b|数字|金额|价格|费用|预算", ("number", "money")),
    (r"\b(?:dates?|times?|deadlines?|schedule)\b|日期|时间|期限|截止", ("date", "time")),
    (r"\b(?:versions?|releases?)\b|版本", ("version",)),
    (r"\b(?:options?|flags?|parameters?|settings?)\b|选项|参数|设置", ("flag", "identifier")),
    (r"\b(?:names?|people|persons?)\b|名字|名称|人名", ("name", "identifier")),
    (r"\b(?:errors?|failures?|bugs?|exceptions?)\b|错误|报错|异常|故障", ("failed",)),
    (r"\b(?:decisions?|agreements?)\b|决定|结论|约定", ("found",)),
    (r"\b(?:todos?|tasks?|open (?:points|items|questions))\b|待办|任务", ("open",)),
    (r"\b(?:preferences?|rules?|constraints?)\b|偏好|规则|要求", ("rule", "wanted")),
    (r"\b(?:code changes?|changes?|edits?)\b|改动|修改", ("now",)),
    (r"\b(?:commands?)\b|命令", ("happened",)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Focus:
    """Words to look for, lower case, and the sorts and sections that were named."""

    words: frozenset[str] = frozenset()
    sorts: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.words or self.sorts)

    def matches(self, text: str) -> int:
        """Return how many of the words a text has."""
        # "invoice" is in createInvoice, too.
        lowered = f"{text}\n{_CAMEL.sub(' ', text)}".lower()
        return sum(1 for word in self.words if _occurs(word, lowered))


def read_focus(instructions: str) -> Focus:
    """Return what instructions ask for; nothing for instructions that name nothing."""
    if not instructions:
        return Focus()
    clauses = _CLAUSE.split(instructions[:INSTRUCTIONS_CHARS_MAX])
    text = "\n".join(clause for clause in clauses if not _MAY_GO.search(clause))
    sorts = {sort for pattern, found in _SORTS if re.search(pattern, text, re.I) for sort in found}
    words: dict[str, None] = {}
    for found in _WORD.findall(text):
        if found[0] >= "\u3400":
            for piece in _STOP_ZH.sub(" ", found).split():
                # Chinese has no spaces between words: pairs of characters are used instead.
                words.update(dict.fromkeys(piece[at : at + 2] for at in range(len(piece) - 1)))
        elif len(found) > 2 and found.lower() not in _STOP:
            words[found.lower()] = None
    return Focus(frozenset(list(words)[:WORDS_MAX]), frozenset(sorts))


def steer_lines(lines: Sequence[RecordLine], focus: Focus) -> list[RecordLine]:
    """Return the lines of a story with those that match the focus worth more than all others."""
    if not focus:
        return list(lines)
    return [
        replace(line, worth=line.worth * LINE_BOOST * max(1, hits))
        if (hits := focus.matches(line.text)) or line.topic in focus.sorts
        else line
        for line in lines
    ]


def steer_values(artifacts: Sequence[Artifact], focus: Focus) -> Sequence[Artifact]:
    """Return the artifacts with those that were asked for worth more than all others."""
    if not focus:
        return artifacts
    return [
        replace(one, weight=one.weight * VALUE_BOOST) if one.sort in focus.sorts or focus.matches(one.value) else one
        for one in artifacts
    ]


def _occurs(word: str, lowered: str) -> bool:
    at = lowered.find(word)
    if at < 0 or word[0] >= "\u3400":
        return at >= 0
    # "port" is not in "report", but is in "ports".
    return bool(re.search(rf"(?<![a-z0-9]){re.escape(word)}(?:e?s)?(?![a-z0-9])", lowered))
