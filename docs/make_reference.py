"""Write reference/names.md from the code: public names, their arguments and what they do. ``make reference`` runs it.

A test compares the page with what this writes, so that the two never differ.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

import refold

# What people import, module by module; within each, what it exports.
MODULES = {
    "refold": "The library.",
    "refold.config": "Settings.",
    "refold.agent": "The agent loop.",
    "refold.testing": "For your own tests.",
    "refold.tuning": "Better settings from stored sessions.",
    "refold.plugins": "Stages and summarisers of your own.",
}
# The names of modules that have no ``__all__``.
LISTED = {
    "refold": (*refold.__all__, *refold.DOCUMENT_NAMES),
    "refold.tuning": ("KNOBS", "Figures", "Knob", "Tuning", "TuningStep", "apply", "propose", "read_stored", "watch"),
    "refold.plugins": (
        *("PREFIX", "GuardedStage", "Plugin", "find_plugins", "load_summariser", "make_stage"),
        *("register_stage", "register_summariser", "unregister"),
    ),
}
PAGE = Path(__file__).parent / "reference" / "names.md"
_CODE = re.compile(r"``([^`]+)``")


def write_page() -> str:
    """Return the page."""
    lines = ["# Names of the library", "", "Written by `make reference` from the code."]
    for module, means in MODULES.items():
        lines += ["", f"## {module}", "", means]
        loaded = importlib.import_module(module)
        for name in sorted(LISTED.get(module) or loaded.__all__, key=str.lower):
            if not name.startswith("__"):
                lines += _write_name(name, getattr(loaded, name))
    return "\n".join(lines) + "\n"


def _write_name(name: str, value: object) -> list[str]:
    if inspect.isclass(value) and issubclass(value, BaseException):
        base = value.__bases__[0].__name__
        return ["", f"### {name}", "", f"*{base}.* {_first_words(value)}"]
    if inspect.isclass(value):
        arguments = "(**settings)" if hasattr(value, "model_fields") else _write_arguments(value)
        lines = ["", f"### {name}", "", f"`{name}{arguments}`", "", _first_words(value)]
        methods = [
            f"- `{one}{_write_arguments(method)}` – {_first_words(method)}"
            for one, method in sorted(_list_methods(value))
        ]
        return [*lines, *(["", *methods] if methods else [])]
    if callable(value):
        return ["", f"### {name}", "", f"`{name}{_write_arguments(value)}`", "", _first_words(value)]
    return ["", f"### {name}", "", f"`{type(value).__name__}`"]


def _list_methods(kind: type) -> list[tuple[str, object]]:
    """Return the public methods that our own classes define; those of libraries are on their own pages."""
    found: dict[str, object] = {}
    for owner in kind.__mro__:
        if not owner.__module__.startswith("refold"):
            continue
        for name, member in vars(owner).items():
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not name.startswith(("_", "model_")) and inspect.isfunction(plain) and inspect.getdoc(plain):
                found.setdefault(name, plain)
    return list(found.items())


def _write_arguments(value: object) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    told: list[str] = []
    for one in parameters:
        if one.name in ("self", "cls") or one.name.startswith("_"):
            continue
        mark = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        is_optional = one.default is not one.empty
        told.append(f"{mark}{one.name}{'=…' if is_optional else ''}")
    return f"({', '.join(told)})"


def _first_words(value: object) -> str:
    text = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return _CODE.sub(r"`\1`", text)


if __name__ == "__main__":
    text = write_page()
    PAGE.write_text(text, encoding="utf-8")
    sys.stderr.write(f"{PAGE.name}: {text.count('### ')} names\n")
