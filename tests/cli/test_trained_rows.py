"""export, encode and probe take a bare method as the campaign's only row of it, and say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cli.trained_rows import choose_trained_row
from bench.errors import InputError
from bench.records.store import ResultStore
from tests.support.standings import seeds


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """Options of a command on a campaign of profile mini, with one row of SimCSE and a plain TNCSE."""
    store = ResultStore(tmp_path / "results", "local")
    rows = {"simcse[steps=20]": "simcse", "tncse": "tncse", "tncse[nce=False]": "tncse", "mine": "jtcse"}
    rows |= {"mhe[r=1]": "mhe", "mhe[r=2]": "mhe"}
    for row, name in rows.items():
        for record in seeds(row, 0.7, 0.72):
            record = replace(record, name=name)
            store.write(record.place, record, {"STSB": np.full(10, record.seed, dtype=np.float32)})
    return {"results": tmp_path / "results", "campaign": "local", "profile": None, "overrides": ()}


@pytest.mark.parametrize(
    ("text", "row", "said"),
    [
        ("simcse", "simcse[steps=20]", "simcse is simcse[steps=20], the only row of it in campaign local"),
        ("SimCSE", "simcse[steps=20]", "SimCSE is simcse[steps=20]"),
        ("tncse", "tncse", ""),
        ("simcse[steps=5]", "simcse[steps=5]", ""),
        ("jtcse", "jtcse", ""),  # an alias says nothing of its options
        ("vicreg", "vicreg", ""),
        ("mhe", "mhe", "mhe has the profile's options; campaign local has 'mhe[r=1]', 'mhe[r=2]'"),
    ],
)
def test_the_only_row(
    text: str, row: str, said: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert choose_trained_row(text, options) == row
    err = capsys.readouterr().err
    assert (said in err, bool(err)) == (True, bool(said))


def test_set_another_profile_and_another_campaign_keep_the_method(options: dict[str, Any]) -> None:
    for other in ({"overrides": ("simcse.lr=1",)}, {"profile": "minilm"}, {"campaign": "new"}):
        assert choose_trained_row("simcse", options | other) == "simcse"
    with pytest.raises(InputError, match="type --results"):
        choose_trained_row("simcse", options | {"results": options["results"] / "local"})
