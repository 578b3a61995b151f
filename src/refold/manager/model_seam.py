"""The seam to the model that writes summaries: one that a caller hands in, or one that the settings name.

Whatever goes wrong becomes a Reply with an error; stages then do without. It never raises but for cancellation.
"""

from __future__ import annotations

from refold.config import CompressionConfig
from refold.llm.summariser import Summariser as ModelSeam
from refold.llm.summariser import settle_summariser


def settle_model(config: CompressionConfig, llm: object = None) -> tuple[CompressionConfig, ModelSeam]:
    """Return the settings as they hold with this model, and the model; without one every answer says so."""
    return settle_summariser(config, llm)


__all__ = ["ModelSeam", "settle_model"]
