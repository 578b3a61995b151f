"""The reference encoder, as an oracle: tiktoken, on vocabulary files that another package carries, offline.

Nothing is downloaded. Where the files or tiktoken are missing, the tests that need them skip and say so.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# Names of the two files in a tiktoken cache: cl100k_base and o200k_base.
_FILES = ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "fb374d419588a4632f3f557e76b4b70aebbca790")


def find_vocabularies() -> Path | None:
    """Return the folder with both vocabulary files, without importing the package that carries it."""
    spec = importlib.util.find_spec("llama_index")
    for place in spec.submodule_search_locations or () if spec else ():
        folder = Path(place) / "core" / "_static" / "tiktoken_cache"
        if all((folder / name).is_file() for name in _FILES):
            return folder
    return None


@cache
def load_oracle(encoding_name: str) -> Any:
    """Return tiktoken's encoding of this name; skip the test where it cannot be had offline."""
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed; `make test` installs it")
    folder = find_vocabularies()
    if folder is None:
        pytest.skip("no vocabulary files for tiktoken; `make test` installs llama-index-core, which carries them")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        return tiktoken.get_encoding(encoding_name)


def count_reference(encoding_name: str, text: str) -> int:
    """Return how many tokens the reference finds when no text is special."""
    return len(load_oracle(encoding_name).encode(text, disallowed_special=()))
