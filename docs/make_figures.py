"""Write the measured figures of README and docs, and their pictures, from ``figures.json``. ``make figures`` runs it.

Benchmarks put their tables into ``figures.json`` (``--figures docs/figures.json``). Between ``<!-- figures: NAME -->``
and ``<!-- /figures -->`` a page has what this script writes, in its language, and tests/docs/test_figures.py compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
IMAGES = DOCS / "images"
PAGES = (
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    DOCS / "explanation" / "how-good.md",
    DOCS / "zh" / "how-good.md",
    DOCS / "how-to" / "trial.md",
)
BLOCK = re.compile(r"(<!-- figures: (?P<name>\w+) -->\n).*?(<!-- /figures -->)", re.S)
WINDOWS = ("window 64000", "window 128000", "window 200000")
SMALL = ("tau_airline", "swe_mini", "agent_long")
COLOURS = ("#b4503c", "#3c6eb4", "#3c9664", "#8a6bb1", "#b08a2e", "#777777")
COLUMNS = ("bill ÷ raw", "whole bill ÷ raw", "copied text in view %", "far values in view %")
# What the tables call a system, in Chinese.
CHINESE = {
    "refold, `depth: generous`": "refold，`depth: generous`",
    "old results masked": "遮盖旧的工具结果",
    "older words trimmed": "任务、最新一半、旧文字剪短",
    "newest messages": "只留最新消息",
    "raw (everything, whatever the window)": "不压缩",
    "LangChain summarisation": "LangChain 摘要",
    "OpenHands condenser": "OpenHands 压缩器",
}
TRIAL = {
    "raw": ("raw, without a window", "不压缩、没有窗口"),
    "default": ("**refold** (`default`)", "**refold**（`default`）"),
    "mask": ("old results masked (`mask`)", "遮盖旧的工具结果（`mask`）"),
    "trim": ("task, newest half, older words trimmed (`trim`)", "任务、最新一半、旧文字剪短（`trim`）"),
    "chars": ("cut by characters (`chars`)", "按字符数裁剪（`chars`）"),
    "last-n": ("newest messages that fit (`last-n`)", "装得下的最新消息（`last-n`）"),
}
WRITERS = {
    "rules": ("refold", "refold"),
    "trimmed": ("older words trimmed", "旧文字剪短"),
    "clipped": ("every message clipped", "每条消息截短"),
}

Figures = Mapping[str, Any]


def read_figures() -> dict[str, Any]:
    """Return the tables by name."""
    kept = json.loads((DOCS / "figures.json").read_text(encoding="utf-8"))
    return {name: {**entry["table"], "day": entry["day"]} for name, entry in kept.items()}


def name_system(title: str, *, is_chinese: bool) -> str:
    for english, chinese in CHINESE.items() if is_chinese else ():
        title = title.replace(english, chinese)
    return title


def make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines).replace("| --- ", "|---").replace("---|---", "---|---").replace("--- |", "---|")


def compare_systems(figures: Figures, names: Sequence[str], systems: Sequence[str], *, is_chinese: bool) -> str:
    """Return one row for each system, with the cells of several tables beside each other."""
    tables = [
        {row[0]: dict(zip(figures[name]["head"], row, strict=True)) for row in figures[name]["rows"]} for name in names
    ]
    titles = [title for start in systems for title in tables[0] if title.startswith(start)]
    rows = []
    for title in titles:
        cells = [" / ".join(shorten(table[title][column]) for table in tables) for column in ("fits %", *COLUMNS)]
        rows.append([name_system(title, is_chinese=is_chinese), *cells])
    english = ["", "fits %", "bill", "whole bill", "copied text in view %", "far values in view %"]
    chinese = ["", "装得下 %", "账单", "全部账单", "抄用的文字仍可见 %", "远处的数值仍可见 %"]
    return make_table(chinese if is_chinese else english, rows)


def shorten(cell: str) -> str:
    number = cell.split(" ")[0]
    return number if number.startswith(("0.", "1.", "2.")) and len(number) == 4 else f"{float(number):.0f}"


LARGE = ("**refold**", "refold,", "LangChain", "Pydantic", "OpenHands", "old results", "newest messages")


def write_windows(figures: Figures, *, is_chinese: bool) -> str:
    return compare_systems(figures, WINDOWS, LARGE, is_chinese=is_chinese)


def write_small(figures: Figures, *, is_chinese: bool) -> str:
    return compare_systems(figures, SMALL, [LARGE[0], *LARGE[2:]], is_chinese=is_chinese)


def write_hard(figures: Figures, *, is_chinese: bool) -> str:
    return compare_systems(figures, SMALL, [LARGE[0], *LARGE[2:5]], is_chinese=is_chinese)


def write_trial(figures: Figures, *, is_chinese: bool) -> str:
    head = (
        ["压缩方法", "完成", "请求", "重复调用", "重复的行动", "账单"] if is_chinese else figures["trial"]["head"][:6]
    )
    rows = [[TRIAL[row[0]][is_chinese], *row[1:6]] for row in figures["trial"]["rows"]]
    return make_table(head, rows)


def write_story(figures: Figures, *, is_chinese: bool) -> str:
    found = read_story(figures)
    kinds = {"all": ("all", "全部"), "coding": ("English coding", "英文编程"), "zh": ("Chinese", "中文")}
    shares = list(found["rules", "all"])
    head = ["", *(f"{'窗口' if is_chinese else 'window'} {share}" for share in shares)]
    rows = [
        [f"{names[is_chinese]}: {writer[is_chinese]}", *(f"{found[by, kind].get(share, 0):.0f}" for share in shares)]
        for kind, names in kinds.items()
        for by, writer in WRITERS.items()
    ]
    return make_table(head, rows)


def read_story(figures: Figures) -> dict[tuple[str, str], dict[str, float]]:
    """Return the % of answered questions: who wrote the view and kind of session → window → %."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for where, percent in figures["story"].items():
        if where != "day":
            share, kind, by = where.split(" ", 2)
            found.setdefault((by, kind), {})[share] = percent
    return {where: dict(sorted(cells.items(), key=lambda one: int(one[0][:-1]))) for where, cells in found.items()}


WRITE: dict[str, Callable[..., str]] = {
    "windows": write_windows,
    "small": write_small,
    "hard": write_hard,
    "trial": write_trial,
    "story": write_story,
}


def fill(page: Path, figures: Figures) -> str:
    """Return a page with its blocks of figures as they should be."""
    is_chinese = "zh" in page.name or page.parent.name == "zh"
    # The site's Markdown wants empty lines around a table; a README has few lines to spare.
    gap = "" if page.parent == ROOT else "\n"

    def write(found: re.Match[str]) -> str:
        return f"{found[1]}{gap}{WRITE[found['name']](figures, is_chinese=is_chinese)}\n{gap}{found[3]}"

    return BLOCK.sub(write, page.read_text(encoding="utf-8"))


def place_text(x: float, y: float, text: str, colour: str = "#333", anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" text-anchor="{anchor}">{text}</text>'


def frame(body: Sequence[str], height: int = 340) -> str:
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="sans-serif" font-size="13">'
    )
    return "\n".join([start, f'<rect width="760" height="{height}" fill="#fff"/>', *body, "</svg>"]) + "\n"


def draw_lines(title: str, ticks: Sequence[str], lines: Mapping[str, Sequence[float]], high: float) -> str:
    """Return a chart with one line for each name, from 0 to ``high``; points are at the ticks."""

    def place(at: int, value: float) -> tuple[float, float]:
        return 60 + 400 * at / max(1, len(ticks) - 1), 290 - 240 * min(value, high) / high

    body = [place_text(60, 26, title), '<path d="M60 50V290H470" fill="none" stroke="#888"/>']
    body += [place_text(place(at, 0)[0], 310, tick, anchor="middle") for at, tick in enumerate(ticks)]
    body += [place_text(52, place(0, high * n / 4)[1] + 4, f"{high * n / 4:g}", anchor="end") for n in range(5)]
    ends = spread_out([place(0, values[-1])[1] for values in lines.values()])
    for number, ((name, values), end) in enumerate(zip(lines.items(), ends, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        points = [place(at, value) for at, value in enumerate(values)]
        path = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        body.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{3 if number == 0 else 1.5}"/>'
        )
        body += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3.5" fill="{colour}"/>' for x, y in points]
        body.append(
            place_text(475, end + 4, f"{name}: {values[-1]:.2f}" if high <= 1 else f"{name}: {values[-1]:.0f}%", colour)
        )
    return frame(body)


def spread_out(heights: Sequence[float], least: float = 17) -> list[float]:
    """Return heights that are at least so far apart, in the given order of places."""
    order = sorted(range(len(heights)), key=lambda at: heights[at])
    placed: dict[int, float] = {}
    last = 40.0
    for at in order:
        last = placed[at] = max(heights[at], last + least)
    return [placed[at] for at in range(len(heights))]


def draw_bill(figures: Figures) -> str:
    ticks = ["64k", "128k", "200k"]
    tables = [{row[0]: float(row[5]) for row in figures[name]["rows"]} for name in WINDOWS]
    titles = [title for start in LARGE[:-1] for title in tables[0] if title.startswith(start)]
    lines = {title.strip("*").replace("`", ""): [table[title] for table in tables] for title in titles}
    return draw_lines("whole bill ÷ the bill without compression, over the window", ticks, lines, 1.0)


def draw_story(figures: Figures) -> str:
    found = read_story(figures)
    lines = {writer: list(found[by, "all"].values()) for by, (writer, _) in WRITERS.items()}
    return draw_lines(
        "% of questions that the view answers, over the window ÷ session", list(found["rules", "all"]), lines, 100
    )


def draw_trial(figures: Figures) -> str:
    body = [place_text(20, 26, "tasks solved by an agent that acts on what it sees")]
    for number, row in enumerate(figures["trial"]["rows"]):
        solved, tasks = map(int, row[1].split("/"))
        y, colour = 50 + 40 * number, COLOURS[0] if row[0] == "default" else "#9aa7b5"
        name = TRIAL[row[0]][0].replace("*", "").replace("`", "")
        body.append(place_text(330, y + 19, name, anchor="end"))
        body.append(f'<rect x="340" y="{y}" width="{max(2, 340 * solved / tasks):.0f}" height="28" fill="{colour}"/>')
        body.append(place_text(350 + 340 * solved / tasks, y + 19, f"{solved} of {tasks}"))
    return frame(body, 50 + 40 * len(figures["trial"]["rows"]) + 10)


def draw_session(figures: Figures) -> str:
    """Return the tokens of every request of one recorded session, with refold and without; it draws itself once."""
    table = figures["session"]
    sizes, window = table["sizes"], table["window"]
    high, highest = max(raw for raw, _ in sizes), max(own for _, own in sizes)

    def place(at: int, tokens: float) -> str:
        return f"{60 + 640 * at / len(sizes):.1f},{290 - 230 * tokens / high:.1f}"

    level = 290 - 230 * window / high
    raws = " ".join(place(at, raw) for at, (raw, _) in enumerate(sizes))
    ours = " ".join(place(at, own) for at, (_, own) in enumerate(sizes))
    end = place(len(sizes), 0)
    body = [
        "<style>.o{clip-path:inset(0);animation:g 6s linear}@keyframes g{from{clip-path:inset(0 100% 0 0)}}"
        "@media(prefers-reduced-motion:reduce){.o{animation:none}}</style>",
        place_text(
            60, 26, f"{len(sizes)} requests of a recorded Claude Code session, in a window of {window:,} tokens"
        ),
        '<path d="M60 50V290H710" fill="none" stroke="#888"/>',
        f'<path d="M60 {level:.1f}H710" stroke="#333" stroke-dasharray="5 4"/>',
        place_text(66, level - 6, f"window {window:,}"),
        '<g class="o">',
        f'<polyline points="{raws}" fill="none" stroke="#9aa7b5" stroke-width="2"/>',
        f'<polygon points="60,290 {ours} {end}" fill="{COLOURS[0]}" fill-opacity=".35" stroke="{COLOURS[0]}"/>',
        "</g>",
        *(place_text(60 + 640 * at / len(sizes), 305, "▲", COLOURS[0], "middle") for at in table["folds"]),
        place_text(
            60, 328, f"▲ fold · grey: everything, {high:,} tokens at the end · red: refold, {highest:,} at most"
        ),
    ]
    return frame(body)


PICTURES: dict[str, Callable[[Figures], str]] = {
    "bill.svg": draw_bill,
    "story.svg": draw_story,
    "trial.svg": draw_trial,
    "session.svg": draw_session,
}


def list_outputs() -> Iterator[tuple[Path, str]]:
    """Yield every page and picture with the text that it should have."""
    figures = read_figures()
    for page in PAGES:
        yield page, fill(page, figures)
    for name, draw in PICTURES.items():
        yield IMAGES / name, draw(figures)


def main() -> None:
    for path, text in list_outputs():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
