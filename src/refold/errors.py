"""Every error refold raises, split by who must act.

    RefoldError
    ├── ConfigError          the operator: a setting is wrong, unknown or contradicts another
    ├── FormatError          the client: the input is not a conversation we can read
    ├── BudgetTooSmall       the client: what may not shrink (system, tools, newest user message) fills the budget
    ├── HandleUnknown        the client: there is no original behind this handle
    ├── ProviderError        the model's provider
    │   ├── ContextOverflow      the request was too long: compress and try again
    │   ├── RateLimited          wait, then try again
    │   └── Unavailable          time-out, connection lost, 5xx: try again
    ├── LedgerError          the operator: the durable record cannot be read or written; stop
    │   ├── SessionNotFound      the client: the ledger has no session of this id
    │   ├── SessionBusy          other processes keep changing or holding the session: try again
    │   └── ChangeRefused        the ledger refuses a change although the session is unchanged: verify it
    └── LawBroken            us: a law of the engine does not hold

Each class carries the exit code of the command line and the status of the HTTP interface.
A message says what is wrong, where, and what to do next. It never contains a credential. An
error keeps its template and values as a ``Sentence``, so that faces can show it in another language.
"""

from __future__ import annotations

from typing import ClassVar


class Sentence(str):
    """An English sentence that keeps its template and values, so that a face can show it in another language."""

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, /, **values: object) -> Sentence:
        made = super().__new__(cls, template.format(**values) if values else template)
        made.template, made.values = template, values
        return made


class RefoldError(Exception):
    """The root of all errors that refold raises on purpose; ``values`` fill the placeholders of ``message``."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: object = "", /, **values: object) -> None:
        super().__init__(Sentence(str(message), **values) if values else message)

    @property
    def values(self) -> dict[str, object]:
        """The values that fill the placeholders of the message."""
        message = self.args[0] if self.args else ""
        return message.values if isinstance(message, Sentence) else {}


def find_sentence(error: BaseException) -> str:
    """Return the message of an error; a ``Sentence`` stays one."""
    return error.args[0] if error.args and isinstance(error.args[0], str) else str(error)


class ConfigError(RefoldError):
    """A setting is wrong, unknown, or contradicts another one."""

    exit_code = 3
    http_status = 422


class FormatError(RefoldError):
    """The input is not a conversation that refold can read."""

    exit_code = 4
    http_status = 400


class BudgetTooSmall(RefoldError):
    """Content that may not shrink exceeds the budget: ``parts`` names it, ``tokens`` is the smallest context."""

    exit_code = 5
    http_status = 413

    def __init__(self, message: str, *, budget: int = 0, parts: dict[str, int] | None = None, tokens: int = 0) -> None:
        super().__init__(message)
        self.budget = budget
        self.tokens = tokens
        self.parts = dict(parts or {})


class HandleUnknown(RefoldError):
    """There is no original behind this handle; asking again will not change that."""

    exit_code = 6
    http_status = 404


class ProviderError(RefoldError):
    """The model's provider refused or failed; ``retry_after_s`` says when to try again, if the provider said so."""

    exit_code = 7
    http_status = 502

    def __init__(self, message: object = "", /, *, retry_after_s: float | None = None, **values: object) -> None:
        super().__init__(message, **values)
        self.retry_after_s = retry_after_s


class ContextOverflow(ProviderError):
    """The provider says that the request does not fit its window; ``tokens_max`` is the limit, if stated.

    ``counts_output``: the room reserved for the answer counts towards that limit. ``is_quoted``: the request contains
    the same wording, so it proves nothing about the window. ``is_quota``: the limit is what an account may send in a
    minute, which changes with its plan.
    """

    def __init__(
        self,
        message: str,
        /,
        *,
        tokens_max: int | None = None,
        counts_output: bool = False,
        is_quoted: bool = False,
        is_quota: bool = False,
        **values: object,
    ) -> None:
        super().__init__(message, retry_after_s=None, **values)
        self.tokens_max = tokens_max
        self.counts_output = counts_output
        self.is_quoted = is_quoted
        self.is_quota = is_quota


class RateLimited(ProviderError):
    """The provider asks us to wait."""

    http_status = 429


class Unavailable(ProviderError):
    """The provider did not answer, or cannot now."""

    http_status = 503


class LedgerError(RefoldError):
    """The durable record cannot be read or written."""

    exit_code = 8
    http_status = 503


class SessionNotFound(LedgerError):
    """The ledger has no session of this id: it was never opened, or it was deleted."""

    http_status = 404

    def __init__(self, session_id: str) -> None:
        if isinstance(session_id, Sentence):  # A copy is made from the sentence.
            super().__init__(session_id)
            return
        super().__init__(
            "there is no session {session!r}; 'refold sessions' lists all sessions", session=session_id[:80]
        )


class SessionBusy(LedgerError):
    """Other processes changed or held the session for as long as we may wait; try again later."""


class ChangeRefused(LedgerError):
    """The ledger refuses a change although nothing else changed the session; trying again will not help."""

    http_status = 500  # Clients repeat a request that was answered with 503.


class LawBroken(RefoldError):
    """A law of the engine does not hold: a bug of ours, never the caller's."""

    exit_code = 70

    def __init__(self, law: str, message: str) -> None:
        super().__init__(f"{law}: {message}")
        self.law = law
