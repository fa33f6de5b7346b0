"""A ``local:`` suite with a small task of every kind."""

from __future__ import annotations

from pathlib import Path

WORDS = ("man", "woman", "doctor", "car", "house", "city", "river", "station")


def write_local_suite(folder: Path) -> Path:
    """Write ``mine.toml`` and its data; words tell what belongs together."""
    files = {
        "pairs.tsv": ["sentence1\tsentence2\tscore"]
        + [f"the {WORDS[i % 8]} of {i}\tthe {WORDS[i * i % 8]} in {i + 24}\t{i % 6}" for i in range(24)],
        "bitext.tsv": ["sentence1\tsentence2"] + [f"{word} one\ttwo {word}" for word in WORDS],
        "train.tsv": ["text\tlabel"] + [f"{WORDS[i % 8]} {i}\t{'xy'[i % 8 > 3]}" for i in range(48)],
        "test.tsv": ["text\tlabel"] + [f"{WORDS[i]} here\t{'xy'[i > 3]}" for i in range(8)],
        "rank.tsv": ["query\tdocument\trelevant"]
        + [
            f"where {a}\t{b} there\t{int(a == b)}"
            for a in WORDS
            for b in (*WORDS[:5], a)
            if a not in WORDS[:5]
        ],
        "corpus.tsv": ["id\ttext"] + [f"d{word}\tthere {word}" for word in WORDS],
        "queries.tsv": ["id\ttext"] + [f"q{word}\tfind {word}" for word in WORDS],
        "qrels.tsv": ["query\tdocument\trelevant"] + [f"q{word}\td{word}\t1" for word in WORDS],
    }
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    tasks = {
        "pairs": 'type = "sts"\nfile = "pairs.tsv"',
        "texts": 'type = "bitext"\nfile = "bitext.tsv"',
        "classes": 'type = "classification"\ntrain = "train.tsv"\ntest = "test.tsv"',
        "order": 'type = "reranking"\nfile = "rank.tsv"',
        "search": 'type = "retrieval"\ncorpus = "corpus.tsv"\nqueries = "queries.tsv"\nqrels = "qrels.tsv"',
    }
    path = folder / "mine.toml"
    path.write_text("".join(f'[[task]]\nname = "{name}"\n{text}\n' for name, text in tasks.items()))
    return path
