"""Learning rates that a profile takes without a source for its backbone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.config.profiles import Profile
from bench.method_card import MethodCard, OptionValue
from bench.registry import METHODS
from bench.stages import TrainedMethod

NO_SOURCE = "no source states a learning rate for this backbone"


def describe_rate(
    method: str, options: Mapping[str, OptionValue], usual: Mapping[str, OptionValue], profile: Profile
) -> str:
    """Return where a method's rate comes from, "" where it has none or the profile names no sources.

    ``usual`` are the options that the profile gives it: a rate of another value is the user's.
    """
    rates = [name for name in options if name.split(".")[-1] == "lr"]
    if profile.rates is None or not rates:
        return ""
    if any(options[name] != usual[name] for name in rates):
        return "given"
    return profile.rates.get(method, f"untuned: {NO_SOURCE}")


def is_untuned(
    method: str, options: Mapping[str, OptionValue], usual: Mapping[str, OptionValue], profile: Profile
) -> bool:
    """Return whether a method's rate is the profile's, and without a source."""
    described = describe_rate(method, options, usual, profile)
    return bool(described) and described != "given" and method not in (profile.rates or {})


def note_untuned_rate(
    row: str,
    card: MethodCard,
    options: Mapping[str, OptionValue],
    usual: Mapping[str, OptionValue],
    profile: Profile,
) -> Iterator[str]:
    """Yield the note below tables with a row of an untuned rate; one for all rows if no rate has a source."""
    if not isinstance(METHODS.get(card.name), TrainedMethod):
        return
    if is_untuned(card.name, options, usual, profile):
        whose = f"{row}: its learning rate is"
        if not profile.rates:
            whose = f"Learning rates of profile {profile.name} are"
        yield f"{whose} untuned: {NO_SOURCE}."
