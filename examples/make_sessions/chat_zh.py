"""The long chat in Chinese: a flat is renovated over half a year. One OpenAI chat message per line.

Topics, site diary and talk beside it are hand-written banks; this file weaves them together and adds up the bill.
Sums in recaps are computed from the same lines that the chat decided, so they always agree.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

from examples.make_sessions import chat_zh_frames as frames
from examples.make_sessions.chat_zh_deeper import CHECKLISTS, DEEPER
from examples.make_sessions.chat_zh_home import HOME, SUNDAYS, TRIP
from examples.make_sessions.chat_zh_life import ASIDES, BILL_CHANGES
from examples.make_sessions.chat_zh_notes import NOTES
from examples.make_sessions.chat_zh_rooms import ROOMS
from examples.make_sessions.chat_zh_shell import SHELL
from examples.make_sessions.chat_zh_site import CLOSING, PROBLEMS, WEATHER, WORK
from examples.make_sessions.chat_zh_topic import Topic
from examples.make_sessions.story import Story, write_facts, write_lines

SEED = 20260317
BUDGET = 280_000
ORDER = (
    "装修公司",
    "户型拆改",
    "水电改造",
    "窗户",
    "防水",
    "瓷砖",
    "空调",
    "灯光",
    "全屋定制柜",
    "净水与新风",
    "橱柜",
    "厨房电器",
    "地板",
    "墙面涂料",
    "室内门",
    "卫浴",
    "智能家居",
    "家具",
    "窗帘",
    "阳台与绿植",
    "入住与除醛",
)
DIARY_AFTER = {
    "户型拆改": ("拆改", date(2026, 3, 26)),
    "窗户": ("水电", date(2026, 4, 8)),
    "空调": ("泥瓦", date(2026, 5, 11)),
    "墙面涂料": ("油漆", date(2026, 6, 9)),
    "智能家居": ("安装", date(2026, 6, 29)),
}
RECAP_AFTER = ("防水", "灯光", "橱柜", "室内门", "智能家居", "入住与除醛")
SYSTEM = "你是一位耐心细致的家装顾问，也愿意聊生活里的其他事。回答用中文，先说结论，再说理由；数字要准确，记住用户定下的规矩。"


class Chat(Story):
    """The story as the two tell it."""

    def __init__(self) -> None:
        super().__init__(SEED)
        self.bill: list[tuple[str, str, int]] = []
        self.decided: list[str] = []
        self.decks: dict[str, list[str]] = {}
        self.add({"role": "system", "content": SYSTEM})

    def user(self, text: str) -> None:
        self.add({"role": "user", "content": text})

    def reply(self, text: str) -> None:
        self.add({"role": "assistant", "content": text})

    def pick(self, name: str, bank: tuple[str, ...]) -> str:
        """A phrase of a bank; none comes twice before all have come once."""
        deck = self.decks.setdefault(name, [])
        if not deck:
            deck.extend(bank)
            self.rng.shuffle(deck)
        return deck.pop()

    def take(self, name: str, bank: tuple[str, ...]) -> str:
        """The next phrase of a bank whose order tells a story."""
        deck = self.decks.setdefault(name, list(reversed(bank)))
        return deck.pop()


def tell_topic(chat: Chat, topic: Topic) -> None:
    """Ask, compare, doubt, decide."""
    chat.user(topic.opens)
    opening = len(chat.messages) - 1
    chat.reply(
        frames.give_tips(topic, chat.pick("tips", frames.TIPS_LEAD), chat.pick("ask", frames.ASK_BACK), chat.rng)
    )
    chat.user(frames.name_offers(topic, chat.pick("offers", frames.OFFERS_LEAD), chat.pick("plea", frames.PLEAS)))
    style = len(chat.decided)
    chat.reply(frames.compare(topic, style, chat.pick("compare", frames.COMPARE_LEAD)))
    chat.user(topic.question)
    chat.reply(topic.answer + chat.pick("after", frames.AFTER_ANSWER))
    for role, text in DEEPER.get(topic.name, ()):
        chat.add({"role": role, "content": text})
    chat.user(topic.decides)
    decision = len(chat.messages) - 1
    for question, answer, why in topic.facts:
        chat.remember(question, answer, why, decision if answer in topic.decides else opening)
    chat.bill.extend(topic.lines)
    chat.decided.append(topic.name)
    chat.reply(topic.noted + chat.pick("noted", frames.NOTED_END))


def tell_diary(chat: Chat, phase: str, first: date) -> None:
    """A week of the foreman's reports, pasted by the user, and what to do about the troubles."""
    days = []
    at = first
    works = list(WORK[phase])
    troubles = list(PROBLEMS[phase])
    for number in range(8):
        while at.weekday() >= 5:  # The user forbade work at weekends.
            at += timedelta(days=1)
        weather = (
            f"{chat.pick('weather', WEATHER)}，湿度{chat.rng.randrange(48, 92)}%，到场{chat.rng.randrange(1, 5)}人"
        )
        line = f"【{at.month}月{at.day}日】{weather}。{works[number]}。"
        if number % 2:
            line += f"问题：{troubles[number // 2][0]}。"
        days.append(line + chat.pick("closing", CLOSING))
        at += timedelta(days=1)
    chat.user(chat.take("diary", frames.DIARY_LEAD) + "\n" + "\n".join(days))
    advice = "\n".join(f"{number}. {what}：{how}" for number, (what, how) in enumerate(troubles, 1))
    chat.reply(
        chat.pick("diary_reply", frames.DIARY_REPLY) + "\n" + advice + "\n" + chat.pick("diary_end", frames.DIARY_END)
    )
    if phase in CHECKLISTS:
        chat.user(chat.take("checklist", frames.CHECKLIST_ASK))
        chat.reply(CHECKLISTS[phase])


def tell_recap(chat: Chat) -> None:
    """The bill so far."""
    chat.user(chat.take("recap", frames.RECAP_ASK))
    rows = "\n".join(f"| {name} | {unit} | {amount} |" for name, unit, amount in chat.bill)
    total = sum(amount for _, _, amount in chat.bill)
    chat.reply(
        f"{chat.take('recap_lead', frames.RECAP_LEAD)}\n\n| 项目 | 单位 | 金额（元） |\n|---|---|---|\n{rows}\n\n"
        f"合计{total}元，离28万的上限还有{BUDGET - total}元。{chat.take('recap_end', frames.RECAP_END)}"
    )


def tell_aside(chat: Chat, name: str) -> None:
    """Something else than the renovation, or a decision that changes."""
    chat.bill.extend(BILL_CHANGES.get(name, ()))
    for role, text, facts in ASIDES[name]:
        chat.add({"role": role, "content": text})
        for question, answer, why in facts:
            chat.remember(question, answer, why)


def write_session(folder: Path) -> None:
    """Write the session and its facts into ``folder``."""
    chat = Chat()
    topics = {topic.name: topic for topic in (*SHELL, *ROOMS, *HOME)}
    for name in ORDER:
        tell_topic(chat, topics[name])
        for role, text in NOTES.get(name, ()):
            chat.add({"role": role, "content": text})
        if name in DIARY_AFTER:
            tell_diary(chat, *DIARY_AFTER[name])
        if name in ASIDES:
            tell_aside(chat, name)
        if name in RECAP_AFTER:
            tell_recap(chat)
        if name in SUNDAYS:
            said, answered = SUNDAYS[name]
            chat.user(said)
            chat.reply(answered)
    for role, text in (*TRIP, *frames.FINALE):
        chat.add({"role": role, "content": text})
        if "ZH-61027" in text and role == "user":
            chat.remember("客栈的确认号是多少？", "ZH-61027", "入住时要报")
    write_lines(folder / "chat_zh.jsonl", chat.messages)
    write_facts(folder / "chat_zh.facts.json", chat.facts)
