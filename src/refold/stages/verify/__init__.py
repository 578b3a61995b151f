"""Checks of a summary against its source, before it counts: what is refused whole, what is dropped, what is added.

Pure text in, text and findings out. Nothing here asks a model, and nothing here rewords a sentence: a sentence stays
as it is or goes whole.
"""

from refold.stages.verify.check import Answer, Dropped, Verified, Voices, add_missing, find_rejection, verify_words
from refold.stages.verify.ground import Ground, find_claims

__all__ = [
    "Answer",
    "Dropped",
    "Ground",
    "Verified",
    "Voices",
    "add_missing",
    "find_claims",
    "find_rejection",
    "verify_words",
]
