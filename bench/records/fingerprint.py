"""What determines a result, once: everything else loops over ``FACTS``.

A record's key and family, the keys of its training stages, what ``bench rerun`` asks for again, and what run,
check, compare and reports say differs are all made from this table, so that none of them can forget a fact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.errors import DataError
from bench.records.environment import plugin_file_hashes, provenance_reader, read_cpu, read_gpu, read_versions
from bench.records.record import RunRecord, is_same_measurement

LATEST: dict[str, Any] = {
    "mlm_term": 0.0,
    "mlm_share": 0.15,
    "noise_negatives": 0,
    "repetition_unit": "subword",
    "student_loss": "mse",
    "student_queue": 65536,
    "student_scale": 1.0,
    "pooler": "cls",
    "freeze_layers": 0,
    "kernel": "exponential",
    "kernel_power": 4.0,
    "nu_after": 1.0,
    "augs": "sf+rv+de+rp",
    "posi_cst": True,
    "peer_coop": True,
    "fix_peer": False,
    "engine": "zca",
    "prompt_form": "text",
    "prompt_init": "tokens",
    "prompt_head": "tanh",
    "noise_gradient": True,
    "fresh_pooler": "each",
    "ltn_input": "pooler",
}
"""Those of LATER that no key has at these values, neither of a record nor of a stage nor of a member."""
LATER = {"text": "train", "pooling": "cls", "sick": False, "drop_norms": 0} | LATEST
LATER |= dict.fromkeys(("prompt", "query_prompt", "passage_prompt"), "")
"""Options that older records may lack, as they came later, with the value that held before."""
_SAID = (
    *("prompt", "prompts", "similarity", "pooling", "dtype", "folder_dtype", "parameters"),
    *("routes", "unread", "unread_settings", "length", "coverage", "own_code"),
)
"""What an encoder says of itself that its options and weights determine; with _FROM: who says so."""
_FROM = "_from"


def drop_latest_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, or the settings of a stage, without those of LATEST that have the value there."""
    return {name: value for name, value in options.items() if name not in LATEST or value != LATEST[name]}


def drop_keyed_facts(said: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an encoder says of itself but for what the key says already, which older records lack."""
    return {name: value for name, value in (said or {}).items() if name.removesuffix(_FROM) not in _SAID}


UNSET, NONE = "not set", "none"


@dataclass(frozen=True)
class Fact:
    """One thing that determines a result, or may change its last digits.

    Args:
        name: What messages call it. Where it is a mapping, its entries are named one by one: "option lr".
        of: "encoder" and "evaluation" facts enter the key; "machine" facts don't, though other versions or
            another CPU may change digits.
        read: How a record says it; None where it doesn't.
        default: Its value for a record that doesn't say it.
        breaks: Two results that differ in it aren't compared by the gate.
        in_family: Seeds that differ in it are never averaged: all facts of the key but the seed.
        in_stage: It enters the key of each training stage.
        show: What messages show of a record in place of the value: a name next to a hash.
        parameter: Field of a run's specification that asks for it, for ``bench rerun``.
        choices: What that field takes; nothing else is read from a record.
        later: Keys leave it out at its default, so that those of records from before it still hold.
    """

    name: str
    of: Literal["encoder", "evaluation", "machine"]
    read: Callable[[RunRecord], Any]
    default: Any = None
    breaks: bool = True
    in_family: bool = True
    in_stage: bool = False
    show: Callable[[RunRecord], str] | None = None
    parameter: str = ""
    choices: tuple[Any, ...] = ()
    later: bool = False

    @property
    def keyed(self) -> bool:
        """True if it enters the key."""
        return self.of != "machine"

    def value(self, record: RunRecord) -> Any:
        """What the record says, or the default."""
        found = self.read(record)
        return self.default if found is None else found


def _hash_fact(
    name: str,
    block: Callable[[RunRecord], Mapping[str, Any] | None],
    label: str = "name",
    *,
    in_stage: bool = False,
) -> Fact:
    """Something that a record names by a hash; messages show a name next to it."""

    def sha256(record: RunRecord) -> str | None:
        found = block(record)
        return identity_hash(found) if found else None

    def show(record: RunRecord) -> str:
        found = block(record)
        return f"{found.get(label)} {identity_hash(found)[:8]}" if found else NONE

    return Fact(name, "encoder", sha256, in_stage=in_stage, show=show)


def identity_hash(named: Mapping[str, Any]) -> str:
    """The hash of what a record names; of a backbone that is made by a recipe the recipe's."""
    return str(named.get("recipe") or named["sha256"])


def _identity_hashes(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: identity_hash(each) for name, each in facts.items()}


def _made_weights_hash(record: RunRecord) -> str | None:
    """The bytes of a backbone that was made by a recipe: another kind of processor makes others."""
    backbone = record.backbone or {}
    return str(backbone["sha256"])[:12] if "recipe" in backbone else None


def _nondefault_options(record: RunRecord) -> dict[str, Any]:
    return {name: value for name, value in record.options.items() if LATER.get(name, UNSET) != value}


def _member_facts(training: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The methods that a method builds on, and those below them, without the latest options' defaults."""
    found = {}
    for role, member in training.get("members", {}).items():
        found[role] = {**member, "options": drop_latest_defaults(member["options"])}
        if "recipe" in (member.get("backbone") or {}):
            found[role]["backbone"] = {**member["backbone"], "sha256": ""}
        if "members" in member:
            found[role]["members"] = _member_facts(member)
    return found


def _stage_blocks(record: RunRecord) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = record.training.get("stages", {})
    return found


def _training_reader(name: str, older: str) -> Callable[[RunRecord], Any]:
    """Read what all stages share; until schema 3 the stages said it, and only where it wasn't the default."""

    def read(record: RunRecord) -> Any:
        said = [stage[older] for stage in _stage_blocks(record).values() if older in stage]
        return record.training.get(name, max(said, default=None))

    return read


def training_arithmetic(record: RunRecord) -> int:
    """Return the number of the arithmetic that a record was trained by, 0 for one without training."""
    return int(_training_reader("arithmetic", "numerics")(record) or (1 if _stage_blocks(record) else 0))


def _evaluation_reader(name: str, block: str, older: str) -> Callable[[RunRecord], Any]:
    """Read a setting of the evaluation, which until schema 3 was part of the provenance."""
    return lambda record: record.evaluation.get(name, record.provenance.get(block, {}).get(older))


FACTS = (
    Fact("method", "encoder", lambda r: r.name),
    Fact("method version", "encoder", lambda r: r.version),
    Fact("plug-in file", "encoder", lambda r: plugin_file_hashes(r.provenance), in_stage=True),
    Fact("option", "encoder", _nondefault_options),
    _hash_fact("weights", lambda r: r.backbone, in_stage=True),
    Fact(
        "auxiliary model",
        "encoder",
        lambda r: _identity_hashes(r.training.get("auxiliaries", {})),
        in_stage=True,
    ),
    Fact("member", "encoder", lambda r: _member_facts(r.training)),
    _hash_fact("training text", lambda r: r.training.get("corpus")),
    Fact(
        "training text of stage",
        "encoder",
        lambda r: _identity_hashes(
            {role: stage["text"] for role, stage in _stage_blocks(r).items() if "text" in stage}
        ),
    ),
    _hash_fact("dev set", lambda r: r.training.get("dev"), "task", in_stage=True),
    Fact(
        "version of stage",
        "encoder",
        lambda r: {role: stage.get("version", 1) for role, stage in _stage_blocks(r).items()},
    ),
    Fact(
        "setting of stage",
        "encoder",
        lambda r: {
            f"{role} {name}": value
            for role, stage in _stage_blocks(r).items()
            for name, value in stage.get("settings", {}).items()
        },
    ),
    Fact("arithmetic of training", "encoder", training_arithmetic, in_stage=True),
    Fact(
        "training precision",
        "encoder",
        _training_reader("precision", "precision"),
        "fp32",
        in_stage=True,
        parameter="train_precision",
        choices=("fp32", "tf32", "bf16", "bf16-weights"),
    ),
    Fact(
        "dropout set in",  # until 2026-11-28 in modules alone, whatever the architecture
        "encoder",
        lambda r: r.training.get("dropout"),
        "modules",
        in_stage=True,
        later=True,
    ),
    Fact(
        "compilation",
        "encoder",
        lambda r: r.training.get("compiled"),
        NONE,
        breaks=False,
        in_stage=True,
        parameter="compiled",
        choices=(NONE, "inductor", "graphs"),
        later=True,
    ),
    Fact(
        "ranks",
        "encoder",
        _training_reader("ranks", "ranks"),
        1,
        breaks=False,
        in_stage=True,
        parameter="ranks",
        choices=tuple(range(1, 1025)),
    ),
    Fact(
        "device",
        "encoder",
        lambda r: str(r.provenance.get("device")).split(" ")[0],
        breaks=False,
        in_stage=True,
        parameter="device",
        choices=("cpu", "cuda", "mps"),
    ),
    Fact(
        "threads",
        "encoder",
        lambda r: r.provenance.get("threads"),
        breaks=False,
        in_stage=True,
        parameter="threads",
        choices=tuple(range(1, 257)),
    ),
    Fact("seeds", "encoder", lambda r: NONE if r.seed is None else "several"),
    Fact("seed", "encoder", lambda r: r.seed, breaks=False, in_family=False),
    Fact("suite", "evaluation", lambda r: r.suite),
    Fact("data", "evaluation", lambda r: _identity_hashes(r.tasks)),
    Fact("world", "evaluation", lambda r: r.world or {}),
    Fact("version of the evaluation", "evaluation", lambda r: r.evaluation.get("version"), 1),
    Fact(
        "transfer solver",
        "evaluation",
        _evaluation_reader("solver", "transfer", "solver"),
        "exact",
        parameter="transfer_solver",
        choices=("exact", "sgd"),
    ),
    Fact(
        "precision",
        "evaluation",
        _evaluation_reader("precision", "evaluation_precision", "name"),
        "fp32",
        parameter="precision",
        choices=("fp32", "bf16", "fp16"),
    ),
    Fact("weights as made", "machine", _made_weights_hash, breaks=False),
    Fact("Python", "machine", provenance_reader("python"), breaks=False),
    Fact("platform", "machine", provenance_reader("platform"), breaks=False),
    Fact("GPU", "machine", read_gpu, breaks=False),
    Fact("version of", "machine", read_versions, breaks=False),
    Fact("encoder's", "machine", lambda r: drop_keyed_facts(r.provenance.get("encoder")), breaks=False),
    Fact("CPU", "machine", read_cpu, breaks=False),
)
KEYED = tuple(fact for fact in FACTS if fact.keyed)
FAMILY = tuple(fact for fact in KEYED if fact.in_family)
ENCODER_FACTS = tuple(fact for fact in FACTS if fact.of == "encoder")
IN_STAGE = tuple(fact for fact in FACTS if fact.in_stage)
BREAKING = tuple(fact for fact in FACTS if fact.breaks)
MACHINE = tuple(fact for fact in FACTS if fact.of == "machine")
JUDGED = tuple(fact for fact in FACTS if fact.name == "plug-in file")
GATED = tuple(fact for fact in BREAKING if fact not in JUDGED)
"""What two results must have in common to be compared by the gate, which is there to judge changed code."""
SPECIFICATION = tuple(fact for fact in FAMILY if fact.breaks)
SETTING = tuple(fact for fact in KEYED if not fact.breaks and fact.in_family)
"""Device and threads, which change last digits; compilation and ranks: draws too, as another seed."""


@dataclass(frozen=True)
class FactDifference:
    """One fact in which two records differ, as messages show it.

    Args:
        fact: Its name in the table.
        name: The same, with the entry's name where it is a mapping.
        then: What one record says.
        now: What the other says.
    """

    fact: str
    name: str
    then: str
    now: str

    def __str__(self) -> str:
        """As messages say it."""
        return f"{self.name} then {self.then}, now {self.now}"


def format_fact_value(value: Any) -> str:
    """Return a value as messages show it: a hash by its beginning, a member by its method."""
    if isinstance(value, Mapping):
        return str(value.get("method", dict(value)))
    text = str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text


def hash_canonical_json(facts: object) -> str:
    """Return the sha256 of facts in canonical JSON."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def fact_values(record: RunRecord, facts: Sequence[Fact]) -> dict[str, Any]:
    """What a record says of some facts, by name; without later ones at their default."""
    said = ((fact, fact.value(record)) for fact in facts)
    return {fact.name: value for fact, value in said if not (fact.later and value == fact.default)}


def compute_record_key(record: RunRecord) -> str:
    """Return the sha256 of everything that determines the scores: equal key, equal result."""
    return hash_canonical_json(fact_values(record, KEYED))


def compute_family_key(record: RunRecord) -> str:
    """Return the same without the seed: only records of one family are averaged."""
    return hash_canonical_json(fact_values(record, FAMILY))


def find_fact_differences(
    then: RunRecord, now: RunRecord, facts: Sequence[Fact] = KEYED
) -> tuple[FactDifference, ...]:
    """Return the facts in which two records differ, the entries of a mapping one by one."""
    return tuple(found for fact in facts for found in _compare_fact(fact, then, now))


def _compare_fact(fact: Fact, then: RunRecord, now: RunRecord) -> Iterator[FactDifference]:
    was, now_is = fact.value(then), fact.value(now)
    if was == now_is:
        return
    if isinstance(was, Mapping) and isinstance(now_is, Mapping):
        # The values leave out defaults of later options. A record of another method may have no such option:
        # there a default is what the record itself says.
        later = LATER if then.name == now.name else {}
        said, says = (
            {**later, **record.options, **value} if fact.name == "option" else value
            for record, value in ((then, was), (now, now_is))
        )
        for name in dict.fromkeys([*was, *now_is]):
            one, other = said.get(name, UNSET), says.get(name, UNSET)
            if one != other:
                yield FactDifference(
                    fact.name, f"{fact.name} {name}", format_fact_value(one), format_fact_value(other)
                )
        return
    texts = (
        NONE if value in (None, "") else fact.show(record) if fact.show else format_fact_value(value)
        for value, record in ((was, then), (now_is, now))
    )
    yield FactDifference(fact.name, fact.name, *texts)


def explain_differences(then: RunRecord, now: RunRecord, facts: Sequence[Fact] = KEYED) -> str:
    """Say in one line in which facts two records differ; where an older arithmetic is one, what follows."""
    found = find_fact_differences(then, now, facts)
    text = "; ".join(map(str, found))
    if any(each.fact == "arithmetic of training" for each in found) and training_arithmetic(then):
        version, commit = then.provenance.get("bench"), (then.provenance.get("git") or {}).get("commit")
        at = f", commit {commit[:12]}" if commit else ""
        by = f"to add to what was trained by arithmetic {training_arithmetic(then)}"
        text += f"; {by}, install cse-bench {version}{at}"
    return text


def is_same_result(then: RunRecord, now: RunRecord) -> bool:
    """True if both say the same to the last bit: scores, similarities, training; versions and times aside."""
    return fact_values(then, FAMILY) == fact_values(now, FAMILY) and is_same_measurement(then, now)


def specification_fields(record: RunRecord) -> dict[str, Any]:
    """Return the fields of a run's specification that repeat a record.

    Raises:
        DataError: a value that no ``bench run`` takes.
    """
    found = {}
    for fact in (fact for fact in FACTS if fact.parameter):
        value = fact.value(record)
        if value not in fact.choices or isinstance(value, bool):
            first, last = fact.choices[0], fact.choices[-1]
            raise DataError(
                f"the record says {fact.name} '{value}'",
                where=record.method,
                expected=f"{first} to {last}"
                if isinstance(first, int)
                else f"one of {', '.join(fact.choices)}",
            )
        found[fact.parameter] = value
    return found
