"""Replays recorded sessions with each preset, request by request, and counts, bills and checks every request."""
