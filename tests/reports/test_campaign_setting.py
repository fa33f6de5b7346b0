"""The title and the setting of a leaderboard."""

from __future__ import annotations

from dataclasses import replace

from bench.reports.campaign_setting import describe_setting, describe_title, is_synthetic
from tests.support.campaigns import make_record


def test_a_shipped_profile_and_suite_have_a_title() -> None:
    record = replace(make_record("simcse", 1, {"MINI": 0.7}), profile="minilm-lm", suite="sts7")
    assert describe_title([record]) == "STS leaderboard: MiniLM language model"
    assert describe_title([replace(record, profile="minilm-lm@0123abcd")]).endswith("checkpoint 0123abcd")
    assert describe_title([replace(record, profile="mine", suite="ours")]) == "ours leaderboard: mine"


def test_a_title_names_the_records_backbone_in_place_of_the_profiles() -> None:
    own = replace(make_record("simcse", 1, {"MINI": 0.7}, backbone="mini-bert"), suite="mini")
    assert describe_title([own]) == "Synthetic STS leaderboard: small BERT"
    retrained = replace(own, profile="mini@0123abcd")
    assert describe_title([retrained]) == "Synthetic STS leaderboard: small BERT, checkpoint 0123abcd"
    other = make_record("simcse", 1, {"MINI": 0.7}, backbone="tiny-gpt2", profile="mini@308b7f29")
    assert describe_title([other]) == "STS leaderboard: tiny-gpt2 in profile mini, checkpoint 308b7f29"


def test_the_setting_counts_seeds_and_names_days() -> None:
    records = []
    for seed in (1, 2, 3):
        timing = {"started": f"2026-11-{20 + seed}T10:00:00+00:00"}
        for method in ("simcse", "tncse"):
            records.append(replace(make_record(method, seed, {"MINI": 0.7}), timing=timing))
    text = describe_setting(records)
    assert "3 seeds a row" in text
    assert "21 to 23 Nov 2026" in text
    fewer = describe_setting([*records, make_record("esimcse", 1, {"MINI": 0.7})])
    assert "3 seeds for most rows (1 to 3)" in fewer


def test_only_the_programs_own_tasks_are_synthetic() -> None:
    record = make_record("simcse", 1, {"MINI": 0.7})
    assert is_synthetic([replace(record, suite="mini")])
    assert not is_synthetic([replace(record, suite="mini"), replace(record, suite="sts7")])
    assert not is_synthetic([replace(record, suite="nobody-knows-it")])
