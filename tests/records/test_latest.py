"""Options that came after records were kept: at their defaults no key has them, of whatever they are part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.plan.job import assign_stage_keys
from bench.records.fingerprint import LATER, LATEST, compute_family_key, compute_record_key
from bench.records.record import RunRecord, Score
from bench.registry import discover
from bench.stages import StageSpec

SINCE = {"fresh_pooler": "one"}
"""Defaults that are no longer what held before the option came, in every method that has it."""

NAME, VALUE = next(iter(LATEST.items()))
TASKS = {"TOY": {"pairs": 3, "sha256": "a" * 64, "reference": True}}
SCORES = (Score("TOY", "all", "spearman", 0.5, 3),)
BASE = RunRecord("mini", "ensemble", "ensemble", 1, {"of": "a+b"}, None, 1, "toy", TASKS, "", "ok", SCORES)


def with_members(**options: Any) -> RunRecord:
    inner = {"method": "a", "version": 1, "options": {"lr": 1.0, **options}}
    outer = {"method": "distill:a", "version": 1, "options": {"steps": 3}, "members": {"teacher": inner}}
    return replace(BASE, training={"members": {"1": outer}})


def test_every_option_of_the_name_has_that_default() -> None:
    """Else keys of one method would lose what another one's records say."""
    options = [option for _, method in discover() for option in method.card.options if option.name in LATEST]
    assert {option.name for option in options} == LATEST.keys()
    for option in options:
        assert option.default == (LATEST | SINCE)[option.name], option.name
    assert LATEST.items() <= LATER.items()


@pytest.mark.parametrize("digest", [compute_record_key, compute_family_key])
def test_records_have_them_at_other_values_alone(digest: Any) -> None:
    plain = digest(BASE)
    assert digest(replace(BASE, options={**BASE.options, **LATEST})) == plain
    assert digest(replace(BASE, options={**BASE.options, NAME: 9.0})) != plain
    assert digest(with_members(**LATEST)) == digest(with_members())
    assert digest(with_members(**LATEST | {NAME: 9.0})) != digest(with_members())
    assert digest(with_members(pooling="cls")) != digest(with_members())  # members always said the older ones


def test_so_do_stages() -> None:
    def key(**config: Any) -> str:
        spec = StageSpec("r", "kind", 1, tuple(sorted(config.items())), lambda _: {})
        return assign_stage_keys((spec,), 1, {}, {"train": "t"})[0].key

    assert key(lr=1.0, **LATEST) == key(lr=1.0)
    assert key(lr=1.0, **LATEST | {NAME: 9.0}) != key(lr=1.0)
    assert VALUE != 9.0
