"""The HTTP interface under ``/api`` and the sidecar routes under ``/v1``."""
