"""Plugins (S1.11): stages and summarisers of your own, installed as a package or registered by a line of code.

A plugin is named in the settings (``ladder``, ``compact_model: plugin:NAME``) and found by that name among the entry
points of installed packages and what was registered; a settings file can never name a file or a module to load. What
a plugin does is held to the same laws as our own stages, and what it gets wrong ends in a note, never in an error.
"""

from refold.plugins.guard import GuardedStage
from refold.plugins.registry import (
    PREFIX,
    Plugin,
    find_plugins,
    load_summariser,
    make_stage,
    register_stage,
    register_summariser,
    unregister,
)

__all__ = [
    "PREFIX",
    "GuardedStage",
    "Plugin",
    "find_plugins",
    "load_summariser",
    "make_stage",
    "register_stage",
    "register_summariser",
    "unregister",
]
