"""Regular expressions that are compiled when first used.

refold has hundreds, most of them for folding: compiling them all took a third of the time that a command needs to
start.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn", "pattern", "flags", "groups")


class _Lazy:
    """Has the methods of a compiled expression from the first time that one of them is asked for."""

    def __init__(self, text: Any, flags: int) -> None:
        self._source = (text, flags)

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
