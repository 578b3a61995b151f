"""refold keeps a long conversation inside the model's window, and loses nothing.

This file is the product's surface: public names, each loaded when first used. It must never do work of its own:
``import refold`` reads no file, no environment and no library outside the standard one.
"""

# Type checkers take this for true; importing ``typing`` for it would be the larger half of ``import refold``.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from refold.compressing import compress
    from refold.config import CompressionConfig
    from refold.designs.compactor import CompactOptions as CompactOptions
    from refold.designs.compactor import ContextCompactor as ContextCompactor
    from refold.designs.compressor import CompressionResult as CompressionResult
    from refold.designs.compressor import ContextCompressor as ContextCompressor
    from refold.errors import (
        BudgetTooSmall,
        ChangeRefused,
        ConfigError,
        ContextOverflow,
        FormatError,
        HandleUnknown,
        LawBroken,
        LedgerError,
        ProviderError,
        RateLimited,
        RefoldError,
        SessionBusy,
        SessionNotFound,
        Unavailable,
    )
    from refold.formats import Codec, MessageSource
    from refold.integrations import Session
    from refold.integrations.wrap import wrap
    from refold.ledger.records import ContextSummary as ContextSummary
    from refold.manager import ContextCompressionManager
    from refold.manager.compress import CompactResult as CompactResult
    from refold.manager.managed import ManagedSession
    from refold.memory import MarkdownSync as MarkdownSync
    from refold.prepared import PreparedContext
    from refold.stages.score import MessageImportance as MessageImportance
    from refold.tokens import TokenCounter as TokenCounter

__version__ = "0.1.0"

__all__ = [
    "BudgetTooSmall",
    "ChangeRefused",
    "Codec",
    "CompressionConfig",
    "ConfigError",
    "ContextCompressionManager",
    "ContextOverflow",
    "FormatError",
    "HandleUnknown",
    "LawBroken",
    "LedgerError",
    "ManagedSession",
    "MessageSource",
    "PreparedContext",
    "ProviderError",
    "RateLimited",
    "RefoldError",
    "Session",
    "SessionBusy",
    "SessionNotFound",
    "Unavailable",
    "__version__",
    "compress",
    "wrap",
]

# Where each public name lives that is not an error. A name joins this table, the imports above and __all__ together; a
# test compares them.
_HOMES = {
    "Codec": "refold.formats",
    "CompressionConfig": "refold.config",
    "ContextCompressionManager": "refold.manager",
    "ManagedSession": "refold.manager.managed",
    "MessageSource": "refold.formats",
    "PreparedContext": "refold.prepared",
    "Session": "refold.integrations",
    "compress": "refold.compressing",
    "wrap": "refold.integrations.wrap",
}
# Names that five design documents use, for those who hold one: not listed in __all__.
DOCUMENT_NAMES = {
    "CompactOptions": "refold.designs.compactor",
    "CompactResult": "refold.manager.compress",
    "CompressionResult": "refold.designs.compressor",
    "ContextCompactor": "refold.designs.compactor",
    "ContextCompressor": "refold.designs.compressor",
    "ContextSummary": "refold.ledger.records",
    "MarkdownSync": "refold.memory",
    "MessageImportance": "refold.stages.score",
    "TokenCounter": "refold.tokens",
}

if not TYPE_CHECKING:  # Else a type checker would accept any name at all.

    def __getattr__(name: str) -> object:
        """Load a public name from its module the first time it is asked for."""
        if name not in __all__ and name not in DOCUMENT_NAMES:
            raise AttributeError(f"module 'refold' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module({**_HOMES, **DOCUMENT_NAMES}.get(name, "refold.errors")), name)
        globals()[name] = value  # The next access does not come here again.
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *DOCUMENT_NAMES})
