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
    """Compiles the expression, and takes over its methods, when one of them is first used."""

    made: ClassVar[deque[_Lazy]] = deque()

    def __init__(self, text: Any, flags: int) -> None:
        self._source = (text, flags)
        self.made.append(self)

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(*self._source)
        # From then on, a call costs no more than on the compiled expression itself.
        vars(self).update({one: getattr(compiled, one) for one in _METHODS})
        return getattr(compiled, name)


def lazy_regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern like ``re.compile``, for modules that are imported more often than used. Not for ``re.sub``."""
    return cast("re.Pattern[AnyStr]", _Lazy(text, flags))


def compile_all() -> None:
    """Compile the expressions of all imported modules, so that no request has to."""
    for one in tuple(_Lazy.made):
        _ = one.pattern
