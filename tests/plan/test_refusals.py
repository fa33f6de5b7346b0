"""Requests that the plan refuses in one line, before any record is written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bench.config.method_ids import parse_shard
from tests.support.cli import Cli
from tests.support.messages import missing_facts

NOISE = "run --methods noise --suite toy"
ON_RAY = f"{NOISE} --executor ray"
SHARDS = ("", "3", "0/4", "5/4", "1/0", "-1/4", "a/b", "1/4/2", "1.0/4", "1/999999")


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (f"{NOISE} --detect 1", ("--detect:", "--dry-run")),
        (f"{NOISE} --spread 1 --dry-run", ("--spread:", "--detect POINTS")),
        (f"{NOISE} --detect 0 --dry-run", ("0.0", "range")),
        (f"{NOISE} --detect nan --dry-run", ("'nan'", "float range")),
        *((f"{NOISE} --deadline {text}", ("--deadline",)) for text in ("0", "-1", "nan", "inf", "soon")),
        (f"{NOISE} --deadline 5 --force", ("--deadline:", "--force")),
        *((f"{NOISE} --dry-run --shard {text!r}", ("--shard:", f"'{text}'", "expected")) for text in SHARDS),
        (f"{NOISE} --per-gpu 2", ("--per-gpu:", "--executor ray")),
        (f"{ON_RAY} --per-gpu 2", ("--per-gpu:", "GPUs")),
        (f"{ON_RAY} --per-gpu 2 --device cuda --ranks 2", ("--per-gpu:", "ranks")),
        *(
            (f"{command} --ray-address auto", ("--ray-address:", "auto", "--executor ray"))
            for command in (NOISE, "sweep caels", "tune simcse --values 1e-5")
        ),
        (f"{ON_RAY} --ray-address head", ("--ray-address:", "'head'", "HOST:PORT")),
        (f"{ON_RAY} --ray-address head:99999", ("--ray-address:", "'head:99999'", "HOST:PORT")),
        (f"{ON_RAY} --ray-address ray://head:10001", ("'ray://head:10001'", "Ray's client", "HOST:PORT")),
        ("show simcse[lr=1]", ("settings", "--profile NAME")),
        ("show simcse --set simcse.lr=1", ("settings", "--profile NAME")),
        ("show simcse,tncse --profile mini", ("'simcse,tncse'", "2 methods")),
        ("show simsce --profile mini", ("method 'simsce'", "'simcse'")),
        ("show simcse --profile mimi", ("profile 'mimi'", "'mini'")),
        ("show simcse --profile mini --set simce.lr=1", ("'simce'", "--set simce.lr=1:")),
        ("show simcse[x=1] --profile mini", ("no option 'x'",)),
        ("show simcse --profile mini --corpus no.txt", ("no.txt",)),
        ("show simcse[match=nothing] --profile mini", ("match=nothing:", "unknown method 'nothing'")),
        ("show simcse[match=noise] --profile mini", ("match=noise:", "'noise' doesn't train")),
        ("show simcse[match=whitening] --profile mini", ("match=whitening:", "'whitening' doesn't train")),
        ("show simcse[match=pair,steps=4] --profile mini", ("steps beside match=pair",)),
        ("show simcse[match=pair,steps=4,epochs=1] --profile mini", ("epochs and steps", "match=pair")),
        ("show simcse --profile mini --set simcse.match=rankcse", ("'rankcse'", "to itself")),  # its teacher
        (
            "show simcse --profile mini --set simcse.match=static --set static.of=noise",
            ("match=static:", "'static' doesn't train"),
        ),
        ("show simcse --profile mini --set simcse.match=pair --set simcse.steps=4", ("beside match=pair",)),
        ("show hf:.", ("model folder",)),
        ("tune noise --option scale --values 1", ("'noise' doesn't train",)),
        ("export untrained --out out --precision bf16", ("--precision bf16:", "fp32")),
        ("export untrained --out out --seed 1", ("'untrained'", "deterministic")),
        (
            "tune simcse --values 1e-5 --set simcse.batch_size=1000000",
            ("profile mini:", "1,000,000 of simcse[batch_size=1000000"),
        ),
    ],
)
def test_a_refusal_is_one_line_and_leaves_no_record(
    cli: Cli, tmp_path: Path, line: str, facts: tuple[str, ...]
) -> None:
    code, out, err = cli(*shlex.split(line))
    assert (code, out, missing_facts(err, *facts)) == (2, "", []), err
    assert err.count("error: ") == 1
    assert not list(tmp_path.rglob("*.json"))


def test_the_last_share_is_one() -> None:
    assert parse_shard("16/16") == (16, 16)
