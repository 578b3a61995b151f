"""Classes of the five design documents, over the engine. Nothing imports this package; ``refold`` loads its names."""
