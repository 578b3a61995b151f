"""densify: the same content in fewer tokens, and the way back.

Lossless or not at all. ``densify_text`` reads back every block it makes before it returns it; ``expand_text`` is
its inverse: JSON comes back equal as parsed, logs byte for byte.
"""

from refold.stages.densify.stage import Densify, densify_text, expand_text, find_blocks

__all__ = ["Densify", "densify_text", "expand_text", "find_blocks"]
