"""Settings: one frozen model, where its values come from, and the presets."""

from refold.config.layers import PRESETS
from refold.config.load import load_config
from refold.config.schema import CompressionConfig
from refold.config.values import Row, explain

__all__ = ["PRESETS", "CompressionConfig", "Row", "explain", "load_config"]
