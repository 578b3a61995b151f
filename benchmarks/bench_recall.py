"""How well recall finds what was said: evidence among the first ten, within 1,500 tokens, the question alone as query.

    python benchmarks/bench_recall.py                questions with known evidence, values that agents used again
    python benchmarks/bench_recall.py --half tune    the other half of the questions: the one that may be tuned on
    python benchmarks/bench_recall.py --scale        speed, size and append cost at 10k, 100k (and --million) messages

Recorded sessions stand in ``../shared/data`` of the project's root; without them the first part says so and ends.
Halves are fixed by a hash of the question. Plain BM25 over messages is in the same run, for comparison.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import json
import math
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager
from refold.errors import ContextOverflow
from refold.formats import make_format
from refold.ledger.align import chain_tail
from refold.ledger.codec import dump_json
from refold.ledger.place import index_path
from refold.ledger.records import Splice, StoredMessage
from refold.ledger.sqlite import SqliteLedger
from refold.recall.index_file import Mark
from refold.recall.options import RecallOptions
from refold.recall.recall import Recall
from refold.recall.search import Recalled

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
OWN = Path(__file__).parent / "recall"
QUESTIONS = {"locomo": 1.0, "bfcl_memory": 1.0, "zh_long_concat": 0.12}
PROBED = ("tau_airline", "swe_mini", "agent_native_misc", "bfcl_long_replay", "agent_long")
PROBES_PER_SESSION = 12
# Messages that ask for nothing; the definition of a reference was chosen by looking at the first three files.
SEEN = ("tau_airline", "bfcl_long_replay", "agent_long", "locomo")
ORDINARY = (*SEEN, "zh_dialogues")
LIMIT, TOKENS_MAX = 10, 1_500
Session = dict[str, Any]


def read_sessions(name: str) -> Iterator[Session]:
    if (ours := OWN.parent / "story" / f"{name}.json").is_file():
        yield {"id": name, **json.loads(ours.read_text(encoding="utf-8"))}
        return
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def throw(text: str) -> tuple[int, float]:
    """Return a fixed half (0 or 1) and a fixed number below one for a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return digest[0] % 2, int.from_bytes(digest[1:5], "big") / 2**32


def choose_questions(session: Session, half: int, share: float) -> list[dict[str, Any]]:
    chosen = []
    for question in session["qa"]:
        its_half, number = throw(f"{session['id']} {question['question']}")
        if question["evidence"] and its_half == half and number < share:
            chosen.append(question)
    return chosen


class Store:
    """Sessions in a ledger of their own, with recall beside it."""

    def __init__(self, folder: Path) -> None:
        self.ledger = SqliteLedger(folder / "bench.db")
        self.recall = Recall(self.ledger, index_path(folder / "bench.db"))
        self.form = make_format("openai-chat")

    def add(self, session_id: str, raws: Sequence[dict[str, Any]]) -> list[str]:
        """Store messages; return their handles in order."""
        row = self.ledger.open_session(session_id, 1.0)
        self.ledger.update_session(session_id, {"wire": "openai-chat"}, 1.0)
        messages = [self.form.parse(raw) for raw in raws]
        path = self.ledger.read_path(session_id)
        links = chain_tail(path.ids[-1] if path.ids else "", [message.digest for message in messages], len(path.ids))
        stored = [
            StoredMessage(link.id, link.parent, message.digest, message.role, dump_json(raw), created_at=1.0)
            for link, message, raw in zip(links, messages, raws, strict=True)
        ]
        splice = Splice(len(path.ids), len(path.ids), tuple(link.id for link in links))
        self.ledger.append(session_id, stored, [splice], version=path.version or row.path_version, now=1.0)
        return [f"m:{message.digest[:8]}" for message in messages]


Finder = Callable[[str], list[str]]


def plain_bm25(raws: Sequence[dict[str, Any]], handles: Sequence[str]) -> Finder:
    """Return a finder that is plain BM25 over messages: words and single Chinese characters, no more."""
    cut = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")
    bags = [Counter(cut.findall((raw.get("content") or "").lower())) for raw in raws]
    sizes = [sum(bag.values()) for bag in bags]
    mean = sum(sizes) / max(1, len(sizes))
    places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, bag in enumerate(bags):
        for word, times in bag.items():
            places[word].append((at, times))

    def find(query: str) -> list[str]:
        scores: defaultdict[int, float] = defaultdict(float)
        for word in set(cut.findall(query.lower())):
            found = places.get(word, [])
            weight = math.log(1 + (len(bags) - len(found) + 0.5) / (len(found) + 0.5))
            for at, times in found:
                scores[at] += weight * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * sizes[at] / mean))
        best = sorted(scores, key=lambda at: (-scores[at], at))[:LIMIT]
        return [handles[at] for at in best]

    return find


def with_recall(store: Store, session_id: str, by: str) -> Finder:
    def find(query: str) -> list[str]:
        found = store.recall.recall(session_id, query, LIMIT, tokens_max=TOKENS_MAX, by=by)
        assert sum(store.recall.count_text(said.text) for one in found for said in one.said) <= TOKENS_MAX
        return [handle for one in found for handle in list_handles(one)]

    return find


def measure_questions(name: str, half: int) -> None:
    shares: defaultdict[str, list[float]] = defaultdict(list)
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for session in read_sessions(name):
            handles = store.add(session["id"], session["messages"])
            finders = {"plain BM25": plain_bm25(session["messages"], handles)}
            finders |= {by: with_recall(store, session["id"], by) for by in ("words", "meaning", "both")}
            store.recall.refresh(session["id"])
            store.recall.embed_pending(session["id"], 100_000)
            for question in choose_questions(session, half, QUESTIONS[name]):
                evidence = {handles[at] for at in question["evidence"]}
                for by, find in finders.items():
                    begun = time.perf_counter()
                    found = set(find(question["question"]))
                    if by == "both":
                        took.append(time.perf_counter() - begun)
                    shares[by].append(len(evidence & found) / len(evidence))
    figures = "  ".join(f"{by} {statistics.mean(values):.3f}" for by, values in shares.items())
    hits = statistics.mean(share > 0 for share in shares["both"])
    print(
        f"{name:15} {len(took):5} questions  {figures}  any evidence {hits:.3f}  "
        f"p50 {1e3 * statistics.median(took):.1f} ms"
    )


def measure_probes(name: str) -> None:
    """Ask for values that an agent used again: is where they came from among the first ten?

    A value may stand in forty messages, and the recorded probe names one of them. So two figures: the named message is
    among the results, and some result holds the value letter by letter. "One copy": only one earlier message holds it.
    """
    named = {True: [0, 0], False: [0, 0]}
    held = total = 0
    for store, session, handles in store_each(name):
        probes = {str(probe["value"]): probe for probe in session.get("probes") or ()}
        for value, probe in list(probes.items())[:: max(1, len(probes) // PROBES_PER_SESSION)]:
            # All of the session is searched, also what came after the agent used the value.
            found = store.recall.recall(session["id"], value, LIMIT)
            counts = named[probe["n_sources"] == 1 and not probe["in_assistant_text"]]
            counts[0] += any(one.handle == handles[probe["source_index"]] for one in found)
            counts[1] += 1
            held += any(value.casefold() in one.text.casefold() for one in found)
            total += 1
    all_named = named[True][0] + named[False][0]
    shares = "  ".join(
        f"{told} {counts[0] / max(1, counts[1]):.4f}"
        for told, counts in (("one copy", named[True]), ("more", named[False]))
    )
    print(f"{name:15} {total:5} values  named message {all_named / total:.4f} ({shares})  held {held / total:.4f}")


def read_own(name: str, half: int) -> dict[str, list[dict[str, Any]]]:
    """Return one half of our own questions, by the file of their sessions."""
    chosen: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (OWN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if throw(one.get("query") or one["question"])[0] == half:
            chosen[one["file"]].append(one)
    return chosen


def store_asked(
    asked: dict[str, list[dict[str, Any]]],
) -> Iterator[tuple[ContextCompressionManager, dict[str, Any], list[str]]]:
    """Yield every question with its session, folded twice to about a fifth, and the handles of its messages."""
    for file, questions in asked.items():
        wanted = {one["session"] for one in questions}
        for session in read_sessions(file):
            if session["id"] not in wanted:
                continue
            with tempfile.TemporaryDirectory() as folder, ContextCompressionManager(None, folder) as manager:
                handles = fold_twice(manager, session)
                for one in questions:
                    if one["session"] == session["id"]:
                        yield manager, one, handles


def fold_twice(manager: ContextCompressionManager, session: Session) -> list[str]:
    """Store a session as a client sends it, in two halves, so that a record stands in view and one was superseded."""
    raws = session["messages"]
    window = max(3_000, sum(len(json.dumps(raw, ensure_ascii=False)) for raw in raws) // 16)
    for end in (len(raws) // 2, len(raws)):
        # One giant message may leave no room: the session is stored all the same.
        with contextlib.suppress(ContextOverflow):
            manager.prepare_context_sync(session["id"], raws[:end], window=window, format="openai-chat")
    form = make_format("openai-chat")
    return [f"m:{form.parse(raw).digest[:8]}" for raw in raws]


def list_handles(one: Recalled) -> tuple[str, ...]:
    """Return the messages that a result shows: a call is shown with its result, an answer with its question."""
    return tuple(said.handle for said in one.said)


def measure_queries(half: int, *, shows: bool) -> None:
    """Ask what an agent would ask about its own work: is the evidence among the first ten, and how far up?"""
    ranks: defaultdict[str, list[float]] = defaultdict(list)
    for manager, one, handles in store_asked(read_own("queries", half)):
        found = manager.recall(one["session"], one["query"], LIMIT, tokens_max=TOKENS_MAX)
        evidence = {handles[at] for at in one["evidence"]}
        at = next((at for at, hit in enumerate(found, 1) if evidence.intersection(list_handles(hit))), 0)
        for key in (one["file"], "all"):
            ranks[key].append(1 / at if at else 0.0)
        if shows:
            print(f"  {at:2}  {one['session'][-24:]:24}  {one['query']}")
    for key, values in ranks.items():
        told = "natural queries" if key == "all" else key
        hits = sum(value > 0 for value in values)
        print(f"{told:15} {len(values):5} queries  found {hits / len(values):.3f}  MRR {statistics.mean(values):.3f}")


def measure_asked(name: str, half: int, *, shows: bool) -> None:
    """Ask as a person does, half of the time for nothing that was said: is what is added the evidence?"""
    acts: Counter[tuple[bool, bool]] = Counter()
    total: Counter[bool] = Counter()
    for manager, one, handles in store_asked(read_own(name, half)):
        low, high = one["hidden"]
        ids = manager.ledger.read_path(one["session"]).ids[low:high]
        added = manager.recalling.inject(one["session"], one["question"], ids)
        evidence = {handles[at] for at in one["evidence"]}
        hit = any(evidence.intersection(list_handles(snippet)) for snippet in added.snippets)
        total[bool(evidence)] += 1
        acts[bool(evidence), hit] += added.acts
        if shows:
            what = "hit" if hit else "WRONG" if added.acts else "-"
            print(f"  {'needed' if evidence else 'not   '}  {what:5}  {one['question']}")
    right, wrong = acts[True, True], acts[True, False] + acts[False, False]
    print(
        f"{name:15} {total.total():5} questions, {total[True]} in need  right {right}  wrong {wrong}  "
        f"precision {right / max(1, right + wrong):.3f}"
    )


VOCABULARY = 40_000


def make_message(chance: random.Random, at: int) -> dict[str, Any]:
    words = [f"word{min(VOCABULARY, int(chance.paretovariate(0.8)))}" for _ in range(chance.randrange(10, 50))]
    words.insert(chance.randrange(len(words)), f"ticket-{at}")
    return {"role": "user" if at % 2 else "assistant", "content": " ".join(words)}


def measure_scale(total: int, sessions: int) -> None:
    """Time queries in one session of 10,000 among ``total`` messages, the append beside it, and the size on disk."""
    chance = random.Random(total)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.recall.options = RecallOptions(embeddings="off")
        appended = indexed = 0.0
        each = total // sessions
        for number in range(sessions):
            raws = [make_message(chance, at) for at in range(each)]
            begun = time.process_time()
            for start in range(0, each, 1_000):
                store.add(f"s{number}", raws[start : start + 1_000])
            middle = time.process_time()
            store.recall.refresh(f"s{number}")
            appended += middle - begun
            indexed += time.process_time() - middle
        took: list[float] = []
        worked: list[float] = []
        for _ in range(200):
            name, ticket = f"s{chance.randrange(sessions)}", chance.randrange(each)
            query = f"what about ticket-{ticket} word{chance.randrange(1, 2_000)} word{chance.randrange(1, 50)}"
            begun, busy = time.perf_counter(), time.process_time()
            found = store.recall.recall(name, query, LIMIT)
            took.append(time.perf_counter() - begun)
            worked.append(time.process_time() - busy)
            assert any(f"ticket-{ticket}" in one.unit for one in found), query
        names = ("bench.db", "bench.recall")
        files = [sum(path.stat().st_size for path in Path(folder).glob(f"{name}*")) for name in names]
    took.sort()
    worked.sort()
    print(
        f"{total:9,} messages in {sessions} sessions: query p50 {1e3 * took[100]:.1f} ms p95 {1e3 * took[190]:.1f} ms "
        f"(processor {1e3 * worked[100]:.1f} and {1e3 * worked[190]:.1f} ms); bare rows {appended:.1f} s, index "
        f"{indexed:.1f} s, {1e6 * indexed / total:.0f} µs a message; ledger {files[0] / 1e6:.0f} MB, "
        f"index {files[1] / 1e6:.0f} MB",
        flush=True,
    )


def measure_append(exchanges: int = 400) -> None:
    """Time one exchange after the other through a manager, in processor time: without the index, with it, at once."""
    took: dict[str, float] = {}
    for mode in ("alone", "caught up after", "after each") * 2:
        chance = random.Random(7)
        config = CompressionConfig(recall={"embeddings": "off"})
        with tempfile.TemporaryDirectory() as folder, ContextCompressionManager(config, folder) as manager:
            manager.append("s", [make_message(chance, 0)])
            manager.recalling.refresh("s")
            begun = time.process_time()
            for number in range(exchanges):
                manager.append("s", [make_message(chance, 2 * number + 1), make_message(chance, 2 * number + 2)])
                if mode == "after each":
                    manager.recalling.refresh("s")
            if mode == "caught up after":
                manager.recalling.refresh("s")
            took[mode] = min(took.get(mode, math.inf), time.process_time() - begun)
    told = ", ".join(
        f"{mode} {1e6 * one / exchanges:.0f} µs ({one / took['alone']:.2f}x)" for mode, one in took.items()
    )
    print(f"appending an exchange, with the index: {told}")


def measure_vectors(count: int = 100_000, dimensions: int = 256) -> None:
    """Time the nearest of many vectors, in processor time, reading included."""
    import apsw
    import numpy

    from refold.recall import vectors

    numbers = numpy.random.default_rng(1).integers(-127, 127, (count, dimensions), dtype=numpy.int8)
    db = apsw.Connection(":memory:")
    db.execute("CREATE TABLE vector (key INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT")
    with db:
        db.executemany("INSERT INTO vector VALUES (?, ?)", ((at, one.tobytes()) for at, one in enumerate(numbers)))
    mark, wanted = Mark(0, embedded=count), numbers[7].tobytes()
    took = []
    for _ in range(3):
        begun = time.process_time()
        vectors.find_nearest(db, mark, wanted, ())
        took.append(time.process_time() - begun)
    print(f"nearest of {count:,} x {dimensions}: {1e3 * min(took):.0f} ms")


def measure_ordinary(name: str) -> None:
    """Count the messages of a file that something is added to, nobody having asked for what was said."""
    acts = total = 0
    for store, session, _ in store_each(name):
        raws, ids = session["messages"], store.ledger.read_path(session["id"]).ids
        spoken = [at for at, raw in enumerate(raws) if at >= 8 and raw["role"] == "user"]
        for at in spoken[:12]:
            seen = "\n".join(str(raw.get("content") or "") for raw in raws[at - 4 : at])
            found = store.recall.inject(session["id"], str(raws[at]["content"]), ids[: at - 4], in_view=seen)
            acts, total = acts + found.acts, total + 1
    known = "looked at while choosing the words" if name in SEEN else "not looked at before"
    print(f"{name:15} {total:5} ordinary messages ({known})  something is added to {acts / total:.3f}")


def measure_injection() -> None:
    """Count how often `inject: auto` adds something: to ordinary messages of agents' users, and to questions about
    what was said, with everything but the last messages out of view."""
    for name in ORDINARY:
        measure_ordinary(name)
    for name, share in QUESTIONS.items():
        acts = hits = total = 0
        for store, session, handles in store_each(name):
            ids = store.ledger.read_path(session["id"]).ids
            for question in choose_questions(session, 1, share / 2):
                found = store.recall.inject(session["id"], question["question"], ids)
                evidence = {handles[at] for at in question["evidence"]}
                hit = not evidence.isdisjoint(one.handle for one in found.snippets)
                acts, hits, total = acts + found.acts, hits + hit, total + 1
        print(
            f"{name:15} {total:5} questions  something is added to {acts / total:.3f}, evidence to {hits / total:.3f}"
        )


def store_each(name: str) -> Iterator[tuple[Store, Session, list[str]]]:
    """Yield every session of a file, stored, with the handles of its messages."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.recall.options = RecallOptions(embeddings="off")
        for session in read_sessions(name):
            yield store, session, store.add(session["id"], session["messages"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("report", "tune"), default="report")
    parser.add_argument("--scale", action="store_true", help="speed and size instead of quality")
    parser.add_argument("--million", action="store_true", help="with --scale: a million messages too")
    parser.add_argument("--only", default="", help="only the file with this name, or queries, asked, injection")
    parser.add_argument("--show", action="store_true", help="one line for each of our own questions")
    wish = parser.parse_args(arguments)
    print("## Recall (`benchmarks/bench_recall.py`)\n\n```text")
    measure(wish)
    print("```")
    return 0


def measure(wish: argparse.Namespace) -> None:
    """Print one line for each file, or for each size."""
    if wish.scale:
        measure_append()
        measure_vectors()
        for total, sessions in ((10_000, 1), (100_000, 10), *(((1_000_000, 100),) if wish.million else ())):
            measure_scale(total, sessions)
        return
    if not DATA.is_dir():
        print(f"recorded sessions are not at {DATA}; nothing is measured", file=sys.stderr)
        return
    for name in QUESTIONS:
        if wish.only in ("", name):
            measure_questions(name, 0 if wish.half == "tune" else 1)
    for name in PROBED:
        if wish.only in ("", name):
            measure_probes(name)
    if wish.only in ("", "queries"):
        measure_queries(0 if wish.half == "tune" else 1, shows=wish.show)
    if wish.only in ("", "asked"):
        for name in ("injection", "injection_second"):
            measure_asked(name, 0 if wish.half == "tune" else 1, shows=wish.show)
    if wish.only in ("", "injection"):
        measure_injection()


if __name__ == "__main__":
    sys.exit(main())
