"""Facts by rule: preferences, decisions, todos and key information, one verbatim sentence each, with its handle.

Meant to be few and right rather than many: a sentence must have a cue of its kind, be short, and not be a question.
Each cue is for one language and one side (a person, the assistant, both): "keep it up" sets no rule, "if I use X"
decides nothing, and an assistant that says "I need to look" has looked by the next step. Summaries are never read for
facts, only what people and the assistant said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from refold.conversation.view import Fact, FactKind
from refold.memo import Memo
from refold.patterns import lazy_regex
from refold.stages.extract.cue import Cue, any_of, any_word
from refold.stages.extract.words import (
    PASTED_CHARS,
    QUESTION,
    Saying,
    is_intent,
    is_rule,
)

# A value that can be looked up again: digits, a path, a code, an amount.
_VALUE = r"(?:[$€£¥#]\s?\d|\d|[\w.-]+[/@_][\w.-]+)"
_NUMBER_ZH = r"[\d二两三四五六七八九十百千万]"
_DAY = (
    r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|tonight|noon|midnight|"
    r"next (?:week|month))"
)


# Conditions, orders and questions without their mark state nothing.
STATES_NOT = lazy_regex(
    r"(?:when|if|what|how|why|where|who|which|can|could|would|please|let|see|run|show|try|use|make|do|does|is|are|"
    r"maybe|perhaps|wait)\b",
    re.I,
)
STATES_NOT_ZH = lazy_regex(
    r"咋|怎么|怎样|什么|哪|几(?!年|天)|多少|谁|推荐|帮我|帮忙|帮看|查一?下|"
    r"找一?|请问|给我|如果|要是|可以(?:告诉|发)"
)
# "If I use X" decides nothing, a guess is no finding, and a line of code says nothing at all.
CONDITION = lazy_regex(
    r"(?:\w+[:,]? ){0,2}(?:if|since|suppose|assuming|I (?:suspect|expect|think|guess|assume|wonder|believe))\b|"
    r"[#>]|\w+\(",
    re.I,
)

USER_PREFERS = any_word(
    r"I(?:'d| would)? (?:really |much |only |usually |generally |also |still )*(?:prefer|like|love|hate|"
    r"dislike|want|need|only|rather|enjoy|insist)\b",
    r"I (?:can't|cannot|can not) (?:stand|eat|drink|afford|fly)\b",
    r"I(?:'m| am) (?:allergic|not a fan|vegan|vegetarian)",
    r"I (?:don't|do not) (?:eat|drink|like|want|need|trust|care for)\b",
    r"my (?:favou?rite|preference)\b|prefer(?:red|ably)?\b|we'd rather\b",
    r"^(?:and |but |also,? |please,? )*(?:keep (?!going|on\b|at it|it (?:up|coming|going)|up\b|in touch|me\b|"
    r"you\b|\w+ing\b)|stick (?:to|with) |leave (?:the|all|every|my|our)\b|no (?!one\b|idea|problem|worries|"
    r"way\b|need\b|doubt|matter|thanks?|longer\b|luck\b|wonder|,)\w+(?: \w+)* (?:in|for|on|at|please)\b)",
    r"whatever you do\b|(?:at most|at least) (?:\d|an? |one |two |three |twice|once)",
    r"(?:no|not) more than\b|must(?:n't| not) exceed\b",
    r"can(?:'t|not) (?:spend|exceed|go (?:over|above)|be (?:more|longer|larger|later))\b",
    r"(?:our|my|the) (?:team|house style|convention|policy|company|style guide)\b.* (?:uses?|says|requires?|"
    r"wants?|prefers?)\b",
    r"we (?:always|never|only|usually) (?:use|write|deploy|ship|keep|run|follow|commit)\b",
    r"only (?:for|please)\b|everywhere\b(?=,|\.?$)",
    r"(?<!\bI )(?<!\bwe )\bshould (?:be|stay|remain|look|always|never)\b",
)
USER_PREFERS_ZH = any_of(
    r"我们?(?:比较|很|非常|特别|更|最|也|还是|一直|平时|一般|通常)*(?:喜欢|偏好|偏爱|偏向|倾向|习惯|想要|希望|"
    r"讨厌|不喜欢|不爱|不习惯|只要|只想|只吃|只坐|只用|需要|宁愿|宁可)",
    r"我们?(?:不太?|从不|不能)(?:想|吃|喝|要|喜欢|爱|坐|接受|希望)|过敏|忌口|素食|尽量|尽可能",
    r"最好(?!的)|优先|一律|统一(?:用|使用|采用)|不(?:能|得|可以?|要|许)?超过|(?:控制|限制)在",
    r"(?<!要)不要(?!紧|担心|客气|着急|急|慌|太)",
    r"(?<![特分区差级识辨个告])别(?!忘|的|人|处|墅|担心|客气|急|着急|名|说|提|致)",
    r"每次.{0,12}(?:都|先|要)|(?:都|全部|统统)(?:用|得|必须)|必须(?![的啊呀得知])|少用|多用",
)
USER_KEY = any_word(
    r"my \w+(?: \w+){0,3} (?:is|are|was)\b|(?:I live|I work|call me)\b",
    r"(?:I am|I'm) (?!sure|sorry|happy|glad|afraid|not |going|trying|looking|wondering|excited|just|really|"
    r"so\b|also|still|thinking|planning|interested|curious|aware|hoping|open|okay|fine|good|ready|here|having|"
    r"getting|using|very|pretty|thrilled|proud|grateful|always|definitely|all\b|done|doing|loving|able|unable|"
    r"sad|tired|confident|eager|off\b|out\b|too\b|in\b)",
    r"(?:the|our|my) (?:\w+[ -]){0,3}(?:deadline|due date|address|budget|password|username|email|phone|port|"
    r"version|server|host|database|launch|release date)\b.* (?:is|are|was|will be) ",
    r"(?:the|our) \w+(?: \w+)? (?:is|are) (?:at |in |on )?\S*[\d/_@]",
)
# Statements of a person that contain a value.
USER_STATES = lazy_regex(
    r"(?:The|Our|My|We|There|It|Its|All|Both|Each|Every|[A-Z][\w-]+)\b[^,;]{0,80}?"
    r"\b(?:is|are|was|were|has|have|had|runs?|lives?|costs?|takes?|took|starts?|ends?|rotates?|expires?|opens?|"
    rf"closes?|weighs?|holds?|listens?|points?|arrives?|leaves?|departs?)\b.*(?:{_VALUE}|\b{_DAY}\b)"
)
USER_KEY_ZH = any_of(
    r"我们?(?:叫|姓|是(?!想|不|说|觉|要|在想|看|听)|住在?|在\S{1,12}(?:工作|上班|上学|读书)|来自|"
    r"的\S{1,8}(?:是|为))",
    r"(?:地址|电话|手机号?|号码|订单号?|单号|账号|密码|邮箱|日期|时间|期限|截止|预算|人数|版本|端口|名字|域名|"
    r"服务器)\S{0,8}(?:是|为|在|：|:)",
    rf"(?:一共|总共|大约|大概|共有?|还有)\S{{0,6}}{_NUMBER_ZH}",
    rf"(?:有|在|是|为|放在|位于|每隔?)\s?\S{{0,10}}{_NUMBER_ZH}+\s?(?:个|台|人|位|天|年|月|号|"
    r"点|元|块|次|周|小时|分钟|GB|MB|G|M|%)",
    r"(?:放在|位于|存在|部署在|跑在)\s?\S*[A-Za-z/_.]",
)
DECIDES = any_word(
    r"decided\b|(?:we|I)(?:'ll| will) use\b|we(?:'re| are) using\b",
    r"(?:we|I)(?:'ll| will|'re| are|'m| am) (?:go(?:ing)? with|drop(?:ping)?|switch(?:ing)? to|"
    r"stay(?:ing)? with|skip(?:ping)?|postpon(?:e|ing))\b",
    r"we(?:'ll| will) keep\b|(?<!\bif )we (?:drop|go with|postpone|switch to)\b",
    r"let's (?:just )?(?:use|go with|keep (?!\w+ing)|drop|skip|switch|stay with|stick|postpone|start with|ship|take|"
    r"cancel|book|order|buy|remove|change|rename|move)\b",
    r"(?:going|went) with\b|chose\b|chosen\b|opted\b",
    r"agreed (?:to|that|on|upon|with (?:the|this|that))\b|settled on\b",
    r"(?:I|we)\b.{0,60} (?:instead of|rather than)\b|(?:is|was|are|were) approved\b",
    r"signed off\b|the (?:root |real |actual )*(?:cause|culprit|reason)\b.{0,40}? (?:is|was)\b",
    r"the (?:real |actual )?(?:issue|problem|bug|error|failure) (?:is|was|came from|comes from) (?:that|in|"
    r"with|because|caused|a|an|due)\b",
    r"(?:is|was|were) (?:caused by|due to)\b|the (?:fix|solution|plan) (?:is|was)\b|fixed by\b",
    r"(?<!\bif it )turns out\b|the (?:decision|conclusion|verdict) (?:is|was)\b",
    r"(?:option|plan|variant|version|number|choice) \w+ it is[.!]*$",
    r"that's (?:settled|decided|final)\b",
)
DECIDES_ZH = any_of(
    r"决定|选择了|选定|选用|改用|改成用?|换成|采用|采纳|方案是|结论|原因(?:是|在于)|根因",
    r"是因为|确定(?:了|用|为|下来)|就(?:用|选|定|按|这么(?:定|办|做)|这样(?:定|办|做))",
    r"那就(?:用|选|定|按|订|要|先)|定下来|还是(?:用|选|按|走)|先不(?:做|管|要|上|加|改|考虑)",
    r"(?:双方|大家|一致|都)同意|达成一致|推迟到|提前到",
    r"(?:问题|错误|故障|毛病)(?:出在|在于|是由|是因)|原来是",
    r"(?<![一确肯注])定了(?=[：:，。！]|$)|下单了|敲定|拍板",
)
TODO = any_word(
    r"(?:TODO|FIXME)\b|remaining\b|outstanding (?:work|tasks?|items?|issues?)\b",
    r"still (?:missing|open|failing|to (?:do|be)|needs|needed|pending)\b",
    r"not yet (?:done|implemented|\w+ed)\b|(?:has|have)(?:n't| not) yet\b",
    r"has(?:n't| not) been \w+ yet\b|what(?:'s| is) (?:still )?left\b|left to do\b",
    r"next steps?\b|needs? to be (?:done|fixed|added|updated|written|reviewed|migrated)\b",
)
TODO_ZH = any_of(
    r"待办|待(?:处理|完成|确认|修复|补充)|还(?:需要|需|差|剩)(?!不|多|几|什么)",
    r"还(?:要|得)(?:做|写|改|补|加|订|买|测|处理|完成|修|把|给)|接下来(?:要|需)",
    r"下一步(?:是|要|需)|尚未",
    r"(?:还没有?|仍未)(?:完成|处理|动|做|修|写|改|测|部署|上线|实现|验证|迁移|解决)|未完成",
    r"剩下的?(?:工作|任务|部分|是|就|还)|剩余的?(?:工作|任务|部分)",
)
USER_TODO = any_word(
    r"(?:we|you|I) (?:still |also |then )*(?:need|have) to\b",
    r"(?:we|you)(?:'ll| will) (?:still |also |then )*need\b|(?:don't|do not) forget\b",
    r"(?:^|please |[,;] )(?:remind me (?:to|about|that|when|of the)|remember to)\b",
    r"(?:later|afterwards|after that),? (?:also )?(?:add|write|update|fix|check|send|call|book|port|move|"
    r"remove|test)\b",
    r"(?:when|once) you(?:'re| are) (?:done|finished|through)\b",
    r"^(?:once|when|after|as soon as) (?:that(?:'s| is)?|it(?:'s| is)?|this(?: is)?|everything(?: is)?|"
    r"all) (?:done|works?|finished|merged|ready|over|passes|in|deployed)\b",
)
USER_TODO_ZH = any_of(
    r"别忘|不要忘|记得(?:要|帮|把|给|提醒|去|先|再|更新|通知|发|写|检查)|提醒我",
    r"回头(?:还|再|要|得|记)",
    r"(?:等|完成|做完|搞定|跑通|弄好|上线)\S{0,10}(?:以后|之后|后)，?\S{0,4}(?:把|补|加|写|改|再|在|要|通知|更新)",
)
KEY = any_word(
    r"confirmed\b|verified\b|all (?:\d+ )?tests pass\b|tests? (?:pass|fail)\b|successfully\b",
    r"it appears that\b|found (?:that|the)\b|is located (?:in|at)\b|is defined (?:in|at)\b",
    r"booked\b|cancell?ed\b|refund(?:ed)?\b",
    r"(?<!\bis )(?<!\bare )(?<!\bgets )(?<!\bbeing )(?:updated|created)\b",
    r"total (?:is|of|cost)\b",
    r"^(?:(?:done|great|ok(?:ay)?|so|then|now|also|finally|and|all set)[.:!,]? )*I(?:'ve| have)? (?:added|"
    r"pushed|sent|deployed|installed|removed|deleted|renamed|moved|wrote|written|committed|merged|published|"
    r"released|charged|issued|upgraded|reserved|changed|replaced)\b",
    r"(?:was|were|has been|have been) (?:issued|sent|charged|deployed|published|released|merged|reserved|"
    r"installed|upgraded)\b",
    r"(?:price|cost|fee|fare|balance|deadline|address|phone number|order number|date|port|duration) (?:is|are|"
    rf"was) .*{_VALUE}",
    r"(?:takes?|took|costs?) (?:about |around )?[$€£]?\d",
)
KEY_ZH = any_of(
    r"已(?:经)?(?:完成|修复|创建|取消|预订|更新|退|支付|付款|发送|发出|发布|发货|发给|提交|部署|删除|添加|"
    r"修改|安装|推送|合并|确认)",
    r"(?:预订|支付|创建|修改|部署|提交|退款|安装|取消)成功|全部通过|通过测试|测试\S{0,4}通过",
    r"耗时|我(?:新?建|创建|推送|提交|添加|加|改|删|写|装|部署)了",
    r"(?:价格|票价|门票|人均|费用|总价|电话|地址|评分|营业时间|开放时间|时间|日期|数量|版本|端口)\S{0,4}(?:是|"
    r"为|：|:)",
)


FACT_CHARS_MAX = 240
FACT_CHARS_MIN = 4
FACTS_MAX = 60
READ_BYTES_MAX = 4_000_000
# S3.7: a summary, of ours or of another program, is hearsay.
_SUMMARY = (
    "[Context Summary]",
    "[Truncated Summary]",
    "[COMPACTED_CONTEXT]",
    "[Compressed History]",
    "[历史对话摘要]",
    "⟦",
)


def find_facts(sayings: Sequence[Saying]) -> list[Fact]:
    """Return the facts in what was said, in order, each sentence once, the newest if there are too many."""
    found: dict[str, Fact] = {}
    for saying in sayings:
        for kind, sentence in read_kinds(saying):
            found.pop(sentence, None)
            found[sentence] = Fact(kind, sentence, saying.handle)
    return list(found.values())[-FACTS_MAX:]


Kinds = tuple[tuple[FactKind, str], ...]
_READ: Memo[Kinds] = Memo(READ_BYTES_MAX, lambda kinds: sum(150 + len(sentence) for _, sentence in kinds))


def read_kinds(saying: Saying) -> Kinds:
    """Return the sentences of a saying that state a fact, with its kind; a later fold does not read them again."""
    if saying.text.startswith(_SUMMARY) or (len(saying.text) > PASTED_CHARS and saying.role == "user"):
        return ()
    return _READ.recall(lambda: tuple(_classify_all(saying)), saying.text, saying.role)


def _classify_all(saying: Saying) -> Iterator[tuple[FactKind, str]]:
    for sentence in saying.sentences:
        kind = classify_sentence(sentence, saying.role)
        if kind is not None:
            yield kind, sentence


def classify_sentence(sentence: str, role: str) -> FactKind | None:
    """Return what kind of fact a sentence is, or None."""
    if not FACT_CHARS_MIN <= len(sentence) <= FACT_CHARS_MAX or sentence[-1] in ":：" or QUESTION.search(sentence):
        return None
    if role == "user":
        return _classify_user(sentence)
    if is_intent(sentence) or CONDITION.match(sentence):
        return None
    if _is_open(sentence):
        return "todo"
    if _has(sentence, DECIDES, DECIDES_ZH):
        return "decision"
    return "key" if _has(sentence, KEY, KEY_ZH) else None


def _classify_user(sentence: str) -> FactKind | None:
    if _has(sentence, USER_TODO, USER_TODO_ZH):
        return "todo"
    if _has(sentence, DECIDES, DECIDES_ZH):
        return "decision"
    if is_rule(sentence) or _has(sentence, USER_PREFERS, USER_PREFERS_ZH):
        return "preference"
    if _is_open(sentence):
        return "todo"
    if STATES_NOT.match(sentence) or STATES_NOT_ZH.search(sentence):
        return None
    return "key" if USER_STATES.match(sentence) or _has(sentence, USER_KEY, USER_KEY_ZH) else None


def _is_open(sentence: str) -> bool:
    return sentence.startswith(("[ ]", "- [ ]", "* [ ]")) or _has(sentence, TODO, TODO_ZH)


def _has(sentence: str, english: Cue, chinese: re.Pattern[str]) -> bool:
    return bool(english.search(sentence) or (not sentence.isascii() and chinese.search(sentence)))


def merge_facts(earlier: Iterable[Fact], later: Iterable[Fact]) -> list[Fact]:
    """Carry the facts of an earlier fold on; what was said again counts as said last."""
    merged: dict[str, Fact] = {}
    for fact in (*earlier, *later):
        merged.pop(fact.text, None)
        merged[fact.text] = fact
    return list(merged.values())[-FACTS_MAX:]
