"""Conversations that grow turn by turn, with messages of ordinary sizes, in English and in Chinese."""

import json
from collections.abc import Iterator
from typing import Any

# Nothing here refers to earlier messages: recalled text is tested elsewhere.
SENTENCES = {
    "en": "The garden needs water and some shade, and the seeds go into warm soil.",
    "zh": "花园需要浇水，也需要一些阴凉，种子要放进温暖的土里。",
}
# How often the sentence is said, message by message.
SIZES = {"short": (1,), "long": (9,), "mixed": (1, 3, 1, 12, 2, 5), "pages": (20, 80, 60, 120)}


def say(at: int, size: str, language: str) -> dict[str, str]:
    """Return message ``at`` of a conversation."""
    sentence = SENTENCES[language]
    times = SIZES[size][at % len(SIZES[size])]
    return {"role": "user" if at % 2 == 0 else "assistant", "content": f"{at}: {' '.join([sentence] * times)}"}


def grow(size: str, language: str, count: int = 320) -> Iterator[list[dict[str, str]]]:
    """Yield the whole history at each request of a conversation, as a stateless client resends it."""
    history: list[dict[str, str]] = []
    for at in range(count):
        history.append(say(at, size, language))
        if at % 2 == 0:
            yield list(history)


def work(turns: int = 4, steps: int = 25, language: str = "en") -> Iterator[list[dict[str, Any]]]:
    """Yield the history at each request of an agent that takes many steps for each message of a person."""
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        history.append({"role": "user", "content": f"Task {turn}: {SENTENCES[language]} Look at part {turn}."})
        for step in range(steps):
            yield list(history)
            name = f"beds/row_{turn}_{step}.txt"
            call = {"name": "read_file", "arguments": json.dumps({"path": name})}
            asked = [{"id": f"call_{turn}_{step}", "type": "function", "function": call}]
            history.append({"role": "assistant", "content": f"I read {name} next.", "tool_calls": asked})
            output = "\n".join(f"{line}: plot {turn}.{step}.{line} has {SENTENCES[language]}" for line in range(20))
            history.append({"role": "tool", "tool_call_id": f"call_{turn}_{step}", "content": output})
        yield list(history)
        history.append({"role": "assistant", "content": f"Part {turn} is done: {steps} rows were read."})


# What a person orders once, at these messages of ``errands``; the budget of message 90 replaces that of message 10.
ORDERS = {
    "zh": {
        4: "另外记住：楼下1202的刘阿姨有心脏病，下午一点到三点绝对不能动电钻，这条千万别忘。",
        10: "总预算是18万元，所有报价都用人民币，含税。",
        16: "以后给我的清单都用表格，别写长段落。",
        90: "预算改成19.5万元，其他不变。",
    },
    "en": {
        4: "Also remember: Mrs Liu in flat 1202 below has a heart condition, no drilling from one to three, ever.",
        10: "The total budget is 18,000 EUR, quote every price in EUR with tax.",
        16: "From now on give me lists as tables, no long paragraphs.",
        90: "The budget is now 19,500 EUR, the rest stays as it was.",
    },
}
_ROOMS = {
    "zh": ("客厅吊顶", "厨房水电", "主卧衣柜", "卫生间防水", "阳台封窗", "中央空调", "智能锁"),
    "en": (
        "the ceiling",
        "the kitchen pipes",
        "the wardrobe",
        "the bathroom",
        "the balcony",
        "the cooling",
        "the lock",
    ),
}
_ASKED = {
    "zh": (
        "{room}这块，老周报价{price}元，合理吗？",
        "{room}用哪个牌子好？我不想要太贵的。",
        "陈经理说{room}要到{month}月21号才能进场，会耽误别的吗？",
        "那就定赵姐这家吧，{room}按{price}元签。",
    ),
    "en": (
        "For {room} Joe asks {price} EUR, is that fair?",
        "Which brand is good for {room}? I do not want the most expensive one.",
        "Ms Chen can start with {room} only on {month}/21, does that delay anything?",
        "Then we take Ann, sign {room} at {price} EUR.",
    ),
}
_ANSWERED = {
    "zh": ("{price}元比市场均价高一成，可以再谈。", "建议先确认尺寸，再下单。", "合同号是HT-{number}，首付30%。"),
    "en": (
        "{price} EUR is a tenth above the market.",
        "Check the sizes first.",
        "The contract is HT-{number}, 30% first.",
    ),
}


def errands(language: str, count: int = 240) -> list[dict[str, str]]:
    """Return a chat about a renovation, with a few orders that hold until the end."""
    said = []
    for at in range(count):
        known = {
            "room": _ROOMS[language][at // 4 % 7],
            "price": 800 + at * 370 % 41_000,
            "month": 3 + at % 9,
            "number": 1000 + at * 37,
        }
        if at % 2 == 0:
            text = ORDERS[language].get(at) or _ASKED[language][at // 2 * 3 % 4].format(**known)
        else:
            text = " ".join(_ANSWERED[language][(at + turn) % 3] for turn in range(1 + at % 5)).format(**known)
        said.append({"role": ("user", "assistant")[at % 2], "content": text})
    return said
