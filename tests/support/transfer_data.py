"""Made-up data in SentEval's layout."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

WORDS = ("red", "green", "blue", "old", "new", "small", "house", "river", "train", "letter")


def sentence(rng: np.random.Generator, label: int) -> str:
    words = rng.choice(WORDS, size=rng.integers(1, 7))
    mood = "good" if rng.random() < 0.2 + 0.6 * (label % 2) else "bad"
    return " ".join([*words, mood, str(rng.integers(999))])


def _write(root: Path, file: str, lines: list[str]) -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text("".join(f"{line}\n" for line in lines))


def write_transfer(root: Path) -> Path:
    """Write all transfer tasks in SentEval's layout below ``root``."""
    rng = np.random.default_rng(3)
    write = partial(_write, root)

    def some(label: int, count: int = 24) -> list[str]:
        return [sentence(rng, label) for _ in range(count)]

    binary = (
        ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
        ("CR/custrev.pos", "CR/custrev.neg"),
        ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
        ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
    )
    for names in binary:
        for label, name in zip((1, 0), names, strict=True):
            write(name, some(label))
    for split in ("train", "dev", "test"):
        write(f"SST/binary/sentiment-{split}", [f"{s}\t{y}" for y in (0, 1) for s in some(y)])
        write(f"SST/fine/sentiment-{split}", [f"{y} {s}" for y in range(5) for s in some(y)])
    for file in ("TREC/train_5500.label", "TREC/TREC_10.label"):
        kinds = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
        write(file, [f"{kind}:x {s}" for y, kind in enumerate(kinds) for s in some(y, 12)])
    for split in ("train", "test"):
        rows = [f"{y}\t1\t2\t{a}\t{b}" for y in (0, 1) for a, b in zip(some(y), some(1), strict=True)]
        write(f"MRPC/msr_paraphrase_{split}.txt", ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows])
    return root


def write_similarity(root: Path) -> Path:
    """Write STS12, the STS Benchmark and SICK in SentEval's layout below ``root``."""
    rng = np.random.default_rng(4)
    write = partial(_write, root)

    def pair() -> tuple[str, str]:
        return sentence(rng, 0), sentence(rng, 1)

    for number, name in enumerate(("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")):
        pairs = [pair() for _ in range(8 + number)]
        write(f"STS/STS12-en-test/STS.input.{name}.txt", ["\t".join(p) for p in pairs])
        write(f"STS/STS12-en-test/STS.gs.{name}.txt", [f"{rng.uniform(0, 5):.2f}" for _ in pairs])
    for split in ("train", "dev", "test"):
        rows = [f"g\tf\ty\t{i}\t{rng.uniform(0, 5):.2f}\t" + "\t".join(pair()) for i in range(12)]
        write(f"STS/STSBenchmark/sts-{split}.csv", rows)
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    labels = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
    for file in ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"):
        rows = [
            f"{i}\t" + "\t".join(pair()) + f"\t{rng.uniform(1, 5):.1f}\t{labels[i % 3]}" for i in range(36)
        ]
        write(f"SICK/{file}", [header, *rows])
    return root
