"""Regular expressions that are compiled when first used.

refold has hundreds, most of them for folding: compiling them all took a third of the time that a command needs to
start. A process that will fold, such as the gateway, compiles them before it is ready.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, AnyStr, ClassVar, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn", "pattern", "flags", "groups")


class _Lazy:
    """Has the methods of a compiled expression from the first time that one of them is asked for."""

    made: ClassVar[deque[_Lazy]] = deque()

    def __init__(self, text: Any, flags: int) -> None:
        self._source = (text, flags)
        self.made.append(self)

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(*self._source)
        # A method that is called often costs no more than that of the expression itself.
        vars(self).update({one: getattr(compiled, one) for one in _METHODS})
        return getattr(compiled, name)


def lazy_regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what ``re.compile`` does, for modules that are imported more often than used; ``re.sub`` refuses it."""
    return cast("re.Pattern[AnyStr]", _Lazy(text, flags))


def compile_all() -> None:
    """Compile the expressions of all modules that are imported, so that none is compiled in a request."""
    for one in tuple(_Lazy.made):
        _ = one.pattern
