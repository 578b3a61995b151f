"""Recall: find anything that left the view, page through it, know what was decided."""
