"""Command lines: good ones of every command, with tokens changed, dropped, repeated."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import core
from tests.fuzz.core import Dice
from tests.fuzz.mutate import arguments_of

_PARTS = {
    "WHERE": "{--campaign camp!--results {results|nowhere|words.txt} --campaign {camp|cmap|empty}}",
    "SIDE": "{noise|word_overlap|noise#1|results/other|results/camp/mini/noise!{collapsed|broken|nois|other|"
    "noise#9|noise#|noise#x|.}}",
    "SEEDS": "--seeds {1|1-3|2,1|0!3-1|1,1|x}",
    "DATA": "--data {data|nowhere|words.txt}",
    "LEVEL": "--level {exact|key|near|far}",
    "QUICK": "{noise|word_overlap|noise,word_overlap|collapsed|noise[scale=2]|x=noise|broken,noise|"
    "vectors:words.txt|x=noise[scale=3,wait=0]|ensemble:noise+noise|untrained:avg|"
    "ensemble:0.3*noise+0.7*x=noise}",
    "REFUSED": "{noise,noise|hf:nowhere|st:.|noise:x|noise[scale=x]|x=noise[a=b]|untrained=noise|ensemble:|"
    "distill:noise|released:simcse|released:x|vectors:words.txt:max|all:x}",
    "TRAINED": "{simcse|simcse[steps=2]|tncse|esimcse[queue=0]|simcse[match=simcse]|pair|"
    "rankcse[teacher1=noise,teacher2=]|tncse_uc[uc=noise]|distill:untrained} --corpus corpus.txt --dev toy",
}
_RUN = """
    run --dry-run --methods {QUICK|QUICK|QUICK|QUICK|QUICK|QUICK|REFUSED|TRAINED} {SEEDS}
    <--profile {mini|minilm!bert-base|min}> --suite {toy!sts7|toy,toy|mteb:|local:x|transfer7|toy,} {WHERE}
    <--threads {1|2!0|x}> <--data {.!nowhere}> <--set {noise.scale=2|noise.wait=0!noise.scale=x|nois.scale=1|
    a}> <--probes {all|alignment!algnment|''}> <--accept-data> <--keep-vectors> <--force>
    <{--detect 0.5|--detect 1 --spread 0.8!--detect 0|--spread 1|--detect nan}>
    <{--copy a=words.txt|--copy =x|--dev sts7|--world-seed 2|--backbone nowhere|--precision fp64|
    --device tpu|--transfer-solver x}>"""
_REPORT = """
    report --format {text|markdown|csv|json|latex|html!pdf} <--profile {mini!other}> <--suite {toy!sts7}>
    <--table {leaderboard|efficiency|significance|published|overlap|ablation:caels|probes!ablation:|ledger|
    sts7|gains}> <--baseline {noise|word_overlap!simcse}> <--senteval-rounding> <--standalone> {WHERE}"""
_COMPARE = """
    compare {SIDE} {SIDE|SIDE|SIDE|SIDE|--against {word_overlap|word_overlap,broken!,|noise,noise}} {WHERE}
    --draws {100!9} <--seeds-only> <--test {welch|permutation!t}> <--level {0.9|0.999!1|nan|0}>
    <--format json>"""
_DIFF = "diff {SIDE} {SIDE} <--seed {1|2!7}> <--task {TOY!TYO}> <-n {1|5!0}> {WHERE}"
_CHECK = """
    check --reference {results/whole|results/noise!results/camp|nowhere|results} --results results
    --campaign camp <--methods {noise|noise,word_overlap!nois}> <{SEEDS}> <--tolerance {0|0.5!nan|-1}>
    <--level {0.95|0.5!nan|2}> <--junit out/junit.xml> <--json {out/check.json!.}>"""
_OFTEN = (_RUN, _RUN, _RUN, _REPORT, _REPORT, _COMPARE, _DIFF, _CHECK)
_SELDOM = (
    "list {methods|suites|profiles|sweeps|probes|things}",
    "show {noise|simcse|simsce|jtcse|released|''}",
    "data verify {sts7|transfer7|wiki1m|x} {DATA}",
    "data verify {DATA}",
    "data fetch {sts|mini|''}",
    "data overlap {corpus.txt|nowhere|.} --suite toy {LEVEL}",
    "data overlap corpus.txt --suite toy --campaign {camp|cmap} {LEVEL}",
    "data rtt --pivots {fr|fr,|''} --out out {DATA}",
    "rerun {results/camp/mini/noise/seed-1/toy.json|nowhere.json|.|corpus.txt}",
    "stats --draws 100 --format {text|json} {WHERE}",
    "probe {WHERE} --format {text|json}",
    "sweep {norm_ratio|norm|''} --dry-run {WHERE}",
    "tune noise --values {1|1,2|x|,|1,2,3,4,5,6,7} <--seed 1>",
    "export {simsce|noise,noise|st:x|noise} --out {.|words.txt}",
    "gradient {simsce|noise|'a b'} --seed 1 --out {.|words.txt}",
    "pretrain --profile {bert-base|xyz} --out .",
    "{--version|--help|rnu|-h|--}",
    "",
)


def line_of(template: str, dice: Dice) -> list[str]:
    """Fill a template: {a|b!c} gives a or b, seldom c; <a> is seldom there; NAMES are parts."""

    def put(match: re.Match[str]) -> str:
        if match[2] is not None:
            return str(match[2]) if dice.chance(0.12) else ""
        good, _, bad = str(match[1]).partition("!")
        chosen = dice.choice((bad if bad and dice.chance(0.12) else good).split("|")).strip()
        return _PARTS.get(chosen, chosen)

    text, count = template, 1
    while count:  # from the inside out
        text, count = re.subn(r"\{([^{}<>]*)\}|<([^{}<>]*)>", put, text)
    return shlex.split(text)


class CommandLines:
    """All commands over a campaign of cheap methods; nothing is trained."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.chdir(folder)
        (folder / "words.txt").write_text("cat 1 2\ndog 2 1\ncity 0 1\n")
        (folder / "corpus.txt").write_text(200 * "A first line.\nA second line.\nThe old man is reading.\n")
        (folder / "results" / "empty").mkdir(parents=True)
        failing = "noise,word_overlap,collapsed,broken"
        good = (("whole", "noise,word_overlap"), ("noise", "noise"), ("other", "noise,word_overlap"))
        for campaign, methods in (("camp", failing), *good):
            where = ("--seeds", "1-3", "--suite", "toy", "--campaign", campaign)
            assert core.bench("run", "--methods", methods, *where).code == int(methods == failing)

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        os.chdir(self.folder)
        arguments = line_of(dice.choice(_OFTEN if dice.chance(0.7) else _SELDOM), dice)
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
