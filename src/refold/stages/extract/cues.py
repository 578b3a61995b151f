"""Cues: the words by which a sentence gives itself away as a preference, a decision, a todo or key information.

Each pattern is for one language and one side (a person, the assistant, both). They are meant to be right rather than
complete: who says "keep it up" sets no rule, "if I use X" decides nothing, and an assistant that says "I need to look"
has looked by the next step.
"""

from __future__ import annotations

import re

# A value that can be looked up again: digits, a path, a code, an amount.
_VALUE = r"(?:[$€£¥#]\s?\d|\d|[\w.-]+[/@_][\w.-]+)"
_NUMBER_ZH = r"[\d二两三四五六七八九十百千万]"
_DAY = (
    r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|tonight|noon|midnight|"
    r"next (?:week|month))"
)


def _words(*cues: str) -> re.Pattern[str]:
    """Cues in a language that sets words apart: each begins where a word does, so few places have to be tried."""
    return re.compile(rf"\b(?:{'|'.join(cues)})", re.I)


def _any(*cues: str) -> re.Pattern[str]:
    return re.compile("|".join(cues))


QUESTION = re.compile(r"[?？]\s*+$|[吗呢么]\s*+(?:[?？。]\s*+)?$")
# Conditions, orders and questions without their mark state nothing.
STATES_NOT = re.compile(
    r"(?:when|if|what|how|why|where|who|which|can|could|would|please|let|see|run|show|try|use|make|do|does|is|are|"
    r"maybe|perhaps|wait)\b",
    re.I,
)
STATES_NOT_ZH = re.compile(
    r"咋|怎么|怎样|什么|哪|几(?!年|天)|多少|谁|推荐|帮我|帮忙|帮看|查一?下|"
    r"找一?|请问|给我|如果|要是|可以(?:告诉|发)"
)
# "If I use X" decides nothing, a guess is no finding, and a line of code says nothing at all.
CONDITION = re.compile(
    r"(?:\w+[:,]? ){0,2}(?:if|since|suppose|assuming|I (?:suspect|expect|think|guess|assume|wonder|believe))\b|"
    r"[#>]|\w+\(",
    re.I,
)

USER_PREFERS = _words(
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
USER_PREFERS_ZH = _any(
    r"我们?(?:比较|很|非常|特别|更|最|也|还是|一直|平时|一般|通常)*(?:喜欢|偏好|偏爱|偏向|倾向|习惯|想要|希望|"
    r"讨厌|不喜欢|不爱|不习惯|只要|只想|只吃|只坐|只用|需要|宁愿|宁可)",
    r"我们?(?:不太?|从不|不能)(?:想|吃|喝|要|喜欢|爱|坐|接受|希望)|过敏|忌口|素食|尽量|尽可能",
    r"最好(?!的)|优先|一律|统一(?:用|使用|采用)|不(?:能|得|可以?|要|许)?超过|(?:控制|限制)在",
    r"(?<!要)不要(?!紧|担心|客气|着急|急|慌|太)",
    r"(?<![特分区差级识辨个告])别(?!忘|的|人|处|墅|担心|客气|急|着急|名|说|提|致)",
    r"每次.{0,12}(?:都|先|要)|(?:都|全部|统统)(?:用|得|必须)|必须(?![的啊呀得知])|少用|多用",
)
USER_KEY = _words(
    r"my \w+(?: \w+){0,3} (?:is|are|was)\b|(?:I live|I work|call me)\b",
    r"(?:I am|I'm) (?!sure|sorry|happy|glad|afraid|not |going|trying|looking|wondering|excited|just|really|"
    r"so\b|also|still|thinking|planning|interested|curious|aware|hoping|open|okay|fine|good|ready|here|having|"
    r"getting|using|very|pretty|thrilled|proud|grateful|always|definitely|all\b|done|doing|loving|able|unable|"
    r"sad|tired|confident|eager|off\b|out\b|too\b|in\b)",
    r"(?:the|our|my) (?:\w+[ -]){0,3}(?:deadline|due date|address|budget|password|username|email|phone|port|"
    r"version|server|host|database|launch|release date)\b.* (?:is|are|was|will be) ",
    r"(?:the|our) \w+(?: \w+)? (?:is|are) (?:at |in |on )?\S*[\d/_@]",
)
# What a person states with a value in it.
USER_STATES = re.compile(
    r"(?:The|Our|My|We|There|It|Its|All|Both|Each|Every|[A-Z][\w-]+)\b[^,;]{0,80}?"
    r"\b(?:is|are|was|were|has|have|had|runs?|lives?|costs?|takes?|took|starts?|ends?|rotates?|expires?|opens?|"
    rf"closes?|weighs?|holds?|listens?|points?|arrives?|leaves?|departs?)\b.*(?:{_VALUE}|\b{_DAY}\b)"
)
USER_KEY_ZH = _any(
    r"我们?(?:叫|姓|是(?!想|不|说|觉|要|在想|看|听)|住在?|在\S{1,12}(?:工作|上班|上学|读书)|来自|"
    r"的\S{1,8}(?:是|为))",
    r"(?:地址|电话|手机号?|号码|订单号?|单号|账号|密码|邮箱|日期|时间|期限|截止|预算|人数|版本|端口|名字|域名|"
    r"服务器)\S{0,8}(?:是|为|在|：|:)",
    rf"(?:一共|总共|大约|大概|共有?|还有)\S{{0,6}}{_NUMBER_ZH}",
    rf"(?:有|在|是|为|放在|位于|每隔?)\s?\S{{0,10}}{_NUMBER_ZH}+\s?(?:个|台|人|位|天|年|月|号|"
    r"点|元|块|次|周|小时|分钟|GB|MB|G|M|%)",
    r"(?:放在|位于|存在|部署在|跑在)\s?\S*[A-Za-z/_.]",
)
DECIDES = _words(
    r"decided\b|(?:we|I)(?:'ll| will) use\b|we(?:'re| are) using\b",
    r"(?:we|I)(?:'ll| will|'re| are|'m| am) (?:go(?:ing)? with|drop(?:ping)?|switch(?:ing)? to|"
    r"stay(?:ing)? with|skip(?:ping)?|postpon(?:e|ing))\b",
    r"we(?:'ll| will) keep\b|(?<!\bif )we (?:drop|go with|postpone|switch to)\b",
    r"let's (?:use|go with|keep (?!\w+ing)|drop|skip|switch|stay with|stick|postpone|start with|ship|take)\b",
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
DECIDES_ZH = _any(
    r"决定|选择了|选定|选用|改用|改成用?|换成|采用|采纳|方案是|结论|原因(?:是|在于)|根因",
    r"是因为|确定(?:了|用|为|下来)|就(?:用|选|定|按|这么(?:定|办|做)|这样(?:定|办|做))",
    r"那就(?:用|选|定|按|订|要|先)|定下来|还是(?:用|选|按|走)|先不(?:做|管|要|上|加|改|考虑)",
    r"(?:双方|大家|一致|都)同意|达成一致|推迟到|提前到",
    r"(?:问题|错误|故障|毛病)(?:出在|在于|是由|是因)|原来是",
    r"(?<![一确肯注])定了(?=[：:，。！]|$)|下单了|敲定|拍板",
)
TODO = _words(
    r"(?:TODO|FIXME)\b|remaining\b|outstanding (?:work|tasks?|items?|issues?)\b",
    r"still (?:missing|open|failing|to (?:do|be)|needs|needed|pending)\b",
    r"not yet (?:done|implemented|\w+ed)\b|(?:has|have)(?:n't| not) yet\b",
    r"has(?:n't| not) been \w+ yet\b|what(?:'s| is) (?:still )?left\b|left to do\b",
    r"next steps?\b|needs? to be (?:done|fixed|added|updated|written|reviewed|migrated)\b",
)
TODO_ZH = _any(
    r"待办|待(?:处理|完成|确认|修复|补充)|还(?:需要|需|差|剩)(?!不|多|几|什么)",
    r"还(?:要|得)(?:做|写|改|补|加|订|买|测|处理|完成|修|把|给)|接下来(?:要|需)",
    r"下一步(?:是|要|需)|尚未",
    r"(?:还没有?|仍未)(?:完成|处理|动|做|修|写|改|测|部署|上线|实现|验证|迁移|解决)|未完成",
    r"剩下的?(?:工作|任务|部分|是|就|还)|剩余的?(?:工作|任务|部分)",
)
USER_TODO = _words(
    r"(?:we|you|I) (?:still |also |then )*(?:need|have) to\b",
    r"(?:we|you)(?:'ll| will) (?:still |also |then )*need\b|(?:don't|do not) forget\b",
    r"(?:^|please |[,;] )(?:remind me (?:to|about|that|when|of the)|remember to)\b",
    r"(?:later|afterwards|after that),? (?:also )?(?:add|write|update|fix|check|send|call|book|port|move|"
    r"remove|test)\b",
    r"(?:when|once) you(?:'re| are) (?:done|finished|through)\b",
    r"^(?:once|when|after|as soon as) (?:that(?:'s| is)?|it(?:'s| is)?|this(?: is)?|everything(?: is)?|"
    r"all) (?:done|works?|finished|merged|ready|over|passes|in|deployed)\b",
)
USER_TODO_ZH = _any(
    r"别忘|不要忘|记得(?:要|帮|把|给|提醒|去|先|再|更新|通知|发|写|检查)|提醒我",
    r"回头(?:还|再|要|得|记)",
    r"(?:等|完成|做完|搞定|跑通|弄好|上线)\S{0,10}(?:以后|之后|后)，?\S{0,4}(?:把|补|加|写|改|再|在|要|通知|更新)",
)
KEY = _words(
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
KEY_ZH = _any(
    r"已(?:经)?(?:完成|修复|创建|取消|预订|更新|退|支付|付款|发送|发出|发布|发货|发给|提交|部署|删除|添加|"
    r"修改|安装|推送|合并|确认)",
    r"(?:预订|支付|创建|修改|部署|提交|退款|安装|取消)成功|全部通过|通过测试|测试\S{0,4}通过",
    r"耗时|我(?:新?建|创建|推送|提交|添加|加|改|删|写|装|部署)了",
    r"(?:价格|票价|门票|人均|费用|总价|电话|地址|评分|营业时间|开放时间|时间|日期|数量|版本|端口)\S{0,4}(?:是|"
    r"为|：|:)",
)

# What a story is made of: for each class of sentence the words by which it gives itself away, English and Chinese.
Cue = tuple[re.Pattern[str], re.Pattern[str]]

STORY_CAUSE: Cue = (
    _words(
        r"because\b|caused? (?:by|of|is|was)\b|the (?:root |real |actual )?(?:cause|culprit|reason)\b|due to\b",
        r"(?:which|that|this) (?:means|implies|explains|suggests|causes|breaks)\b|turns out\b|that's why\b",
        r"(?:here is|here's|there is) the (?:difference|problem|issue|bug|culprit)\b|the difference\b",
        r"the (?:issue|problem|bug|error) (?:is|was|lies|comes|occurs|seems)\b|the errors? occurs?\b",
        r"(?:this|it) is using\b|instead of\b|(?:is|was|were|are) (?:missing|incorrect|wrong|outdated|required)\b",
        r"incorrectly\b|(?:signature|interface|api) (?:has )?changed\b|expects? (?:a|an|the|that)\b|so that's\b",
        r"only (?:helps?|works?|applies|happens) (?:if|when|for)\b|"
        r"does(?:n't| not) (?:pad|account|handle|support|match)\b",
    ),
    _any(r"因为|由于|原因|导致|是由|问题(?:是|在于|出在)|根因|造成|意味着|不符合|改编自"),
)
STORY_DECIDES: Cue = (
    _words(
        r"(?:the )?(?:best |right |simplest )?(?:fix|solution|approach|plan|idea) (?:is|was|would be)\b|"
        r"decid(?:e|ed)\b",
        r"(?:should|must|need(?:s)? to) (?:be|use|accept|match|check|call|return|keep|modify|implement|update)\b",
        r"(?:I'll|I will|we'll|we will|let's) (?:use|go with|keep|drop|switch|modify|implement|add|"
        r"replace|remove|update)\b",
        r"(?:safer|simpler|cleaner|better|faster) (?:than|to)\b|rather than\b|agreed\b|go(?:ing)? with\b|opt(?:ed)?\b",
        r"I need to (?:implement|modify|update|prevent|change|remove|add)\b|we need (?:a|to)\b|should have\b",
    ),
    _any(r"决定|选(?:了|定|用|择)?|就(?:用|去|定|按|选|买|要)|定(?:了|下)|改(?:用|成)|采用|推荐|建议|还是去|那就"),
)
STORY_FAILS: Cue = (
    _words(
        r"fail(?:s|ed|ing|ure)?\b|errors?\b|cannot\b|can't\b|unable\b|not (?:available|found|possible|allowed|work)\b",
        r"does(?:n't| not) (?:work|exist|have|accept)\b|did(?:n't| not) work\b|broke(?:n)?\b|mistake\b|oops\b|"
        r"crash\w*\b",
        r"unexpected\b|messed\b|duplicat\w+\b|refus\w+\b|denied\b|no such\b|wasn't able\b|not yet\b|damaged?\b|undid\b",
        r"however\b|unfortunately\b|beyond\b|exceed\w*\b|lost\b|missing\b|wrong\b|without any\b",
    ),
    _any(r"失败|错误|报错|抱歉|不好意思|没有|不能|无法|不行|不符|不巧|对不起|漏|坏|裂|不许|不支持|缺"),
)
STORY_FOUND: Cue = (
    _words(
        r"(?:I|we) (?:have |can |now )*(?:see|found|find|reproduced|confirmed|noticed|know)\b|"
        r"confirm(?:s|ed)\b|shows?\b",
        r"reproduc(?:ed|es)\b|it (?:seems|appears|looks|means)\b|looks like\b|indeed\b|is (?:located|defined|in)\b",
        r"exactly\b|the (?:output|result|query|script|test|build|error|relevant code)\b|reported\b|bingo\b|found\b",
        r"there (?:is|are|was|were) \d|established\b|recovered\b|in total\b",
    ),
    _any(r"发现|确认|找到|是\S{0,6}\d|有\S{0,4}\d|评分|价格|门票|电话|地址|时间|号|元"),
)
STORY_DONE: Cue = (
    _words(
        r"(?:I|we)(?:'ve| have)? (?:added|fixed|removed|created|updated|changed|replaced|moved|ported|written|wrote|"
        r"committed|installed|booked|cancelled|canceled|sent|signed|went|ran|took|painted|made|got|chose|started|joined)\b",
        r"(?:is|are|was|were|has been|have been) (?:now )?(?:fixed|done|added|removed|created|updated|merged|deployed|"
        r"waived|reserved|approved|refunded|closed|open|off|on|back|written|committed)\b",
        r"pass(?:es|ed)?\b|succe(?:ss|eds|eded|ssful|ssfully)\b|works?\b|all (?:green|set|tests)\b|done\b|fixed\b",
    ),
    _any(r"已(?:经)?|完成|成功|通过|好了|推荐|预订|下单|买了|付|签|做好|装好|为您|获得|毕业|上映|出道|拍摄"),
)
STORY_OPEN: Cue = (
    _words(
        r"todo\b|still (?:open|missing|to do|to be|need|needs|failing|left)\b|remaining\b|not yet\b|later\b|"
        r"next steps?\b",
        r"left to do\b|waiting (?:for|on)\b|pending\b|follow[- ]up\b|until (?:\d|then|he|she|they|the)\b",
    ),
    _any(r"待办|还没|尚未|未完成|以后再|回头|提醒|下一步|剩下"),
)
# What might be is not what was.
STORY_GUESS: Cue = (
    _words(
        r"^(?:but |and |so |or |also |even )?(?:if|unless|suppose|assuming|maybe|perhaps|"
        r"why|what|how|when|is|does|should)\b",
        r"I (?:expect|suspect|guess|assume|wonder|think)\b|might\b|likely\b|probably\b|"
        r"let's (?:see|check|verify|look)\b",
    ),
    _any(r"^(?:如果|要是|可能|也许|大概|万一)"),
)
# An assistant that offers or asks tells little about what happened.
STORY_OFFER: Cue = (
    _words(
        r"would you like\b|(?:could|can) you (?:please )?(?:provide|confirm|tell|share|specify)\b|"
        r"please (?:provide|confirm|let me)",
        r"let me know\b|feel free\b|shall I\b|I can help\b|how (?:can|may) I\b|is there anything\b",
    ),
    _any(r"请问还|还有什么|需要我|要不要我|可以吗|行吗|你看"),
)
# A person who asks for something tells less than the answer does.
STORY_REQUEST: Cue = (
    _words(
        r"(?:can|could|would|will) you\b|(?:please|kindly) (?:let me know|tell|show|help)\b",
        r"I(?:'d| would) like to know\b",
    ),
    _any(
        r"推荐[一几个下]|[给帮]我(?:推荐|找|查|看|算|选|介绍|把|列|排|汇总)|有没有|请问|麻烦",
        r"告诉我|哪[家个里儿些]|多少|什么|怎么|几点|知道",
    ),
)
# A step that only looks.
STORY_LOOKS = re.compile(
    r"\b(?:look|check|see|list|read|view|examine|explore|inspect|search|find|verify|start|run|understand|open|grep|try)"
    r"(?:ing)?\b",
    re.I,
)
STORY_WORTH: tuple[tuple[Cue, float], ...] = (
    (STORY_CAUSE, 0.9),
    (STORY_DECIDES, 0.7),
    (STORY_FAILS, 0.8),
    (STORY_FOUND, 0.4),
    (STORY_DONE, 0.5),
    (STORY_OPEN, 0.4),
)
_OPENING = re.compile(
    r"\A(?:[-*•>]\s+|\d{1,2}[.)]\s+|#{1,6}\s+|(?-i:[A-Z]{4,12}):\s+|"
    r"(?:ok(?:ay)?|so|now|well|great|perfect|excellent|ah|oh|hmm|wait|yes|yeah|actually|also|then|and|hey|alright|"
    r"here)[,.!]\s+|(?:好的?|嗯+|那|哦|啊|哇|好啊|行啊|是的|对)[，,。！]\s*)+",
    re.I,
)
_POLITE = re.compile(
    r"(?:(?:ok(?:ay)?|thanks?(?: you| so much| a lot| again| in advance)?|you're welcome|great|perfect|excellent|"
    r"awesome|"
    r"sure(?: thing)?|no problem|hi(?: there)?|hello|hey(?: there)?|bye|wow|yes|yeah|yep|good|nice|cool|alright|"
    r"continue|"
    r"done|fine|got it|sounds (?:good|great)|please|absolutely|of course|i see|bonjour|merci|"
    r"that's (?:all right|fine|okay|great))\b[\s,.!:;)'\w-]{0,24})\Z|"
    r"(?:好的?|谢谢|感谢|多谢|不客气|不用谢|不用客气|再见|收到|嗯+|是的|您好|你好|可以|没问题|好啊|当然|对|欢迎|祝您|OK)"
    r"[^\d]{0,9}\Z|.{0,8}(?:谢谢|不客气|感谢|再见|祝您生活愉快|欢迎下次).{0,8}\Z",
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
_SIGNS = re.compile(r"[^\w\s,.;:!?'\"()’“”，。！？；：、（）《》-]")
_WORDS = re.compile(r"[A-Za-z]{2,}|[\u3400-\u9fff]")
_LATIN = re.compile(r"[a-z0-9_][a-z0-9_'’./:-]*[a-z0-9_]")
_PAIR = re.compile(r"(?=([\u3400-\u9fff]{2}))")


def finds(cue: Cue, sentence: str) -> bool:
    """Tell whether a sentence has one of the words of a cue, in its own language."""
    english, chinese = cue
    return bool(english.search(sentence) or (not sentence.isascii() and chinese.search(sentence)))


def trim_opening(sentence: str) -> str:
    """Return a sentence without bullets, labels and the words that only lead in."""
    return _OPENING.sub("", sentence, count=1).strip()


def is_polite(sentence: str) -> bool:
    """Tell whether a sentence only keeps up manners."""
    return len(sentence) <= 60 and _POLITE.match(sentence) is not None


def is_prose(sentence: str) -> bool:
    """Tell whether a sentence is made of words: not code, not a row of a table, not a heading or a lead-in."""
    if sentence[-1:] in (":", "：") or sentence[:1] in ("|", "<", "{", "$"):
        return False
    words = len(_WORDS.findall(sentence[:400]))
    return words >= 3 and len(_SIGNS.findall(sentence[:400])) <= words


def find_words(sentence: str) -> set[str]:
    """Return the words of a sentence that carry something: pairs of characters in Chinese."""
    plain = sentence[:400].lower()
    found = {word for word in _LATIN.findall(plain) if len(word) > 2 and word not in _STOP}
    return found if plain.isascii() else found | set(_PAIR.findall(plain))
