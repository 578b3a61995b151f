"""Files that stand for what left the view: written before an edit names them, gone when nothing names them."""

from refold.offload.files import OffloadFolder, name_folder

__all__ = ["OffloadFolder", "name_folder"]
