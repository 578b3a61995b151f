"""For your own tests: what providers refuse, conversations in any format, and scripted models."""

from refold.testing.provider_rules import find_violations

__all__ = ["find_violations"]
