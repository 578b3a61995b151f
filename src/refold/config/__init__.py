"""Settings: one frozen model, where its values come from, and the presets."""

from refold.config.layers import PRESETS
from refold.config.load import Row, explain, load_config
from refold.config.schema import CompressionConfig

__all__ = ["PRESETS", "CompressionConfig", "Row", "explain", "load_config"]
