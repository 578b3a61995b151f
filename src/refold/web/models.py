"""Which models the page's chat can talk to, for whom, and with which window.

The operator talks to what the settings and the environment name; a tenant only to what the gateway holds a key for, and
to what runs on this machine: nobody spends a key that was not meant for them. No key is ever part of a text.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from refold.agent.models import OLLAMA_URL, Chosen, Wanted, choose_chat_model, find_ollama
from refold.config.load import ChatBlock, read_block
from refold.errors import ConfigError
from refold.llm.choose import DEFAULT_MODELS
from refold.llm.openai import NAME as LOCAL_NAME
from refold.llm.openai import LocalModel, find_local_model
from refold.server.settings import ANTHROPIC, OPENAI
from refold.tokens import model_info

if TYPE_CHECKING:
    from refold.server.api.interface import Access
    from refold.server.app import Application

ROWS_MAX = 50
NAMES_MAX = 30


@dataclass(frozen=True, slots=True)
class Offer:
    """What the picker shows: names, the one that is taken by itself, and why; ``problem`` if there is none.

    ``kind`` is how it was found: key, settings, ollama or local. ``wanted`` is the one that was asked for and is not
    there, ``local`` the small one on this machine.
    """

    names: tuple[str, ...] = ()
    chosen: str = ""
    kind: str = "key"
    local: str = ""
    wanted: str = ""
    problem: str = ""


_locals: WeakKeyDictionary[Application, LocalModel] = WeakKeyDictionary()
_guard = threading.Lock()


def list_offer(access: Access, session_model: str = "") -> Offer:
    """Return what a caller can talk to; a session goes on with its own model where that can be reached.

    The tiny local model is offered in a chat of its own only: in somebody else's session it would talk nonsense.
    """
    chosen: Chosen | None = None
    problem = ""
    may_be_local = session_model in ("", LOCAL_NAME)
    for name in dict.fromkeys((session_model, "")):
        try:
            found = choose(access, name)
            if isinstance(found.model, LocalModel) and not may_be_local:
                raise ConfigError("no model is connected")
            chosen = found
            break
        except ConfigError as error:
            problem = str(error)
    own = find_own_model(access, read_chat_block(access))
    if chosen is None:
        return Offer(problem=problem, wanted=own)
    variables = list_variables(access)
    names = [chosen.model.name, own]
    names += [DEFAULT_MODELS["openai"]] if variables.get("OPENAI_API_KEY") else []
    names += [DEFAULT_MODELS["anthropic"]] if variables.get("ANTHROPIC_API_KEY") else []
    names += find_ollama()
    names += [LOCAL_NAME] if may_be_local and _find_local(access.application) is not None else []
    names += [row.model for row in access.list_rows(ROWS_MAX, 0) if _can_reach(row.model, variables)]
    listed = tuple(dict.fromkeys(name for name in names if name))[:NAMES_MAX]
    local = LOCAL_NAME if LOCAL_NAME in listed else ""
    return Offer(listed, chosen.model.name, _name_kind(chosen, own), local)


def _name_kind(chosen: Chosen, own: str) -> str:
    if isinstance(chosen.model, LocalModel):
        return "local"
    if getattr(chosen.model, "url", "").startswith(OLLAMA_URL):
        return "ollama"
    return "settings" if chosen.model.name == own else "key"


def choose(access: Access, name: str) -> Chosen:
    """Return the model of a name, or the first there is; ConfigError with one clear sentence if there is none."""
    if name == LOCAL_NAME and (local := _find_local(access.application)) is not None:
        return Chosen(local, "asked for; it runs on this machine")
    block = read_chat_block(access)
    wanted = name or find_own_model(access, block)
    told = "asked for" if name else "set as model in the settings"
    variables = list_variables(access)
    try:
        return choose_chat_model(Wanted(wanted, block.get("base_url", ""), origin=told), variables, takes_local=False)
    except ConfigError:
        local = None if wanted else _find_local(access.application)
        if local is None:
            raise
        return Chosen(local, "no key is set and no Ollama runs; the small local model is installed")


def read_chat_block(access: Access) -> dict[str, str]:
    """Return the block ``chat`` of the settings, as ``refold chat`` reads it; it is the operator's alone."""
    if access.tenant:
        return {}
    block = read_block(ChatBlock, access.manager.workspace_path)
    return {name: value for name, value in block.model_dump().items() if value}


def find_own_model(access: Access, block: Mapping[str, str]) -> str:
    """Return the model that the settings name, empty if none."""
    return block.get("model", "") or access.manager.config.model or ""


def find_window(access: Access, model: str) -> int:
    """Return the window that a model would have here."""
    own = getattr(choose(access, model).model, "window", None)
    return own if isinstance(own, int) else access.manager.config.budget(model_info(model)).window


def list_variables(access: Access) -> Mapping[str, str]:
    """Return the keys and addresses that a caller may use, by the providers' own names."""
    settings = access.application.settings
    found = {} if access.tenant else dict(access.manager.config.variables)
    if settings.openai_key and not found.get("OPENAI_API_KEY"):
        url = "" if settings.openai_upstream == OPENAI else settings.openai_upstream
        found |= {"OPENAI_API_KEY": settings.openai_key, "OPENAI_BASE_URL": url}
    if settings.anthropic_key and not found.get("ANTHROPIC_API_KEY"):
        url = "" if settings.anthropic_upstream == ANTHROPIC else settings.anthropic_upstream
        found |= {"ANTHROPIC_API_KEY": settings.anthropic_key, "ANTHROPIC_BASE_URL": url}
    return found


def _can_reach(model: str, variables: Mapping[str, str]) -> bool:
    name = "ANTHROPIC_API_KEY" if model.startswith("claude") else "OPENAI_API_KEY"
    return bool(model) and bool(variables.get(name)) and model != LOCAL_NAME


def _find_local(application: Application) -> LocalModel | None:
    """Return the small local model; the same one each time, because it loads its weights."""
    with _guard:
        known = _locals.get(application)
        if known is None and (known := find_local_model()) is not None:
            _locals[application] = known
        return known
