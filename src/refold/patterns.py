"""Regular expressions that are compiled when first used.

Compiling all took a third of the time that a command needs to start. A gateway compiles them before it is ready.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any, AnyStr, ClassVar, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn", "pattern", "flags", "groups")


class _Lazy:
    """Compiles the expression, and takes over its methods, when one of them is first used."""

    made: ClassVar[deque[_Lazy]] = deque()

    def __init__(self, text: Any, flags: int) -> None:
        self._source = (text, flags)
        self.made.append(self)

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        text, flags = self._source
        compiled = re.compile(text() if callable(text) else text, flags)
        vars(self).update({one: getattr(compiled, one) for one in _METHODS})
        return getattr(compiled, name)


def lazy_regex(text: AnyStr | Callable[[], AnyStr], flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern like ``re.compile``, of a text or a function that returns it later. Not for ``re.sub``."""
    return cast("re.Pattern[AnyStr]", _Lazy(text, flags))


def compile_all() -> None:
    """Compile the expressions of all imported modules, so that no request has to."""
    for one in tuple(_Lazy.made):
        _ = one.pattern
