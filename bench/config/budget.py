"""The training that a profile gives to every method without an entry of its own, or to every one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from bench.card import MethodCard, OptionValue


@dataclass(frozen=True)
class Budget:
    """How much text a training stage reads, and how often it is evaluated on the dev set.

    Args:
        evaluate_every: Sentences between two dev evaluations, at least 1.
        sentences: Sentences that it reads, 0 where ``epochs`` say it.
        epochs: Passes over the training text, 0 where ``sentences`` say it.
        equal: What each training stage of every method has, where it has such an option, whatever its card
            says, such as {"batch_size": 64, "text": "train"}. The budget is then every method's, also of
            those with an entry: equal terms.
    """

    evaluate_every: int
    sentences: int = 0
    epochs: int = 0
    equal: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """In words, for people."""
        passes = f"{self.epochs} pass{'es' * (self.epochs > 1)} over the training text"
        amount = f"{self.sentences:,} sentences" if self.sentences else passes
        equal = "".join(f", {name} {value}" for name, value in self.equal.items())
        return f"{amount} a training stage, a dev evaluation every {self.evaluate_every:,}{equal}"

    def terms(self, card: MethodCard) -> dict[str, OptionValue]:
        """Values of a method's options that every method's stages have."""
        trained = {f"{stage}{name}": value for stage in _prefixes(card) for name, value in self.equal.items()}
        return {
            option.name: option.parse(trained[option.name], f"the profile's equal terms: {option.name}")
            for option in card.options
            if option.name in trained
        }

    def options(self, card: MethodCard, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """Values that this budget gives to a method's options.

        A stage gets steps where it has ``steps`` and ``batch_size`` (its own or the method's), whole numbers;
        so two towers that train apart get the budget each.

        Args:
            card: The method's card.
            options: Value of every option, with the batch sizes that the user gave.
        """
        found: dict[str, OptionValue] = {}
        for stage, batch_size in _stages(card, options):
            if f"{stage}eval_every" in options:
                found[f"{stage}eval_every"] = max(1, self.evaluate_every // batch_size)
            if self.sentences:
                found[f"{stage}steps"] = -(-self.sentences // batch_size)
            elif f"{stage}epochs" in options:
                found |= {f"{stage}steps": 0, f"{stage}epochs": self.epochs}
        return found


def counted_by_epochs(given: Collection[str], options: Collection[str]) -> dict[str, OptionValue]:
    """Steps of 0 for each stage of which the user gave ``epochs`` and no ``steps``, so that they count."""
    steps = {name: f"{name.removesuffix('epochs')}steps" for name in given if name.split(".")[-1] == "epochs"}
    return {name: 0 for name in steps.values() if name in options and name not in given}


def _stages(card: MethodCard, options: Mapping[str, OptionValue]) -> Iterator[tuple[str, int]]:
    """Yield the prefix of every stage with steps and its batch size."""
    for stage in _prefixes(card):
        size = options.get(f"{stage}batch_size", options.get("batch_size"))
        if _whole(size):
            yield stage, max(1, int(size or 1))


def _prefixes(card: MethodCard) -> Iterator[str]:
    """Yield the prefix of every stage with steps, "" for the method itself."""
    for option in card.options:
        prefix, _, name = option.name.rpartition(".")
        if name == "steps" and _whole(option.default):
            yield f"{prefix}." if prefix else ""


def _whole(value: OptionValue | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
