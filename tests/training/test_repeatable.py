"""Deterministic kernels while a CUDA device trains, and the settings of before afterwards."""

from __future__ import annotations

import os

import pytest
import torch

from bench.errors import BenchError
from bench.training.randomness import use_deterministic_kernels


def settings() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        getattr(torch.utils.deterministic, "fill_uninitialized_memory"),  # noqa: B009
    )


def test_a_cuda_training_asks_for_deterministic_kernels_and_puts_the_settings_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    before = settings()

    def failing() -> None:
        with use_deterministic_kernels("cuda:1"):
            assert settings() == (True, True, False)
            assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
            raise BenchError("a loss that is not a number")

    with pytest.raises(BenchError, match="not a number"):
        failing()
    assert settings() == before
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with use_deterministic_kernels("cuda"):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_a_cpu_keeps_its_settings() -> None:
    before = settings()
    with use_deterministic_kernels("cpu"):
        assert settings() == before
