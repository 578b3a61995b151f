"""Trials: small tasks with tools, and players that solve them, or no longer do when their context is compressed."""
