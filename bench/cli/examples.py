"""A command line for the end of every command's help."""

from __future__ import annotations

import click

EXAMPLES = {
    "": "bench run --methods untrained,simcse --seeds 1-3",
    "bundle": "bench bundle local --plugin method.py --out local.bench.zip",
    "check": "bench check --reference results/local --methods untrained,word_overlap",
    "compare": "bench compare simcse untrained --campaign local",
    "conformance": "bench conformance method.py",
    "data": "bench data verify --data data",
    "data fetch": "bench data fetch sts7 --data data",
    "data overlap": "bench data overlap train.txt --suite sts7 --data data",
    "data rtt": "bench data rtt --pivots fr,ru --profile minilm --data data --out copies",
    "data verify": "bench data verify --data data",
    "diff": "bench diff simcse untrained --suite mini",
    "encode": "bench encode simcse --seed 1 --input train.txt --out vectors.npy",
    "export": "bench export simcse --seed 1 --out simcse-1",
    "gradient": "bench gradient simcse --seed 1 --out gradient-simcse",
    "history": "bench history verdicts --format html > history.html",
    "init": "bench init my-method",
    "list": "bench list campaigns",
    "merge": "bench merge local.bench.zip --into results",
    "pack": "bench pack --methods simcse --out packed",
    "pretrain": "bench pretrain --profile minilm-mlm --data data --out minilm-mlm",
    "probe": "bench probe simcse untrained --seeds 1",
    "report": "bench report --campaign local --format html > report.html",
    "reproduce": "bench reproduce tncse:table4 --profile mini --seeds 1-2",
    "rerun": "bench rerun results/local/mini/simcse/seed-1/mini.json",
    "run": 'bench run --methods "untrained,simcse[batch_size=32]" --seeds 1-3 --set simcse.lr=5e-5',
    "show": 'bench show "simcse[batch_size=32]" --profile mini',
    "site": "bench site --results results --out site",
    "stats": "bench stats --campaign local --suite mini",
    "sweep": "bench sweep caels --seeds 1 --dry-run",
    "tune": "bench tune simcse --option lr --values 5e-5,1e-4",
    "unpack": "bench unpack local.bench.zip --into co-author",
    "verify": "bench verify results/local --rerun 1",
    "watch": "bench watch --results results",
}
"""By a command's name, a subcommand's with its group's, "" for ``bench`` itself."""


def add_examples(command: click.Command, name: str = "") -> None:
    """Let a command's help, and that of every command below it, end with its example."""
    if name in EXAMPLES:
        command.epilog = f"\b\nExample:\n  {EXAMPLES[name]}"
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        add_examples(below, f"{name} {below.name}".strip())
