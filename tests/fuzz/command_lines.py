"""Command lines: good ones of every command, with tokens changed, dropped, repeated."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fuzz import core
from tests.fuzz.core import Dice
from tests.fuzz.mutate import arguments_of

_TOY = ("--suite", "toy")
_QUICK = (
    *(
        "noise",
        "word_overlap",
        "noise,word_overlap",
        "collapsed",
        "noise[scale=2]",
        "x=noise",
        "broken,noise",
    ),
    *("vectors:words.txt", "x=noise[scale=3,wait=0]", "ensemble:noise+noise", "untrained:avg"),
    "ensemble:0.3*noise+0.7*x=noise",
)
_REFUSED = (
    *("noise,noise", "hf:nowhere", "st:.", "noise:x", "noise[scale=x]", "x=noise[a=b]", "untrained=noise"),
    *("ensemble:", "distill:noise", "released:simcse", "released:x", "vectors:words.txt:max", "all:x"),
)
_TRAINED = (
    *("simcse", "simcse[steps=2]", "tncse", "esimcse[queue=0]", "simcse[match=simcse]", "pair"),
    *("rankcse[teacher1=noise,teacher2=]", "tncse_uc[uc=noise]", "distill:untrained"),
)
_SIDES = ("noise", "word_overlap", "noise#1", "results/other", "results/camp/mini/noise")
_FORMATS = ("text", "markdown", "csv", "json", "latex", "html")
_TABLES = ("leaderboard", "efficiency", "significance", "published", "overlap", "ablation:caels", "probes")
_RECORD = "results/camp/mini/noise/seed-1/toy.json"
_SEEDS = ("1", "1-3", "2,1", "0")


def _one(dice: Dice, good: Sequence[str], bad: Sequence[str]) -> str:
    """A good value, now and then a bad one."""
    return dice.pick(good if dice.chance(0.88) else bad)


def _maybe(dice: Dice, *choices: tuple[str, ...]) -> list[str]:
    """Some of these options."""
    return [token for choice in choices if dice.chance(0.12) for token in choice]


def _where(dice: Dice) -> list[str]:
    if dice.chance(0.8):
        return ["--campaign", "camp"]
    results = dice.pick(("results", "nowhere", "words.txt"))
    return ["--results", results, "--campaign", dice.pick(("camp", "cmap", "empty"))]


def _run(dice: Dice) -> list[str]:
    kind = dice.number()
    methods = dice.pick(_TRAINED if kind < 0.12 else _REFUSED if kind < 0.25 else _QUICK)
    text = ["--corpus", "corpus.txt", "--dev", "toy"] if kind < 0.12 else []
    more = _maybe(
        dice,
        ("--profile", _one(dice, ("mini", "minilm"), ("bert-base", "min"))),
        ("--set", _one(dice, ("noise.scale=2", "noise.wait=0"), ("noise.scale=x", "nois.scale=1", "a"))),
        ("--threads", _one(dice, ("1", "2"), ("0", "x"))),
        ("--data", _one(dice, (".",), ("nowhere",))),
        ("--probes", _one(dice, ("all", "alignment"), ("algnment", ""))),
        ("--accept-data",),
        ("--keep-vectors",),
        ("--force",),
    )
    refused = (
        *(("--copy", "a=words.txt"), ("--copy", "=x"), ("--dev", "sts7"), ("--world-seed", "2")),
        *(
            ("--backbone", "nowhere"),
            ("--precision", "fp64"),
            ("--device", "tpu"),
            ("--transfer-solver", "x"),
        ),
    )
    more += dice.pick(refused) if dice.chance(0.1) else ()
    suite = ("--suite", _one(dice, ("toy",), ("sts7", "toy,toy", "mteb:", "local:x", "transfer7", "toy,")))
    seeds = _one(dice, _SEEDS, ("3-1", "1,1", "x"))
    return ["run", "--dry-run", "--methods", methods, "--seeds", seeds, *suite, *text, *more, *_where(dice)]


def _report(dice: Dice) -> list[str]:
    more = _maybe(
        dice,
        ("--table", _one(dice, _TABLES, ("ablation:", "ledger", "sts7", "gains"))),
        ("--profile", _one(dice, ("mini",), ("other",))),
        ("--suite", _one(dice, ("toy",), ("sts7",))),
        ("--baseline", _one(dice, ("noise", "word_overlap"), ("simcse",))),
        ("--senteval-rounding",),
        ("--standalone",),
    )
    return ["report", "--format", _one(dice, _FORMATS, ("pdf",)), *more, *_where(dice)]


def _compare(dice: Dice) -> list[str]:
    more = _maybe(
        dice,
        ("--seeds-only",),
        ("--test", _one(dice, ("welch", "permutation"), ("t",))),
        ("--level", _one(dice, ("0.9", "0.999"), ("1", "nan", "0"))),
        ("--format", "json"),
    )
    first = _one(dice, _SIDES, ("collapsed", "noise#9", "other", "."))
    second = [_one(dice, _SIDES, ("broken", "noise#", "nois"))]
    if dice.chance(0.2):
        second = ["--against", _one(dice, ("word_overlap", "word_overlap,broken"), (",", "noise,noise"))]
    return ["compare", first, *second, "--draws", _one(dice, ("100",), ("9",)), *more, *_where(dice)]


def _diff(dice: Dice) -> list[str]:
    more = _maybe(
        dice,
        ("--seed", _one(dice, ("1", "2"), ("7",))),
        ("--task", _one(dice, ("TOY",), ("TYO",))),
        ("-n", _one(dice, ("1", "5"), ("0",))),
    )
    sides = (_one(dice, _SIDES, ("nois", "noise#x")) for _ in range(2))
    return ["diff", *sides, *more, *_where(dice)]


def _check(dice: Dice) -> list[str]:
    more = _maybe(
        dice,
        ("--methods", _one(dice, ("noise", "noise,word_overlap"), ("nois",))),
        ("--seeds", _one(dice, _SEEDS, ("3-1",))),
        ("--tolerance", _one(dice, ("0", "0.5"), ("nan", "-1"))),
        ("--level", _one(dice, ("0.95", "0.5"), ("nan", "2"))),
        ("--junit", "out/junit.xml"),
        ("--json", _one(dice, ("out/check.json",), (".",))),
    )
    reference = _one(dice, ("results/whole", "results/noise"), ("results/camp", "nowhere", "results"))
    return ["check", "--reference", reference, "--results", "results", "--campaign", "camp", *more]


def _other(dice: Dice) -> list[str]:
    data = dice.pick(("data", "nowhere", "words.txt"))
    return list(
        dice.pick(
            (
                ("list", dice.pick(("methods", "suites", "profiles", "sweeps", "probes", "things"))),
                ("show", dice.pick(("noise", "simcse", "simsce", "jtcse", "released", ""))),
                ("data", "verify", dice.pick(("sts7", "transfer7", "wiki1m", "x")), "--data", data),
                ("data", "verify", "--data", data),
                ("data", "fetch", dice.pick(("sts", "mini", ""))),
                ("data", "overlap", dice.pick(("corpus.txt", "nowhere", ".")), *_TOY, *_level(dice)),
                (
                    "data",
                    "overlap",
                    "corpus.txt",
                    *_TOY,
                    "--campaign",
                    dice.pick(("camp", "cmap")),
                    *_level(dice),
                ),
                ("data", "rtt", "--pivots", dice.pick(("fr", "fr,", "")), "--out", "out", "--data", data),
                ("rerun", dice.pick((_RECORD, "nowhere.json", ".", "corpus.txt"))),
                ("stats", "--draws", "100", "--format", dice.pick(("text", "json")), *_where(dice)),
                ("probe", *_where(dice), "--format", dice.pick(("text", "json"))),
                ("sweep", dice.pick(("norm_ratio", "norm", "")), "--dry-run", *_where(dice)),
                (
                    "tune",
                    "noise",
                    "--values",
                    dice.pick(("1", "1,2", "x", ",", "1,2,3,4,5,6,7")),
                    *_maybe(dice, ("--seed", "1")),
                ),
                (
                    "export",
                    dice.pick(("simsce", "noise,noise", "st:x", "noise")),
                    "--out",
                    dice.pick((".", "words.txt")),
                ),
                (
                    "gradient",
                    dice.pick(("simsce", "noise", "a b")),
                    "--seed",
                    "1",
                    "--out",
                    dice.pick((".", "words.txt")),
                ),
                ("pretrain", "--profile", dice.pick(("bert-base", "xyz")), "--out", "."),
                (dice.pick(("--version", "--help", "rnu", "-h", "--")),),
                (),
            )
        )
    )


def _level(dice: Dice) -> list[str]:
    return ["--level", dice.pick(("exact", "key", "near", "far"))]


_MAKERS: tuple[Callable[[Dice], list[str]], ...] = (
    _run,
    _run,
    _run,
    _report,
    _report,
    _compare,
    _diff,
    _check,
)


class CommandLines:
    """All commands over a campaign of cheap methods; nothing is trained."""

    name = "cli"
    share = 25

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.chdir(folder)
        (folder / "words.txt").write_text("cat 1 2\ndog 2 1\ncity 0 1\n")
        (folder / "corpus.txt").write_text("A first line.\nA second line.\nThe old man is reading a book.\n")
        (folder / "results" / "empty").mkdir(parents=True)
        failing = "noise,word_overlap,collapsed,broken"
        good = (("whole", "noise,word_overlap"), ("noise", "noise"), ("other", "noise,word_overlap"))
        for campaign, methods in (("camp", failing), *good):
            where = ("--seeds", "1-3", *_TOY, "--campaign", campaign)
            assert core.bench("run", "--methods", methods, *where).code == int(methods == failing)

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        os.chdir(self.folder)
        arguments = (dice.pick(_MAKERS) if dice.chance(0.7) else _other)(dice)
        keep = 2 if arguments[:2] == ["run", "--dry-run"] else 1 if arguments[:1] == ["sweep"] else 0
        changed = arguments[keep:]
        for step in steps:
            changed = arguments_of(changed, step)
        arguments = arguments[:keep] + [token.replace("\0", "") for token in changed]
        log.append(f"bench {' '.join(map(ascii, arguments))}")
        outcome = core.bench(*arguments)
        if not outcome.out.strip() and not outcome.err.strip():
            raise core.RuleError("neither an answer nor an error")
        return outcome.kind
