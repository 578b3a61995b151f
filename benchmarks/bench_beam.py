"""BEAM: questions of ten abilities about very long chats, with the messages that hold their evidence.

    python benchmarks/bench_beam.py             recall: the evidence among the first ten, by ability
    python benchmarks/bench_beam.py --view      also: the evidence in view after folding to 10, 20 and 40 % of the chat

The chats stand in ``../shared/data/beam_dev.jsonl.gz``; without them nothing is measured. The question alone is the
query; ten results within 1,500 tokens. Beside it: plain BM25 over messages, ten of any length; and as many of its first
messages as fit into 1,500 tokens. Questions without evidence (abstention) are left out.

In view means: of the sentence of a message that shares most words with the question and its gold answer, three
quarters of the words stand close together in what is sent. The newest messages of the same size are beside it.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench_recall import DATA, LIMIT, TOKENS_MAX, Store, list_handles, plain_bm25, read_sessions

from refold import CompressionConfig, ContextCompressionManager
from refold.reading.sentences import split_sentences
from refold.recall.words import STOP_WORDS
from refold.tokens import counter_for

SHARES = (0.1, 0.2, 0.4)
CLOSE = 3
HELD_SHARE = 0.75
_WORD = re.compile(r"[a-z0-9$%.'+-]*[a-z0-9%]")
Session = dict[str, Any]
Shares = defaultdict[str, defaultdict[str, list[float]]]


def list_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


def measure_recall(shares: Shares, sessions: Sequence[Session]) -> None:
    """Add the share of the evidence that recall and plain BM25 find, by ability."""
    count = counter_for(None).count_text
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for session in sessions:
            raws = session["messages"]
            handles = store.add(session["id"], raws)
            bm25 = plain_bm25(raws, handles)
            texts = dict(zip(handles, (raw["content"] for raw in raws), strict=True))
            for question in session["qa"]:
                if not question["evidence"]:
                    continue
                evidence = {handles[at] for at in question["evidence"]}
                hits = store.recall.recall(session["id"], question["question"], LIMIT, tokens_max=TOKENS_MAX)
                ranked = bm25(question["question"])
                found = {
                    "recall": [handle for hit in hits for handle in list_handles(hit)],
                    "BM25": ranked,
                    "BM25, same tokens": list(fit(ranked, texts, count)),
                }
                for name, one in found.items():
                    add(shares[name], question["kind"], len(evidence.intersection(one)) / len(evidence))


def fit(ranked: Sequence[str], texts: dict[str, str], count: Callable[[str], int]) -> Iterator[str]:
    """Yield the first messages, as many as fit; the last one may be cut, and counts."""
    left = TOKENS_MAX
    for handle in ranked:
        if left <= 0:
            return
        left -= count(texts[handle])
        yield handle


def measure_view(shares: Shares, sessions: Sequence[Session]) -> None:
    """Add the share of the evidence that is in view after folding, and in the newest messages of that size."""
    count = counter_for("gpt-4o").count_text
    for session in sessions:
        raws = session["messages"]
        sizes = [count(raw["content"]) for raw in raws]
        asked = [question for question in session["qa"] if question["evidence"]]
        for share in SHARES:
            window = int(sum(sizes) * share)
            sent, tokens = grow(session, window)
            views = {"in view": index_words(sent), "newest": index_words(cut_newest(raws, sizes, tokens))}
            for question in asked:
                for name, view in views.items():
                    held = [is_held(pick_sentence(raws[at]["content"], question), view) for at in question["evidence"]]
                    add(shares[f"{name} {share:.0%}"], question["kind"], statistics.mean(held))


def grow(session: Session, window: int) -> tuple[str, int]:
    """Grow a chat in a few requests; return what is sent with the last one, and its tokens."""
    raws = session["messages"]
    with tempfile.TemporaryDirectory() as folder:
        config = CompressionConfig(window=window, reserve=1, recall={"inject": "off"})
        with ContextCompressionManager(config, folder) as manager:
            steps = max(8, len(raws) // 40)
            for step in range(1, steps + 1):
                prepared = manager.prepare_context_sync(session["id"], raws[: len(raws) * step // steps])
    text = "\n".join(str(message["content"]) for message in prepared.messages)
    return text, counter_for("gpt-4o").count_text(text)


def cut_newest(raws: Sequence[Any], sizes: Sequence[int], tokens: int) -> str:
    texts: list[str] = []
    for raw, size in zip(reversed(raws), reversed(sizes), strict=True):
        tokens -= size
        if tokens < 0:
            break
        texts.append(raw["content"])
    return "\n".join(reversed(texts))


def pick_sentence(text: str, question: dict[str, Any]) -> list[str]:
    """Return the words of the sentence that shares most words with a question and its answer."""
    wanted = set(list_words(f"{question['question']} {question['answer']}"))
    sentences = [list_words(sentence.text) for sentence in split_sentences(text)] or [list_words(text)]
    return max(sentences, key=lambda words: len(wanted.intersection(words)))


def index_words(text: str) -> tuple[list[str], dict[str, list[int]]]:
    words = list_words(text)
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, word in enumerate(words):
        places[word].append(at)
    return words, places


def is_held(words: Sequence[str], view: tuple[list[str], dict[str, list[int]]]) -> bool:
    """Return whether most of the words stand within a few times their own length."""
    wanted = set(words)
    needed = HELD_SHARE * len(wanted)
    reach = max(12, CLOSE * len(words))
    inside: deque[tuple[int, str]] = deque()
    counts: Counter[str] = Counter()
    for at, word in sorted((at, one) for one in wanted for at in view[1].get(one, ())):
        inside.append((at, word))
        counts[word] += 1
        while at - inside[0][0] > reach:
            counts[inside.popleft()[1]] -= 1
        if sum(count > 0 for count in counts.values()) >= needed:
            return True
    return not wanted


def add(shares: defaultdict[str, list[float]], kind: str, value: float) -> None:
    shares[kind].append(value)
    shares["all"].append(value)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--view", action="store_true", help="also what is in view after folding")
    parser.add_argument("--chats", type=int, default=100, help="only the first chats")
    wish = parser.parse_args(arguments)
    if not (DATA / "beam_dev.jsonl.gz").is_file():
        print(f"BEAM's chats are not at {DATA}; nothing is measured", file=sys.stderr)
        return 0
    sessions = list(read_sessions("beam_dev"))[: wish.chats]
    shares: Shares = defaultdict(lambda: defaultdict(list))
    measure_recall(shares, sessions)
    if wish.view:
        measure_view(shares, sessions)
    kinds = sorted(shares["recall"], key=lambda kind: (kind == "all", kind))
    print("## BEAM (`benchmarks/bench_beam.py`)\n")
    print(f"| ability | questions | {' | '.join(shares)} |\n|{'---|' * (2 + len(shares))}")
    for kind in kinds:
        cells = " | ".join(f"{statistics.mean(one[kind]):.2f}" for one in shares.values())
        print(f"| {kind.replace('_', ' ')} | {len(shares['recall'][kind])} | {cells} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
