"""The two ways to start, above the list of sessions: connect an agent to this gateway, or import old sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nicegui import ui

from refold.conversation import because
from refold.conversation.reason import shorten_number
from refold.llm.choose import GATEWAY
from refold.server.api.interface import Access
from refold.web.shell import choice, heading, icon_button, set_text, text, to_script, write_dollars
from refold.web.transfer import BYTES_MAX, FILES_MAX, IMPORT_PATH, FileImport, find_import
from refold.web.visit import clean, find_visit, list_words, page_link, say

if TYPE_CHECKING:
    from refold.server.app import Application

ROWS_MAX = 50
# The clients of docs/clients.md; {url} is this gateway's address.
CLIENTS = {
    "Claude Code": ("ANTHROPIC_BASE_URL={url} claude",),
    "Codex": (
        "codex -c model_provider=refold -c "
        '\'model_providers.refold={{name="refold",base_url="{url}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}\'',
    ),
    "opencode": (
        "OPENCODE_CONFIG_CONTENT="
        '\'{{"provider":{{"openai":{{"options":{{"baseURL":"{url}/v1"}}}},'
        '"anthropic":{{"options":{{"baseURL":"{url}/v1"}}}}}}}}\' opencode',
    ),
    "Qwen Code": ("OPENAI_BASE_URL={url}/v1 qwen",),
    "aider": ("OPENAI_API_BASE={url}/v1 aider", "ANTHROPIC_API_BASE={url} aider"),
    "Python": (
        'OpenAI(base_url="{url}/v1")',
        'Anthropic(base_url="{url}")',
    ),
    "*": ("export OPENAI_BASE_URL={url}/v1", "export ANTHROPIC_BASE_URL={url}"),
}


def find_connection(access: Access) -> tuple[str, float] | None:
    """Return the client and the time of the newest gateway request; None before the first one."""
    for row in access.list_rows(ROWS_MAX, 0):
        made = row.settings.get(GATEWAY)
        if isinstance(made, dict):
            return clean(str(made.get("client", "")))[:40], row.updated_at
    return None


def count_held_back(application: Application) -> int:
    """Return how many requests could not be compressed because the provider holds their earlier messages."""
    found = (
        application.metrics.registry.get_sample_value("refold_reasons_total", {"code": kind.code})
        for kind in (because.PREVIOUS_RESPONSE, because.CONVERSATION)
    )
    return int(sum(one or 0 for one in found))


class ConnectPanel:
    """Lines to copy for each client, and a light that turns green after the first request."""

    def __init__(self) -> None:
        here = ui.context.client.request.base_url
        self.url = f"{here.scheme}://{here.netloc}"
        with ui.element("section").classes("panel start-panel connect"):
            with ui.element("div").classes("row spread"):
                heading(say("start.connect"), 2)
                with ui.element("span").classes("chip light").props("role=status") as self.light:
                    self.light_label = text("span", say("start.waiting"))
            text("p", say("start.connect_why"), "soft")
            with ui.element("label").classes("row client-choice"):
                text("span", say("start.client"), "faint")
                names = {name: say("start.any") if name == "*" else name for name in CLIENTS}
                choice(names, next(iter(CLIENTS)), self._draw, "input small-choice")
            self.lines = ui.element("div").classes("stack lines")
            self.held_back = text("p", "", "warning").props("role=status")
            self.held_back.set_visibility(False)
        self._draw(next(iter(CLIENTS)))

    def _draw(self, client: str) -> None:
        self.lines.clear()
        with self.lines:
            for line in CLIENTS[client]:
                draw_copyable(line.format(url=self.url))

    def show(self, connection: tuple[str, float] | None) -> None:
        """Turn the light green after the first request; warn if requests could not be compressed."""
        source = find_visit().source
        count = 0 if source.access.tenant else count_held_back(source.application)
        set_text(self.held_back, say("start.held_back", count=count) if count else "")
        self.held_back.set_visibility(bool(count))
        if connection is None:
            return
        self.light.classes(add="good")
        client = connection[0]
        set_text(self.light_label, say("start.connected_by", client=client) if client else say("start.connected"))


def draw_copyable(line: str) -> None:
    """Draw a line of code with a button that copies it."""
    with ui.element("div").classes("copyable"):
        text("code", line, "mono")
        made = icon_button(say("shell.copy"), "copy")
        made._props["aria-label"] = f"{say('shell.copy')}: {line[:60]}"
        done = to_script(say("shell.copied"))
        made.on(
            "click",
            js_handler=f"(e) => {{ const b = e.currentTarget; navigator.clipboard.writeText({to_script(line)})"
            f".then(() => {{ b.title = {done}; b.classList.add('copied'); }}); }}",
        )


class DropPlace(ui.element, component="parts/drop.js"):
    """The area to drop files on."""

    def __init__(self) -> None:
        super().__init__()
        words = list_words(find_visit().language, "start.drop_")
        self._props.update(words=words, target=page_link(IMPORT_PATH), filesMax=FILES_MAX, bytesMax=BYTES_MAX)


class ImportPanel:
    """The panel to import old sessions and see what refold would have saved. ``on_done`` refreshes the list."""

    def __init__(self, on_done: Callable[[], Awaitable[object]]) -> None:
        self.source = find_visit().source
        self.on_done = on_done
        self.shown: FileImport | None = None
        with ui.element("section").classes("panel start-panel bring"):
            heading(say("start.bring"), 2)
            text("p", say("start.bring_why"), "soft")
            DropPlace()
            self.state = text("p", "", "faint").props("role=status")
            self.state.set_visibility(False)
        self.result = ui.element("div")

    async def look(self) -> None:
        now = find_import(self.source.application, self.source.access.tenant)
        if now is None or (now is self.shown and not now.is_running):
            return
        self.state.set_visibility(now.is_running)
        if now.is_running:
            title = clean(now.title)[:80]
            progress = say("start.playing", at=now.done + 1, count=now.total, title=title) if now.total else ""
            set_text(self.state, progress or say("start.reading"))
            return
        self.shown = now
        self.result.clear()
        with self.result:
            draw_result(now)
        await self.on_done()


def draw_result(job: FileImport) -> None:
    """Draw the result of an import: tokens and cost with and without refold, and the whole bill."""
    with ui.element("section").classes("panel brought").props("role=status"):
        if job.problem:
            text("p", say("start.failed", why=clean(job.problem)), "problem")
            return
        bill, count = job.bill, len(job.names)
        title = say("start.result_one" if count == 1 else "start.result", count=count)
        heading(title, 2)
        with ui.element("p").classes("brought-figures num"):
            if bill.tokens_raw > bill.tokens:
                sizes = {"raw": shorten_number(bill.tokens_raw), "sent": shorten_number(bill.tokens)}
                text("strong", say("start.tokens", **sizes))
                if bill.priced:
                    saved = bill.dollars_saved
                    change = say("start.less" if saved >= 0 else "start.more", dollars=write_dollars(abs(saved)))
                    text("strong", change, "good-text" if saved > 0 else "")
            else:
                text("strong", say("start.tokens_same", sent=shorten_number(bill.tokens)))
        if bill.tokens_raw == bill.tokens:
            text("p", say("start.all_small"), "soft")
        elif bill.priced:
            raw, paid, reread = bill.dollars_raw, bill.dollars, job.reread
            dollars = {"raw": raw, "paid": paid, "reread": reread, "whole": raw - paid - reread}
            text("p", say("start.whole", **{name: write_dollars(one) for name, one in dollars.items()}), "soft")
        else:
            text("p", say("start.unpriced"), "soft")
        for problem in job.problems[:5]:
            text("p", clean(problem)[:300], "faint")
