"""Files of text that left the view: written before an edit names them, removed when no edit does."""

from refold.offload.folder import OffloadFolder, name_folder

__all__ = ["OffloadFolder", "name_folder"]
