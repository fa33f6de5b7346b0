"""Dropout is drawn everywhere that an architecture has it, at the rate that is asked for, nowhere at 0."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.errors import InputError
from bench.nn.backbone import load_backbone
from bench.nn.dropout import configured_dropout, find_dropout_classes, set_dropout
from bench.nn.folder_facts import ARCHITECTURE, MODULES, find_dropout_scope
from bench.training.randomness import check_dropout
from tests.support.zoo import ZOO

WITHOUT = ("mamba",)
"""Architectures that have no dropout."""
DRAWING = [name for name in ZOO if name not in WITHOUT]
ROWS = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12], [12, 11, 10, 9, 8, 7, 6, 5]])


def read(model: Any, seed: int = 1) -> Tensor:
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        states: Tensor = model.train()(input_ids=ROWS, attention_mask=torch.ones_like(ROWS)).last_hidden_state
    return states


@contextmanager
def rates(found: list[float]) -> Iterator[None]:
    dropout, attention = functional.dropout, functional.scaled_dot_product_attention

    def noted(given: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        found.append(p if training else 0.0)
        return dropout(given, p, training, inplace)

    def attended(*args: Any, **kwargs: Any) -> Tensor:
        found.append(float(kwargs.get("dropout_p", 0.0)))
        result: Tensor = attention(*args, **kwargs)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "dropout", noted)
        patch.setattr(functional, "scaled_dot_product_attention", attended)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWING)
def test_every_dropout_has_the_rate_that_is_set(name: str, zoo: Callable[[str], Path]) -> None:
    model, _ = load_backbone(zoo(name))
    for rate in (0.3, 0.0, 0.15):
        set_dropout(model, rate)
        drawn: list[float] = []
        with rates(drawn):
            read(model)
        assert {*drawn} == {rate}, name
        assert torch.equal(read(model, 1), read(model, 2)) is (rate == 0)


@pytest.mark.parametrize("name", [*ZOO])
def test_kinds_said_to_have_modules_alone_train_as_before(name: str, zoo: Callable[[str], Path]) -> None:
    model, _ = load_backbone(zoo(name))
    before = copy.deepcopy(model)
    equal = []
    for rate in (0.3, 0.0):
        for module in before.modules():  # as it was set until 2026-11-28
            if isinstance(module, nn.Dropout):
                module.p = rate
        set_dropout(model, rate)
        equal.append(torch.equal(read(model), read(before)))
    if find_dropout_scope(zoo(name)) == MODULES:
        assert all(equal)
    elif name not in WITHOUT:
        assert not all(equal), f"{name} could be listed among dropout_in_modules"


@pytest.mark.parametrize("name", ["llama", "modernbert", "opt", "bert"])
def test_saved_configurations_keep_their_rate(name: str, zoo: Callable[[str], Path], tmp_path: Path) -> None:
    model, _ = load_backbone(zoo(name))
    before = model.config.to_dict()
    set_dropout(model, 0.3)
    set_dropout(model, 0.2)
    with configured_dropout(model):
        assert model.config.to_dict() == before
        model.save_pretrained(tmp_path)
    again, _ = load_backbone(zoo(name))
    again.save_pretrained(tmp_path / "again")
    assert (tmp_path / "config.json").read_bytes() == (tmp_path / "again" / "config.json").read_bytes()
    drawn: list[float] = []
    with rates(drawn):
        read(model)  # training goes on as it was
    assert {*drawn} == {0.2}


@pytest.mark.parametrize("name", DRAWING)
def test_a_model_that_draws_as_it_is_set_passes_unchanged(name: str, zoo: Callable[[str], Path]) -> None:
    model, _ = load_backbone(zoo(name))
    set_dropout(model, 0.1)
    found = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert set(found) <= {0.1}
    assert len(found) > 6 or name != "bert"
    state = torch.random.get_rng_state()
    first = read(model)
    check_dropout(model.train(), ROWS, 0.1, needed=True, where=name)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(read(model), first)


@pytest.mark.parametrize("needed", [True, False])
def test_views_need_an_architecture_with_dropout(needed: bool, zoo: Callable[[str], Path]) -> None:
    model, _ = load_backbone(zoo("mamba"))
    assert find_dropout_classes(model) == []
    assert find_dropout_scope(zoo("mamba")) == ARCHITECTURE
    if not needed:
        check_dropout(model.train(), ROWS, 0.1, needed=False, where="mamba")
        return
    check_dropout(model.train(), ROWS, 0.0, needed=True, where="mamba")  # asked for none
    with pytest.raises(InputError) as caught:
        check_dropout(model.train(), ROWS, 0.1, needed=True, where="mamba")
    assert caught.value.where == "mamba"
    assert "MambaBlock" in caught.value.what


def test_what_is_drawn_at_dropout_0_is_refused_by_its_layer(zoo: Callable[[str], Path]) -> None:
    model, _ = load_backbone(zoo("bert"))
    dense = model.encoder.layer[1].output.dense
    dense.register_forward_hook(lambda _module, _args, output: output + torch.randn_like(output))
    with pytest.raises(InputError) as caught:
        check_dropout(model.train(), ROWS, 0.1, needed=False, where="bert")
    assert caught.value.what.endswith("in Linear")


@pytest.mark.parametrize("rate", [-0.1, 1, float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match=f"dropout {rate}; expected 0 or more"):
        set_dropout(nn.Dropout(), rate)
