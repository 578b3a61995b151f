"""refold keeps a long conversation inside the model's window, and loses nothing.

This file is the product's surface: public names, each loaded when first used. It must never do work of its own:
``import refold`` reads no file, no environment and no library outside the standard one.
"""

# Type checkers take this for true; importing ``typing`` for it would be the larger half of ``import refold``.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from refold.compressing import CompactOptions, ContextCompactor, compress
    from refold.compressor import CompressionResult, ContextCompressor
    from refold.config import CompressionConfig
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
    from refold.integrations.wrap import wrap
    from refold.manager import ContextCompressionManager
    from refold.manager.compress import CompactResult
    from refold.manager.managed import ManagedSession
    from refold.memory import ContextSummary, MarkdownSync
    from refold.prepared import PreparedContext
    from refold.stages.score import MessageImportance
    from refold.tokens import TokenCounter

__version__ = "0.1.0"

__all__ = [
    "BudgetTooSmall",
    "ChangeRefused",
    "Codec",
    "CompactOptions",
    "CompactResult",
    "CompressionConfig",
    "CompressionResult",
    "ConfigError",
    "ContextCompactor",
    "ContextCompressionManager",
    "ContextCompressor",
    "ContextOverflow",
    "ContextSummary",
    "FormatError",
    "HandleUnknown",
    "LawBroken",
    "LedgerError",
    "ManagedSession",
    "MarkdownSync",
    "MessageImportance",
    "MessageSource",
    "PreparedContext",
    "ProviderError",
    "RateLimited",
    "RefoldError",
    "SessionBusy",
    "SessionNotFound",
    "TokenCounter",
    "Unavailable",
    "__version__",
    "compress",
    "wrap",
]

# Where each public name lives that is not an error. A name joins this table, the imports above and __all__ together; a
# test compares them.
_HOMES = {
    "Codec": "refold.formats",
    "CompactOptions": "refold.compressing",
    "CompactResult": "refold.manager.compress",
    "CompressionConfig": "refold.config",
    "CompressionResult": "refold.compressor",
    "ContextCompactor": "refold.compressing",
    "ContextCompressionManager": "refold.manager",
    "ContextCompressor": "refold.compressor",
    "ContextSummary": "refold.memory",
    "ManagedSession": "refold.manager.managed",
    "MarkdownSync": "refold.memory",
    "MessageSource": "refold.formats",
    "MessageImportance": "refold.stages.score",
    "PreparedContext": "refold.prepared",
    "TokenCounter": "refold.tokens",
    "compress": "refold.compressing",
    "wrap": "refold.integrations.wrap",
}

if not TYPE_CHECKING:  # Else a type checker would accept any name at all.

    def __getattr__(name: str) -> object:
        """Load a public name from its module the first time it is asked for."""
        if name not in __all__:
            raise AttributeError(f"module 'refold' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_HOMES.get(name, "refold.errors")), name)
        globals()[name] = value  # The next access does not come here again.
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
