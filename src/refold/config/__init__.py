"""Settings: one frozen model, where its values come from, and the presets."""

from refold.config.explain import Row, explain
from refold.config.load import load_config
from refold.config.presets import PRESETS
from refold.config.schema import CompressionConfig

__all__ = ["PRESETS", "CompressionConfig", "Row", "explain", "load_config"]
