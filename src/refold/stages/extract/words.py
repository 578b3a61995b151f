"""The words of both sides: sayings and their sentences, standing rules, open asks, and the cues of a story.

Everything quoted here is verbatim. A long text is shortened at borders of sentences, with the exact number of
characters left out. The cues are the words by which a sentence shows that it names a cause, a decision, a failure or
a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from refold.conversation.author import Author, read_said
from refold.conversation.message import Message, message_handle
from refold.patterns import lazy_regex
from refold.stages.extract.cue import Cue, any_of, any_word

# A pasted document is not a list of the user's wishes: in a long message a rule must open its sentence.
PASTED_CHARS = 1_500
RULE_CHARS_MAX = 300
RULES_MAX = 40
PENDING_MAX = 3
SCAN_CHARS = 40_000

# Where a sentence or a line ends: not after "e.g.", nor within ".. note::", where a mark or a blank opens two dots.
BORDER = lazy_regex(
    r"(?<=[.!?;])(?<!\b[eE]\.g\.)(?<!\b[iI]\.e\.)(?<!\bcf\.)(?<!\bvs\.)(?<![\s`'\"(]\.\.)\s+|(?<=[。！？；])|\n+"
)
_RULE_STARTS = lazy_regex(
    r"[-*•\d.)\s]{0,6}(?:and |but |also,? |so |ok,? |please,? )?"
    r"(?:always (?!been|had|was|rooting|by|in|there)|never (?!mind|been|had|heard|seen|thought)|"
    r"don't (?!you|think|know|worry)|do not (?!think|know)|you (?:must (?!have)|should(?:n't| not| never| always)\b)|"
    r"must (?!have|be so)|make sure|ensure|remember (?:to|that|:)|from now on|avoid |only use|use only|"
    r"stop \w+ing|keep in mind|no more |important:)",
    re.I,
)
_RULE_INSIDE = lazy_regex(
    r"\bfrom now on\b|\bunder no circumstances\b|\bat all times\b|\bmust (?:not|never|always|only|use)\b|"
    r"\b(?:you|please|should) (?:always|never|not|only)\b|\bplease (?:don't|do not|avoid|make sure|use|keep)\b|"
    r"\bI (?:only want|never want|always want|don't want|do not want|prefer)\b",
    re.I,
)
_RULE_ZH = lazy_regex(
    r"以后(?:都|请|不|别|要|用|每|再|统一)|从现在(?:起|开始)|今后|[帮给替为]我记住|(?<!我)(?<!没)记住(?![了的])|务必|(?<!要是)(?<!如果)必须(?![的啊呀得知])|不要再|请不要|千万(?:别|不)|"
    r"禁止|不许|不准|不得|一律|永远不|每次都|^(?:请|你)?一定要|^(?:请)?(?:不要|别|只用|只能|始终|总是)|"
    r"不要(?:用|动|改|碰|写|直接)|不能(?:直接|动|改|用)|要求(?:走|用|先|必须)|以\S{1,8}为准|封顶|上限|最多不"
)
# Words that open a step rather than tell what came of it.
_INTENT = lazy_regex(
    r"(?:THOUGHT:\s*)?(?:[-*] )?(?:(?:ok(?:ay)?|now|so|wait|hmm|first|next|then|great|perfect|excellent)[,!.]? )*"
    r"(?:let me|let's|I'll|I will|I should|I need to|I'm going to|maybe|now (?:run|check|insert))\b|"
    r"(?:好的?[，。]?|那么?[，]?)?(?:我|让我|现在|下面|首先)?(?:先|再|来|去|试着|接着)[^已了]{0,40}[。！]?\Z",
    re.I,
)
# Announcements of an assistant at work: the step itself is listed.
_ANNOUNCES = lazy_regex(
    r"(?:\*{0,2}step \d{1,2}[.:]\*{0,2} )?"
    r"(?:(?:ok(?:ay)?|now|so|first|next|then|great|perfect|good|alright|and)[,!.:]? )*(?:I (?=(?:re-?)?run ))?"
    r"(?:(?:let me|let's|I'll|I will|I should|I need to|I'm going to|I want to|we should|we need to|we'll) )?"
    r"(?:(?:now|also|just|first|then|try to|start by|proceed to|begin by) )*"
    r"(?:re-?)?(?:run|read|check|verify|look|see|list|view|examine|explore|inspect|search|find|try|open|grep|locate|"
    r"understand|confirm|start)(?:ing|ning)?\b|"
    r"(?:好的?[，。]?|那么?[，]?)?(?:让我|现在|下面|首先|接着|我)?(?:先|再|来|去)?(?:仔细|重新|继续|也)?"
    r"(?:看|查|读|跑|运行|检查|搜|找|试|打开|确认|验证|列出|了解|量|改|加|写|统计)(?:[一下看个]|测试)?"
    r"[^，。；\d]{0,16}[。！]?\Z",
    re.I,
)
ANNOUNCED_CHARS = 110
# A shorter line without a sign at its end is an entry of a list.
FIELD_CHARS = 60
QUESTION = lazy_regex(r"[?？]\s*+$|[吗呢么]\s*+(?:[?？。]\s*+)?$")


@dataclass(frozen=True)
class Saying:
    """Something said in one message, verbatim."""

    at: int
    text: str
    handle: str
    role: str = "user"

    @cached_property
    def sentences(self) -> list[str]:
        """The sentences and lines of the part of the text that is read."""
        return split_sentences(self.text[:SCAN_CHARS])


def find_sayings(messages: Sequence[Message], role: Author) -> list[Saying]:
    """Return what a person (``user``) or the assistant said, one for each message with words, in order."""
    found = []
    for at, message in enumerate(messages):
        if message.role == role and (text := read_said(message, role)):
            found.append(Saying(at, text, message_handle(message), role))
    return found


def split_sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text, each verbatim, blanks around them left out."""
    return [piece for raw in BORDER.split(text) if (piece := raw.strip())]


def find_rules(asks: Iterable[Saying]) -> list[Saying]:
    """Return the sentences in which a person set a standing rule, newest last, each once."""
    rules: dict[str, Saying] = {}
    for ask in asks:
        is_pasted = len(ask.text) > PASTED_CHARS
        for sentence in ask.sentences:
            if len(sentence) <= RULE_CHARS_MAX and is_rule(sentence, is_pasted=is_pasted):
                rules.pop(sentence, None)
                rules[sentence] = Saying(ask.at, sentence, ask.handle)
    return list(rules.values())[-RULES_MAX:]


def is_rule(sentence: str, *, is_pasted: bool = False) -> bool:
    """Return whether a sentence of a person sets a rule for what comes after."""
    if QUESTION.search(sentence):
        return False
    if _RULE_STARTS.match(sentence):
        return True
    return not is_pasted and bool(_RULE_INSIDE.search(sentence) or _RULE_ZH.search(sentence))


def is_intent(sentence: str) -> bool:
    """Return whether a sentence only says what the assistant is about to do."""
    return bool(_INTENT.match(sentence))


def is_announcement(sentence: str) -> bool:
    """Return whether a sentence only announces the step that follows it."""
    return len(sentence) <= ANNOUNCED_CHARS and _ANNOUNCES.match(sentence) is not None


def find_pending(messages: Sequence[Message], asks: Sequence[Saying]) -> list[Saying]:
    """Return the newest asks at the end of a span that the assistant has not begun to answer.

    A person who wrote much more without an answer was telling something: only the newest messages can be open asks.
    """
    begun = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return [ask for ask in asks if ask.at > begun][-PENDING_MAX:]


def shorten(text: str, chars_max: int) -> tuple[str, int, str]:
    """Return head, exact number of characters left out, and tail; the number is 0 if the text is short enough.

    Cuts fall at borders of sentences where one lies near, so that what is kept reads whole.
    """
    if len(text) <= chars_max:
        return text, 0, ""
    head_end = _border_before(text, max(1, chars_max * 7 // 10))
    tail_start = _border_after(text, len(text) - chars_max * 3 // 10)
    if tail_start <= head_end:
        return text, 0, ""
    head, tail = text[:head_end].rstrip(), text[tail_start:].lstrip()
    return head, len(text) - len(head) - len(tail), tail


def shorten_words(text: str, chars_max: int) -> str:
    """Return the whole sentences at the beginning that fit; of a first one that does not, what fits."""
    if len(text) <= chars_max:
        return text
    end = 0
    for border in BORDER.finditer(text):
        if border.start() > chars_max:
            break
        end = border.start()
    if end:
        return text[:end].rstrip()
    space = text.rfind(" ", chars_max // 2, chars_max)
    return text[: space if space > 0 else chars_max].rstrip()


def _border_before(text: str, at: int) -> int:
    window = text[max(0, at - at // 2) : at]
    last = max((match.end() for match in BORDER.finditer(window)), default=0)
    if not last:
        space = window.rfind(" ")
        last = space + 1 if space > 0 else len(window)
    return at - len(window) + last


def _border_after(text: str, at: int) -> int:
    window = text[at : at + (len(text) - at) // 2]
    first = BORDER.search(window)
    if first:
        return at + first.end()
    space = window.find(" ")
    return at + (space + 1 if space >= 0 else 0)


# For each class of sentence in a story, the English and Chinese words that mark it.
CuePair = tuple[Cue, re.Pattern[str]]

STORY_CAUSE: CuePair = (
    any_word(
        r"because\b|caused? (?:by|of|is|was)\b|the (?:root |real |actual )?(?:cause|culprit|reason)\b|due to\b",
        r"(?:which|that|this) (?:means|implies|explains|suggests|causes|breaks)\b|turns out\b|that's why\b",
        r"(?:here is|here's|there is) the (?:difference|problem|issue|bug|culprit)\b|the difference\b",
        r"the (?:issue|problem|bug|error) (?:is|was|lies|comes|occurs|seems)\b|the errors? occurs?\b",
        r"(?:this|it) is using\b|instead of\b|(?:is|was|were|are) (?:missing|incorrect|wrong|outdated|required)\b",
        r"incorrectly\b|(?:signature|interface|api) (?:has )?changed\b|expects? (?:a|an|the|that)\b|so that's\b",
        r"only (?:helps?|works?|applies|happens) (?:if|when|for)\b|"
        r"does(?:n't| not) (?:pad|account|handle|support|match)\b",
    ),
    any_of(
        r"因为|由于|原因|导致|是由|问题(?:是|在|出在)|根因|根源|根子|起因|造成|引起|引发|源于|在于|取决于|意味着|说明",
        r"所以|因此|以致|难怪|怪不得|原来(?:是|如此)|之所以|归根|不符合|改编自",
    ),
)
STORY_DECIDES: CuePair = (
    any_word(
        r"(?:the )?(?:best |right |simplest )?(?:fix|solution|approach|plan|idea) (?:is|was|would be)\b|"
        r"decid(?:e|ed)\b",
        r"(?:should|must|need(?:s)? to) (?:be|use|accept|match|check|call|return|keep|modify|implement|update)\b",
        r"(?:I'll|I will|we'll|we will|let's) (?:use|go with|keep|drop|switch|modify|implement|add|"
        r"replace|remove|update)\b",
        r"(?:safer|simpler|cleaner|better|faster) (?:than|to)\b|rather than\b|agreed\b|go(?:ing)? with\b|opt(?:ed)?\b",
        r"I need to (?:implement|modify|update|prevent|change|remove|add)\b|we need (?:a|to)\b|should have\b",
    ),
    any_of(
        r"决定|选(?:了|定|用|中)|就(?:用|去|定|按|选|买|要|改)|定(?:了|下|为|在)|改(?:用|成|为|走|到)|换成|采用|推荐|还是去",
        r"那就|倾向|不再|放弃|优先|统一用|同意|达成一致|(?:做法|方案|办法)(?:是|定|为)|[^想要]建议|^建议",
    ),
)
STORY_FAILS: CuePair = (
    any_word(
        r"fail(?:s|ed|ing|ure)?\b|errors?\b|cannot\b|can't\b|unable\b|"
        r"not (?:available|found|possible|allowed|work|implemented)\b|tim(?:ed|es) out\b|timeout\b|hangs?\b|killed\b",
        r"does(?:n't| not) (?:work|exist|have|accept)\b|did(?:n't| not) work\b|broke(?:n)?\b|mistake\b|oops\b|"
        r"crash\w*\b",
        r"unexpected\b|messed\b|duplicat\w+\b|refus\w+\b|denied\b|no such\b|wasn't able\b|not yet\b|damaged?\b|undid\b",
        r"however\b|unfortunately\b|beyond\b|exceed\w*\b|lost\b|missing\b|wrong\b|without any\b",
    ),
    any_of(
        r"失败|错误|报错|出错|异常|冲突|超时|崩溃|卡住|抱歉|报歉|不好意思|没有|没用|不能|无法|不行|不符|不巧|对不起|不上",
        r"漏|坏|裂|不许|不支持|缺|丢失|拒绝|不通过|未通过|不对外|不生效|无效|白费|不要再|别再|排除",
    ),
)
STORY_FOUND: CuePair = (
    any_word(
        r"(?:I|we) (?:have |can |now )*(?:see|found|find|reproduced|confirmed|noticed|know)\b|"
        r"confirm(?:s|ed)\b|shows?\b",
        r"reproduc(?:ed|es)\b|it (?:seems|appears|looks|means)\b|looks like\b|indeed\b|is (?:located|defined|in)\b",
        r"exactly\b|the (?:output|result|query|script|test|build|error|relevant code)\b|reported\b|bingo\b|found\b",
        r"there (?:is|are|was|were) \d|established\b|recovered\b|in total\b",
    ),
    any_of(
        r"发现|确认|找到|查到|定位|看到|结果|统计|实测|一致|对得上|[是有用共]\S{0,6}\d|\d\S{0,4}(?:元|次|个|秒|分|天|件|单|条)",
        r"评分|价格|门票|地址",
    ),
)
STORY_DONE: CuePair = (
    any_word(
        r"(?:I|we)(?:'ve| have)? (?:just |finally |recently |also |already )?(?:added|fixed|"
        r"removed|created|updated|changed|replaced|moved|ported|written|wrote|"
        r"committed|installed|booked|cancelled|canceled|sent|signed|went|ran|took|painted|made|got|chose|started|joined)\b",
        r"(?:is|are|was|were|has been|have been) (?:now )?(?:fixed|done|added|removed|created|updated|merged|deployed|"
        r"waived|reserved|approved|refunded|closed|open|off|on|back|written|committed)\b",
        r"pass(?:es|ed)?\b|succe(?:ss|eds|eded|ssful|ssfully)\b|works?\b|all (?:green|set|tests)\b|done\b|fixed\b",
    ),
    any_of(
        r"已(?:经)?|完成|成功|通过|好了|推荐|预订|下单|买了|付|签|做好|装好|为您|获得|毕业|上映|出道|拍摄|提交|合并|上线|修复",
        r"[写改加删建补装](?:好|完|进|上)了?|生成|部署",
    ),
)
STORY_OPEN: CuePair = (
    any_word(
        r"todo\b|still (?:open|missing|to do|to be|need|needs|failing|left)\b|remaining\b|not yet\b|"
        r"(?:for|until|it|this|that) later\b|next steps?\b",
        r"left to do\b|waiting (?:for|on)\b|pending\b|follow[- ]up\b|until (?:\d|then|he|she|they|the)\b",
    ),
    any_of(
        r"待办|待定|有待|待[你您]|还没|尚未|未完成|以后再|之后再|回头|提醒|下一步|接下来|剩下|还剩|还差|还需|还要等",
        r"[在要需]等|等\S{1,8}(?:确认|回复|审批|答复|决定)|需要(?:你|您|他|她)\S{0,3}(?:决定|确认|定)",
    ),
)
# A sentence that says which edit comes next decides nothing.
STORY_EDITS = lazy_regex(
    r"(?:(?:okay|ok|so|now|then|next|first|and)[,!.]? )*(?:I'll|I will|I need to|I should|let's|let me|I'm going to) "
    r"(?:now |also |then |just |first )*(?:update|add|insert|delete|rewrite|write|create|edit|"
    r"modify the (?:script|file|test)|remove the (?:script|file|test|print|debug)|"
    # "Let's use Python 3.12 as the runtime" does decide something.
    r"use `?(?:sed|cat|awk|ed|python(?! ?\d| (?:as|for|instead)\b))\b)",
    re.I,
)
# A possibility is not a fact.
STORY_GUESS: CuePair = (
    any_word(
        r"^(?:but |and |so |or |also |even )?(?:if|unless|suppose|assuming|maybe|perhaps|"
        r"why|what|how|when|is|does|should)\b",
        r"I (?:expect|suspect|guess|assume|wonder|think)\b|might\b|likely\b|probably\b|"
        r"let's (?:see|check|verify|look)\b",
    ),
    any_of(r"^(?:如果|要是|大概|万一)|可能|也许|怀疑|猜测|我猜|估计|似乎|好像|应该(?:是|在|就)|是不是"),
)
# An assistant that offers or asks tells little about what happened.
STORY_OFFER: CuePair = (
    any_word(
        r"would you like\b|(?:could|can) you (?:please )?(?:provide|confirm|tell|share|specify)\b|"
        r"please (?:provide|confirm|let me)",
        r"let me know\b|feel free\b|shall I\b|I can help\b|how (?:can|may) I\b|is there anything\b",
    ),
    any_of(r"请问还|还有什么|需要我|要不要我|可以吗|行吗|你看"),
)
# A person who asks for something tells less than the answer does.
STORY_REQUEST: CuePair = (
    any_word(
        r"(?:can|could|would|will) you\b|(?:please|kindly) (?:let me know|tell|show|help)\b",
        r"I(?:'d| would) like to know\b",
    ),
    any_of(
        r"推荐[一几个下]|[给帮]我(?:推荐|找|查|看|算|选|介绍|把|列|排|汇总)|有没有|请问|麻烦",
        r"告诉我|哪[家个里儿些]|多少|什么|怎么|几点|知道|列出来|给个建议|直接(?:说|给)|我想要一[份张个]",
    ),
)
# A step that only looks.
STORY_LOOKS = lazy_regex(
    r"\b(?:look|check|see|list|read|view|examine|explore|inspect|search|find|verify|start|run|understand|open|grep|try)"
    r"(?:ing)?\b|[看查读搜找试]|检查|运行|验证",
    re.I,
)
STORY_WORTH: tuple[tuple[CuePair, float], ...] = (
    (STORY_CAUSE, 0.9),
    (STORY_DECIDES, 0.7),
    (STORY_FAILS, 0.8),
    (STORY_FOUND, 0.4),
    (STORY_DONE, 0.5),
    (STORY_OPEN, 0.4),
)
_BULLET = lazy_regex(r"\A(?:[-*•>]\s+|\d{1,2}[.)]\s+|#{1,6}\s+|[A-Z]{4,12}:\s+)+")
_OPENING = lazy_regex(
    r"\A(?:[-*•>]\s+|\d{1,2}[.)]\s+|#{1,6}\s+|(?-i:[A-Z]{4,12}):\s+|"
    r"(?:ok(?:ay)?|so|now|well|great|perfect|excellent|ah|oh|hmm|wait|yes|yeah|actually|also|then|and|hey|alright|"
    r"here)[,.!]\s+|(?:好的?|嗯+|那|哦|啊|哇|好啊|行啊|是的|对)[，,。！]\s*)+",
    re.I,
)
_POLITE = lazy_regex(
    r"(?:(?:ok(?:ay)?|thanks?(?: you| so much| a lot| again| in advance)?|you're welcome|great|perfect|excellent|"
    r"awesome|"
    r"sure(?: thing)?|no problem|hi(?: there)?|hello|hey(?: there)?|bye|wow|yes|yeah|yep|good|nice|cool|alright|"
    r"continue|"
    r"done|fine|got it|sounds (?:good|great)|please|absolutely|of course|i see|bonjour|merci|"
    r"that's (?:all right|fine|okay|great))\b[\s,.!:;)'\w-]{0,24})\Z|"
    r"I(?:'m| am)? (?:(?:do|sincerely|very|so|truly) )?(?:apologi[sz]e|sorry)"
    # What is more than the reason of an apology tells something: "I'm sorry but this fare cannot be changed."
    r"(?: (?:for|about)(?:(?! but )[^,;\d]){1,40}| to hear (?:that|this))?[.!]{0,3}\Z|"
    r"(?:好的?|谢谢|感谢|多谢|不客气|不用谢|不用客气|再见|收到|嗯+|是的|您好|你好|可以|没问题|好啊|当然|对|欢迎|祝您|OK|原来如此|明白)"
    r"[^\d]{0,9}\Z|[^\d，。]{0,5}(?:不错|真好|太好|挺好|真棒|厉害|便宜|可惜|遗憾|方便|放心|说错)[^\d，。]{0,4}[，。！]?\Z|"
    r".{0,8}(?:谢谢|不客气|感谢|再见|祝您生活愉快|欢迎下次).{0,8}\Z",
    re.I,
)
# Words that tell nothing by themselves.
_STOP_WORDS = """
    the and for that this with from have has had was were are been being not but you your they them their
    there here what when where which who whom how why can could would should will shall may might must does
    did doing done just only also very really much many more most some any all each every into onto over under
    about after before then than now too our out its it's i'm i've i'll we've we'll let's don't doesn't didn't
    can't couldn't isn't wasn't aren't see seems look looks like need needs want wants get gets got make makes
    made use uses used using one two way thing things well still even such these those because since while
    though however maybe perhaps think know sure okay great good first next new old same other another
    something anything everything nothing let check call called set say says said time come comes came going
    gone goes take takes took give gives gave keep keeps back wow hey yeah awesome amazing
"""
_STOP = frozenset(_STOP_WORDS.split())
_FIELD = lazy_regex(r"\*{0,2}[A-Z][\w/()-]{1,20}(?: [\w/()-]{1,20}){0,2}:\*{0,2}\s\S.{0,40}(?<![.!?])\Z")
_SIGNS = lazy_regex(r"[^\w\s,.;:!?'\"()’“”，。！？；：、（）《》-]")
_WORDS = lazy_regex(r"[A-Za-z]{2,}|[\u3400-\u9fff]")
_LATIN = lazy_regex(r"[a-z0-9_][a-z0-9_'’./:-]*[a-z0-9_]")
_GRAMMAR_ZH = (
    "的地得了着过是我你您他她它们在就这那哪也都和与及或很吧呀啊呢吗哦嗯啦么"
    "把被让给还又再才只要会能可个有没不但而且因为所以如果"
)
# No figure, no name, no Latin letter: all that it says is in the sentences around it.
_LEANS_ZH = lazy_regex(
    r"(?:[^，,]{0,4}[，,])?(?:那么?|所以|但|不过|而且|其实)?(?:这|那)(?!家|里|边|天|次)[^\d《“「A-Za-z]{2,24}\Z|"
    r"[^\d《“「A-Za-z]{0,12}(?:下面[这几那的]|以下|这么[办排做]|这几[条点个])[^\d《“「A-Za-z]{0,16}\Z"
)
_PAIR = lazy_regex(r"(?=([\u3400-\u9fff]{2}))")
# Two characters of which neither only holds a sentence together.
_TELLING_PAIR = lazy_regex(rf"(?=((?![{_GRAMMAR_ZH}])[\u3400-\u9fff](?![{_GRAMMAR_ZH}])[\u3400-\u9fff]))")


def finds(cue: CuePair, sentence: str) -> bool:
    """Return whether a sentence has one of the words of a cue, in its own language."""
    english, chinese = cue
    return bool(english.search(sentence) or (not sentence.isascii() and chinese.search(sentence)))


def trim_opening(sentence: str, role: str) -> str:
    """Return a sentence without bullets and labels, and, of the assistant, without the words that only lead in.

    A person's "Yes" and "No" are answers. A sentence that would begin in the middle stays whole.
    """
    rest = _OPENING.sub("", sentence, count=1).strip() if role == "assistant" else ""
    return rest if rest and not rest[0].islower() else _BULLET.sub("", sentence, count=1).strip()


def join_halves(sentences: Sequence[str], text: str, chars_max: int) -> list[str]:
    """Return sentences with the halves around a semicolon together again, as far as they stay short."""
    joined: list[str] = []
    for sentence in sentences:
        for gap in (" ", ""):
            whole = f"{joined[-1]}{gap}{sentence}" if joined and joined[-1][-1] in ";；" else ""
            if whole and len(whole) <= chars_max and whole in text:
                joined[-1] = whole
                break
        else:
            joined.append(sentence)
    return joined


APPROVAL_CHARS = 80
_APPROVAL = lazy_regex(
    r"(?:(?:ok(?:ay)?|yes|yep|yeah|sure|right|correct|fine|great|perfect|good|agreed|approved|please|alright|absolutely"
    r"|exactly|sounds good|looks good|go (?:ahead|for it)|do (?:it|that|so|this)|proceed|please do|make it so|ship it"
    r"|let'?s do (?:it|that|this)|that works|works for me|i agree|confirmed?|thanks?|thank you)[\s,.!]*){1,6}"
    r"|(?:(?:好的?|可以|行|没问题|同意|就这样(?:做|吧)?|就这么(?:做|办)|按你说的(?:做|办)?|是的|对|嗯|开始吧|做吧|去做吧|谢谢)"
    r"[\s，,。.！!]*){1,5}",
    re.I,
)


def is_polite(sentence: str) -> bool:
    """Return whether a sentence is mere politeness. The text after a "Yes" may be an answer."""
    said = _OPENING.sub("", sentence, count=1).strip() or sentence
    return len(said) <= 60 and _POLITE.match(said) is not None


def is_approval(text: str) -> bool:
    """Return whether a message only agrees to what was proposed before it."""
    return len(text) <= APPROVAL_CHARS and _APPROVAL.fullmatch(text) is not None


def is_prose(sentence: str) -> bool:
    """Return whether a sentence is made of words: not code, not a row of a table, not a heading or a lead-in."""
    if sentence[-1:] in (":", "：") or sentence[:1] in ("|", "<", "{", "$"):
        return False
    words = len(_WORDS.findall(sentence[:400]))
    return words >= 3 and len(_SIGNS.findall(sentence[:400])) <= words


def is_field(sentence: str) -> bool:
    """Return whether a line is an entry of a list, such as ``Arrival: 01:00``, rather than a sentence."""
    is_line = len(sentence) < FIELD_CHARS and sentence.isascii() and sentence[-1] not in ".!?;'\"`"
    return is_line or _FIELD.match(sentence) is not None


def is_chatter(sentence: str) -> bool:
    """Return whether a Chinese sentence is made of grammar: "那好吧，也没有别的选择呀". It names nothing."""
    if sentence.isascii() or any(sign.isascii() and sign.isalnum() for sign in sentence):
        return False
    return len(_TELLING_PAIR.findall(sentence[:400])) < 2


def only_leans(sentence: str) -> bool:
    """Return whether a Chinese sentence names nothing itself: "这件事没有看上去那么复杂。", or leads in to a list."""
    return not sentence.isascii() and _LEANS_ZH.match(sentence) is not None


def find_words(sentence: str) -> set[str]:
    """Return the words of a sentence that carry something: pairs of characters in Chinese."""
    plain = sentence[:400].lower()
    found = {word for word in _LATIN.findall(plain) if len(word) > 2 and word not in _STOP}
    return found if plain.isascii() else found | set(_PAIR.findall(plain))
