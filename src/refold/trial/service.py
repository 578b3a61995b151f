"""Tasks on services, in English and Chinese: detective work over large logs, bookings with money, and a long chat."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

from refold.trial.task import Filler, Move, PlayedReply, TrialTask, TrialTool, TrialTurn, World, give

SYSTEM = "You help a person with the tools you have. Do what is asked, exactly, and then answer briefly."
SYSTEM_ZH = "你用手头的工具帮助用户。严格照要求做，然后简短回答。"
_NAMES = ("Ines Prado", "Tomas Lund", "Aiko Mori", "Petra Novak", "Omar Haddad", "Lena Vogel")
_NAMES_ZH = ("王小梅", "李建国", "陈思远", "赵一鸣", "孙若兰", "周子墨")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
SHARDS = 14
_DETECTIVE_ZH = (
    "请读取 shard-01 到 shard-14 的日志（read_log），记下每个分片 E17 错误的数量。再从 incident 查到主机，"
    "从主机查到负责单位，从负责单位查到访问代码。最后按“分片=数量”列出全部分片、总数和访问代码。"
)
_DETECTIVE = (
    "Read the logs shard-01 to shard-14 with read_log and note how many errors E17 each has. Then follow the "
    "trail: the entry incident names a host, the host's entry its owner, the owner's entry an access code. At the "
    "end list every shard as shard=count, the sum, and the access code."
)


def _code(dice: random.Random, start: str) -> str:
    return start + "".join(dice.choices(_LETTERS, k=6))


def make_detective(seed: int, tokens: int, *, is_chinese: bool = False) -> TrialTask:
    """Make a task: count errors in many shards and follow a trail; the answer needs every value that was found."""
    dice = random.Random(seed)
    shards = {f"shard-{number:02d}": dice.randint(3, 240) for number in range(1, SHARDS + 1)}
    host, owner, code = f"node-{dice.randint(100, 999)}", f"unit-{dice.randint(10, 99)}", _code(dice, "K-")
    told = "错误 E17 共" if is_chinese else "errors E17 in all:"
    trail = {
        "incident": f"incident host: {host}",
        host: f"{host} owner: {owner}",
        owner: f"{owner} access code: {code}",
    }

    def build() -> tuple[World, Callable[[], list[str]]]:
        filler = Filler(seed, tokens, is_chinese=is_chinese)
        shown = {name: filler.around(f"{name} {told} {count}") for name, count in shards.items()}
        shown |= {name: filler.around(line) for name, line in trail.items()}
        world = World()
        world.tools = [
            TrialTool(
                "read_log", "Return a log or an entry by its name.", ("name",), lambda name: shown.get(name, "nothing")
            )
        ]

        def check() -> list[str]:
            said = " ".join(world.answers)
            wanted = [*(f"{name}={count}" for name, count in shards.items()), code, str(sum(shards.values()))]
            return [f"the answer lacks {one}" for one in wanted if one not in said]

        return world, check

    needs = {name: re.compile(rf"{name} {told} (\d+)") for name in shards}
    needs |= {"code": re.compile(rf"{owner} access code: (K-\w+)")}
    lookups = tuple(Move(f"read {name}", "read_log", give(name=name)) for name in shards)
    lookups += (
        Move("read the owner", "read_log", lambda facts: {"name": facts["owner"]},
             needs={"owner": re.compile(rf"{host} owner: (unit-\d+)")}, sources={"owner": "read the host"}),
        Move("read the host", "read_log", lambda facts: {"name": facts["host"]},
             needs={"host": re.compile(r"incident host: (node-\d+)")}, sources={"host": "read the incident"}),
        Move("read the incident", "read_log", give(name="incident")),
    )  # fmt: skip
    reply = PlayedReply(
        lambda facts: (
            ", ".join(f"{name}={facts[name]}" for name in shards)
            + f"; {sum(int(facts[name]) for name in shards)}; {facts['code']}"
        ),
        needs=needs,
        sources={**{name: f"read {name}" for name in shards}, "code": "read the owner"},
    )
    asked = _DETECTIVE_ZH if is_chinese else _DETECTIVE
    name = f"detective-zh-{seed}" if is_chinese else f"detective-{seed}"
    system = SYSTEM_ZH if is_chinese else SYSTEM
    return TrialTask(
        name, "detective", system, (TrialTurn(asked, reply, (), lookups),), build, is_talkative=seed % 2 == 0
    )


class _Airline(World):
    """Books and takes money. Nothing that it does can be undone, and it does not say what was paid."""

    def __init__(self, offers: dict[str, str], fares: dict[str, str], ids: dict[str, tuple[str, str]]) -> None:
        super().__init__()
        self.fares, self.ids, self.flights = fares, ids, dict[str, str]()
        self.tools = [
            TrialTool("search_flights", "Return all flights for a passenger.", ("passenger",),
                 lambda passenger: offers.get(passenger, "no such passenger")),
            TrialTool("book_flight", "Book a flight, for good.", ("passenger", "flight"), self._book),
            TrialTool("pay", "Pay for a reservation, for good.", ("reservation_id", "amount"), self._pay),
            TrialTool("get_reservation", "Return a reservation.", ("reservation_id",), self._show),
        ]  # fmt: skip

    def _book(self, passenger: str, flight: str) -> str:
        if passenger not in self.ids or flight not in self.fares:
            return "error: unknown passenger or flight"
        self.acts.append(f"book {passenger}")
        self.flights.setdefault(passenger, flight)
        return self._show(self.ids[passenger][0])

    def _show(self, reservation_id: str) -> str:
        passenger = next((name for name, (one, _) in self.ids.items() if one == reservation_id), "")
        flight = self.flights.get(passenger, "")
        if not flight:
            return "error: no such reservation"
        shown = {"status": "booked", "reservation_id": reservation_id, "passenger": passenger, "flight": flight}
        return json.dumps({**shown, "amount": self.fares[flight], "currency": "EUR"}, ensure_ascii=False)

    def _pay(self, reservation_id: str, amount: str) -> str:
        payment = next((one for found, one in self.ids.values() if found == reservation_id), "")
        if not payment:
            return "error: no such reservation"
        self.acts.append(f"pay {reservation_id}")
        return json.dumps({"status": "paid", "payment_id": payment, "reservation_id": reservation_id, "amount": amount})


def make_booking(seed: int, tokens: int, *, is_chinese: bool = False) -> TrialTask:
    """Make a task: book and pay flights for six people under a policy, each exactly once."""
    dice = random.Random(seed)
    names = _NAMES_ZH if is_chinese else _NAMES
    early = {name: f"EX{dice.randint(100, 499)}" for name in names}
    late = {name: f"TP{dice.randint(500, 999)}" for name in names}
    fares = {flight: f"{dice.randint(90, 400)}.{dice.randint(10, 99)}" for flight in (*early.values(), *late.values())}
    ids = {name: (_code(dice, "R-"), _code(dice, "P-")) for name in names}

    def build() -> tuple[World, Callable[[], list[str]]]:
        filler = Filler(seed, tokens, is_chinese=is_chinese)
        offers = {
            name: filler.around(f"{name} cheapest of all: {early[name]}", f"{name} cheapest after 9:00: {late[name]}")
            for name in names
        }
        world = _Airline(offers, fares, ids)

        def check() -> list[str]:
            wrong = [f"{name} leaves before 9:00" for name in names if world.flights.get(name) == early[name]]
            wrong += [f"{name} is not booked" for name in names if name not in world.flights]
            wrong += [f"{name} has not paid" for name in names if f"pay {ids[name][0]}" not in world.acts]
            wrong += ["something was booked or paid twice"] if world.count_repeated_acts() else []
            said = " ".join(world.answers)
            return wrong + [f"the answer lacks {ids[name][1]}" for name in names if ids[name][1] not in said]

        return world, check

    moves = tuple(move for name in names for move in _book_and_pay(name, *ids[name]))
    lookups = tuple(Move(f"search for {name}", "search_flights", give(passenger=name)) for name in names) + tuple(
        Move(f"look up {ids[name][0]}", "get_reservation", give(reservation_id=ids[name][0])) for name in names
    )
    reply = PlayedReply(
        lambda facts: ", ".join(facts.values()), rules={one: re.compile(rf"\b({one})\b") for _, one in ids.values()}
    )
    listed = ("、" if is_chinese else ", ").join(names)
    first = (
        "公司规定：任何人都不坐 9:00 之前的航班，一直有效。先搜索一下王小梅的航班，告诉我你看到了。"
        if is_chinese
        else f"Company policy, for good: nobody takes a flight before 9:00. First search flights for {names[0]} and "
        "tell me that you saw them."
    )
    second = (
        f"请为以下每个人搜索航班，按规定预订最便宜的一班并立即付款，每人只订一次、只付一次：{listed}。最后列出所有付款编号。"
        if is_chinese
        else f"For each of these, search flights, book the cheapest one that our policy allows, and pay for it at "
        f"once, each exactly once: {listed}. At the end list all payment ids."
    )
    look = Move("search", "search_flights", give(passenger=names[0]), re.compile(f"{names[0]} cheapest"))
    seen = PlayedReply(lambda _: "看到了。" if is_chinese else "I saw them.")
    turns = (TrialTurn(first, seen, (look,)), TrialTurn(second, reply, moves, lookups))
    name = f"booking-zh-{seed}" if is_chinese else f"booking-{seed}"
    system = SYSTEM_ZH if is_chinese else SYSTEM
    return TrialTask(name, "booking", system, turns, build, is_talkative=seed % 2 == 0)


def _book_and_pay(name: str, reservation: str, payment: str) -> tuple[Move, Move]:
    book = Move(
        f"book for {name}",
        "book_flight",
        lambda facts: {"passenger": name, "flight": facts["late"] if facts["policy"] else facts["early"]},
        re.compile(reservation),
        {
            "early": re.compile(rf"{name} cheapest of all: (\w+)"),
            "late": re.compile(rf"{name} cheapest after 9:00: (\w+)"),
        },
        {"early": f"search for {name}", "late": f"search for {name}"},
        {"policy": re.compile(r"(nobody takes a flight before 9:00|不坐 9:00 之前的航班)")},
    )
    amount = re.compile(rf"{reservation}[^\n]{{0,200}}?amount\W{{1,6}}(\d+\.\d\d)")
    pay = Move(
        f"pay {reservation}",
        "pay",
        lambda facts: {"reservation_id": reservation, "amount": facts["amount"]},
        re.compile(payment),
        {"amount": amount},
        {"amount": f"look up {reservation}"},
    )
    return book, pay


def make_chat(seed: int, tokens: int, *, is_chinese: bool = False) -> TrialTask:
    """Make a task: a long chat with standing wishes, one of which changes; the last answer needs them all."""
    dice = random.Random(seed)
    figures = [dice.randint(1_000, 9_999) for _ in range(12)]
    code, table = f"{dice.choice('ABCDEF')}{dice.randint(10, 99)}", dice.randint(2, 40)
    zh = is_chinese
    wishes = (
        ["以后所有价格都用挪威克朗表示。", f"请一直称呼我为“奥讷博士 {code}”。",
         "我对坚果过敏，给我推荐吃的时一定要提“不含坚果”。",
         "更正一下：以后所有价格都用欧元表示。", f"我们订的是 {table} 号桌。"]
        if zh
        else ["From now on give all prices in Norwegian kroner.", f"Please always address me as Dr. Aune {code}.",
              "I am allergic to nuts: whenever you suggest food, always say nut-free.",
              "Correction: from now on give all prices in euros instead.", f"By the way, our table is number {table}."]
    )  # fmt: skip
    patterns = {
        "currency": re.compile(
            r"所有价格都用(挪威克朗|欧元)" if zh else r"give all prices in (Norwegian kroner|euros)"
        ),
        "name": re.compile(r"称呼我为“([^”]+)”" if zh else r"address me as (Dr\. Aune \w+)"),
        "food": re.compile(r"“(不含坚果)”" if zh else r"always say (nut-free)"),
        "table": re.compile(r"订的是 (\d+) 号桌" if zh else r"our table is number (\d+)"),
    }
    filler = Filler(seed, tokens, is_chinese=zh)
    turns: list[TrialTurn] = []
    for number, figure in enumerate(figures):
        line = f"第 {number} 号报告的总数是 {figure}。" if zh else f"The total of report {number} is {figure}."
        ask = "这份报告的总数是多少？" if zh else "What is the total of this report?"
        wish = wishes[number // 2] if number % 2 == 0 and number // 2 < len(wishes) else ""
        found = re.compile(rf"第 {number} 号报告的总数是 (\d+)" if zh else rf"total of report {number} is (\d+)")
        reply = PlayedReply(lambda facts: facts["total"] or "?", rules={"total": found})
        turns.append(TrialTurn("\n".join(one for one in (wish, filler.around(line), ask) if one), reply))
    last = (
        "最后，请给我写晚餐的邀请：称呼我，写明桌号，推荐一道菜，写出价格的货币。" if zh
        else "Last, write my dinner invitation: address me, name the table, suggest a dish, and name the currency."
    )  # fmt: skip
    turns.append(TrialTurn(last, PlayedReply(lambda facts: " / ".join(facts.values()), rules=patterns)))

    def build() -> tuple[World, Callable[[], list[str]]]:
        world = World()

        def check() -> list[str]:
            said = world.answers[-1] if len(world.answers) == len(turns) else ""
            wanted = ["欧元", f"奥讷博士 {code}", "不含坚果"] if zh else ["euros", f"Dr. Aune {code}", "nut-free"]
            wrong = [f"the invitation lacks {one}" for one in (*wanted, str(table)) if one not in said]
            return wrong + [
                f"total {figure} is missing" for figure in figures if str(figure) not in " ".join(world.answers)
            ]

        return world, check

    name = f"chat-zh-{seed}" if zh else f"chat-{seed}"
    return TrialTask(name, "chat", SYSTEM_ZH if zh else SYSTEM, tuple(turns), build)
