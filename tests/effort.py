"""How many examples a property test tries: few in ``make test``, all of them in ``make test-all``."""

from hypothesis import settings

QUICK = "quick"
QUICK_EXAMPLES = 20


def is_quick() -> bool:
    return settings.get_current_profile_name() == QUICK


def up_to(full: int, *, quick: int = QUICK_EXAMPLES) -> int:
    """Return the value for ``max_examples``: ``full``, or at most ``quick`` when the quick profile is loaded."""
    return min(full, quick) if is_quick() else full
