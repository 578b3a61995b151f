"""Readers of what other programs write: session files, request logs, trace exports, datasets.

Each reader turns rows of JSON into recorded sessions in one of the three wire formats. Nothing is written, and content
that no reader knows is refused with a reason. ``replay``, ``import``, ``compact`` and ``count`` all read through here.
"""
