"""The one place where the core meets IO: sessions that are stored, prepared, compressed and undone."""

from refold.manager.facade import ContextCompressionManager

__all__ = ["ContextCompressionManager"]
