"""Sessions that are stored, prepared, compressed and undone: the one place where the core meets IO."""

from refold.manager.manager import ContextCompressionManager

__all__ = ["ContextCompressionManager"]
