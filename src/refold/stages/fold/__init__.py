"""fold: old units become one record. ``units`` says which and how long it may be, ``stage`` writes it."""

from refold.stages.fold.stage import Fold

__all__ = ["Fold"]
