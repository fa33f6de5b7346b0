"""What SimCSE takes on the backbone of each profile that states its sizes: a table of the page."""

from __future__ import annotations

from dataclasses import replace

from rows import markdown_table

from bench.config.profiles import Profile, load_profile, profile_names
from bench.method_card import OptionValue
from bench.plan.cell_expansion import profile_options
from bench.plan.profile_costs import TrainingCost, estimate_method
from bench.registry import discover

_METHOD = "simcse"
_GIB = 2**30
_MEMORY = ("GiB", "with `chunk=64`", "with all weights")
_HEADER = ("profile", "weights", "batch, rate", *_MEMORY, "hours", "rate from")


def table() -> str:
    """A row a profile, by its weights: SimCSE's settings there, memory and hours of a seed."""
    stated = [load_profile(name) for name in profile_names() if load_profile(name).architecture]
    stated.sort(key=lambda profile: (_estimate(profile).parameters, profile.name))
    return markdown_table(_HEADER, [_describe(profile) for profile in stated])


def _describe(profile: Profile) -> tuple[str, ...]:
    options, cost = profile_options(discover().get(_METHOD).card, profile), _estimate(profile)
    chunked = _estimate(profile, chunk=64)
    whole = _estimate(profile, lora_rank=0, lora_dropout=0.0, checkpoint_layers=False)
    settings = f"{options['batch_size']}, {options['lr']:g}"
    settings += f", rank {options['lora_rank']}" if options["lora_rank"] else ""
    source = "its card" if profile.rates is None else profile.rates.get(_METHOD, "untuned")
    gib = (f"{one.memory / _GIB:.1f}" for one in (cost, chunked, whole))
    return f"`{profile.name}`", f"{cost.parameters / 1e6:,.1f} M", settings, *gib, f"{cost.hours:.1f}", source


def _estimate(profile: Profile, **given: OptionValue) -> TrainingCost:
    tables = {**profile.methods, _METHOD: {**profile.methods.get(_METHOD, {}), **given}}
    cost = estimate_method(_METHOD, replace(profile, methods=tables))
    if cost is None:
        raise SystemExit(f"docs: profile {profile.name} has no sizes")
    return cost
