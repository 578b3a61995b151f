"""Plugins: your own stages and summarisers, installed as a package or registered by a line of code.

Settings name a plugin (``ladder``, ``compact_model: plugin:NAME``). It is looked up among the entry points of installed
packages and the registered plugins; a settings file can never name a file or module to load. A plugin is held to the
same laws as our own stages, and its mistakes end in a note in the report, never in an error.
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
