"""A shell in an empty folder, as the tests of the command line have it."""

from tests.cli.conftest import shell

__all__ = ["shell"]
