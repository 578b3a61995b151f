"""Keys on: a tenant's page shows its own sessions, spends no key of the operator's, and changes no settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.server.auth import KeyRing
from refold.testing import ScriptedProvider
from tests.rigs.web import Browser, need_browser, serve
from tests.web.stories import leave_no_sample

need_browser()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider("Held keys answer.", key="sk-held") as made:
        yield made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, provider: ScriptedProvider) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("tenants")
    leave_no_sample(folder)
    _, key = KeyRing(folder).add("alice")
    with ContextCompressionManager(CompressionConfig(), folder) as manager:
        for name, words in (("@alice/mine", "my parrot is called Polly"), ("@bob/his", "his parrot is called Rex")):
            manager.append(name, [{"role": "user", "content": words}], format="openai-chat")
            manager.prepare_context_sync(name, None, model="gpt-5")
            manager.observe_usage(name, 1_000)
    variables = {
        "OPENAI_API_KEY": "sk-operator",
        "OPENAI_BASE_URL": provider.openai_url,
        "REFOLD_OPENAI_KEY": "sk-held",
        "REFOLD_OPENAI_UPSTREAM": provider.openai_url,
    }
    with serve(folder, **variables) as address:
        yield f"{address}/ui", key


def sign_in(browser: Browser, served: tuple[str, str], path: str) -> Any:
    url, key = served
    page = browser.open(f"{url}/login")
    page.fill("input[name=key]", key)
    page.press("input[name=key]", "Enter")
    page.wait_for_selector(".menu")
    page.goto(f"{url}{path}")
    return page


def test_recall_and_statistics_are_of_the_tenants_own_sessions(browser: Browser, served: tuple[str, str]) -> None:
    page = sign_in(browser, served, "/recall?query=parrot")
    page.wait_for_selector(".result")
    assert "Polly" in page.inner_text("main")
    assert "Rex" not in page.inner_text("main")
    page.goto(f"{served[0]}/statistics")
    page.wait_for_selector(".tiles")
    assert page.locator("table[aria-label='By session'] tbody tr").count() == 1
    page.goto(f"{served[0]}/statistics?name=%40bob%2Fhis")
    page.wait_for_selector("text=there is no session")


def test_settings_can_be_read_and_not_changed_and_name_no_paths(browser: Browser, served: tuple[str, str]) -> None:
    page = sign_in(browser, served, "/settings")
    page.wait_for_selector("text=Only the operator can change these")
    assert page.locator("[data-setting] :is(input, textarea, select, .toggle):enabled").count() == 0
    assert str(Path.home()) not in page.content()


def test_daily_pages_are_the_operators_alone(browser: Browser, served: tuple[str, str]) -> None:
    page = sign_in(browser, served, "/memory")
    page.wait_for_selector("text=only the operator sees them")


def test_a_tenants_chat_spends_the_key_that_the_gateway_holds_for_all(
    browser: Browser, served: tuple[str, str], provider: ScriptedProvider
) -> None:
    page = sign_in(browser, served, "/chat")
    page.wait_for_selector(".composer-field:enabled")
    page.fill(".composer-field", "hello")
    page.press(".composer-field", "Enter")
    page.wait_for_url("**/session?name=chat-*")
    page.wait_for_selector("text=Held keys answer.")
    assert provider.requests[-1].headers.get("Authorization", provider.requests[-1].headers.get("authorization")) == (
        "Bearer sk-held"
    )
