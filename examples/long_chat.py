"""A chat that outgrows its window: every request fits, nothing is lost, and what left the view is found again.

Run it anywhere: ``python examples/long_chat.py``. It needs no key; the answers are made up.
"""

from __future__ import annotations

import tempfile

from refold import CompressionConfig, ContextCompressionManager

WINDOW = 8_000


def answer(question: str) -> str:
    """Stand in for a model."""
    return f"On {question!r} there is much to say. " + "It depends, and here is on what. " * 40


def main() -> None:
    config = CompressionConfig(window=WINDOW, reserve=1_000)
    with ContextCompressionManager(config, tempfile.mkdtemp()) as manager:
        session = "long-chat"
        history: list[dict[str, str]] = []
        for turn in range(60):
            question = "The invoice is INV-20417, keep it in mind." if turn == 2 else f"What about point {turn}?"
            history.append({"role": "user", "content": question})
            context = manager.prepare_context_sync(session, history)
            assert context.total_tokens <= WINDOW - 1_000
            # Here context.messages would go to the provider.
            history.append({"role": "assistant", "content": answer(question)})
        found = manager.recall(session, "which invoice was it")[0]
        print(f"{len(history)} messages were said, the model sees {len(manager.read_view(session))} of them")
        print(f"recalled: {found.text}")
        print(f"compressions: {manager.status(session).compression_count}")


if __name__ == "__main__":
    main()
