"""Method ids, ``--set``, seeds, suites: what parses comes back the same from its canonical form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.card import MethodCard, OptionValue
from bench.comparison.selection import format_seeds
from bench.config import profiles
from bench.config.method_ids import parse_copies, parse_methods, parse_override, parse_seeds
from bench.config.spec import MethodRequest, RunSpec
from bench.data.mteb_names import parse_suite, split_suites
from bench.errors import BenchError
from bench.nn.model_folder import ModelFolder
from bench.plan.cell import Cell
from bench.plan.cells import make_cells
from bench.probes import parse_probes
from bench.registry import discover
from tests.fuzz.core import ANSWER, REFUSED, Dice, RuleError, refused
from tests.fuzz.mutate import JUNK, text_of

_SUITES = ("toy", "sts7", "mini", "mteb:STS17[en-en],STS22.v2[en]", "local:a/b.toml", "mteb:A,B@test")
_E_ACUTE = "\N{LATIN SMALL LETTER E WITH ACUTE}"
_TEXTS = ("x", "a,b", "a]b", "[c]", "k=v", "a, {mask} b", "b\\", _E_ACUTE, " a ", "a:b")


def _numbers(text: str) -> set[int]:
    """What a list of seeds says, read by other means than the program's."""
    found = []
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        found += list(range(int(low), int(high or low) + 1))
    if len(set(found)) < len(found) or not found:
        raise RuleError(f"{text!a} was taken")
    return set(found)


class Specifications:
    """Parsers of what a command line holds, without the command line."""

    name = "spec"

    def __init__(self, folder: Path) -> None:
        self.profile = profiles.load_profile("mini")
        self.cards = [method.card for _, method in discover()]
        self.model = ModelFolder(folder, "backbone", "b" * 64)

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        kinds = (*[self._method] * 3, self._text, self._seeds, self._rest)
        return ANSWER if dice.pick(kinds)(dice, steps, log) is None else REFUSED

    def _seeds(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> BenchError | None:
        parts = (str(dice.below(30)), f"{dice.below(9)}-{dice.below(40)}", f" {dice.below(99)} ")
        text = ",".join(dice.pick(parts) for _ in range(1 + dice.below(4)))
        for step in steps:
            text = text_of(text, step)
        log.append(f"seeds {text!a}")
        found = refused(lambda: parse_seeds(text))
        if isinstance(found, BenchError):
            return found
        again = parse_seeds(format_seeds(found).split(" ")[1])
        if set(found) != _numbers(text) or list(found) != sorted(found) or again != found:
            raise RuleError(f"{text!a} gave {found}")
        return None

    def _text(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> BenchError | None:
        """Any text of methods: each request's own text gives that request again."""
        text = ", ".join(self._request(dice) for _ in range(1 + dice.below(3)))
        for step in steps:
            text = text_of(text, step)
        log.append(f"methods {text!a}")
        found = refused(lambda: parse_methods(text))
        if isinstance(found, BenchError):
            return found
        for request in found:
            if parse_methods(request.text) != (request,):
                raise RuleError(f"{request} gives {parse_methods(request.text)}")
        if parse_methods(",".join(request.text for request in found)) != found:
            raise RuleError(f"{found} joined is another request")
        return None

    def _request(self, dice: Dice) -> str:
        card = dice.pick(self.cards)
        options = [f"{o.name}={self._value(card, o.name, dice)}" for o in card.options if dice.chance(0.2)]
        alias = "mine=" if dice.chance(0.2) else ""
        argument = ":" + dice.pick(("avg", "a/b=c", "x")) if dice.chance(0.2) else ""
        return f"{alias}{card.name}{argument}" + (f"[{','.join(options)}]" if options else "")

    def _value(self, card: MethodCard, name: str, dice: Dice) -> OptionValue:
        option = card.option(name, "here")
        if option.choices:
            return dice.pick(option.choices)
        if isinstance(option.default, bool):
            return dice.chance(0.5)
        if isinstance(option.default, str):
            return dice.pick(_TEXTS)
        if isinstance(option.default, int):
            return dice.below(100)
        return dice.pick((0.25, 1e-05, 3e-05, 0.1 + 0.2, 1e22, 5.0))

    def _method(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> BenchError | None:
        """A method with options by ``--set``: its canonical id asks for the same method and options."""
        plain = [c for c in self.cards if not (c.takes_path or c.takes_methods or c.auxiliaries)]
        card = dice.pick(plain)
        names = [option.name for option in card.options if option.name != "match"]
        chosen = dict.fromkeys(dice.pick(names) for _ in range(dice.below(4))) if names else {}
        texts = [f"{card.name}.{name}={self._value(card, name, dice)}" for name in chosen]
        for step in steps:
            if texts:
                texts[step.below(len(texts))] = text_of(step.pick(texts), step)
            else:
                texts = [step.pick(JUNK)]
        log.append(f"{card.name} --set {texts!a}")
        found = refused(lambda: self._cell(card.name, texts))
        if isinstance(found, BenchError):
            return found
        again = refused(lambda: self._cell(found.method, ()))
        if isinstance(again, BenchError) or (again.method, again.options) != (found.method, found.options):
            said = again if isinstance(again, BenchError) else (again.method, dict(again.options))
            raise RuleError(f"the id {found.method!a} of {dict(found.options)} gives {said}")
        return None

    def _cell(self, text: str, overrides: Sequence[str]) -> Cell:
        (request,) = parse_methods(text) if "," not in text or "[" in text else (MethodRequest(text, text),)
        sets = tuple(parse_override(one) for one in overrides)
        spec = RunSpec((request,), (1,), "mini", overrides=sets)
        card = discover().get(request.name, where="here").card
        return make_cells(request, card, spec, self.profile, "mini", self.model, 1000)[0]

    def _rest(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> BenchError | None:
        text = dice.pick((*_SUITES, "alignment,uniformity", "all", "a=words.txt", "noise.scale=2"))
        for step in steps:
            text = text_of(text, step)
        parsers: tuple[Callable[[str], object], ...] = (
            lambda t: [parse_suite(name) for name in split_suites(t, {"toy", "sts7", "mini"})],
            *(parse_probes, lambda t: parse_copies([t]), parse_override),
        )
        parse = dice.pick(parsers)
        log.append(f"text {text!a}")
        found = refused(lambda: parse(text))
        return found if isinstance(found, BenchError) else None
