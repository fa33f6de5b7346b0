"""The facts that determine a result, in one table, ``FACTS``.

Keys of records, families and stages, the specification of a repetition and reported differences use it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from bench.errors import DataError
from bench.records.environment import plugin_identities, provenance_reader, read_cpu, read_gpu, read_versions
from bench.records.record import RunRecord

LATEST: dict[str, Any] = {
    "mlm_term": 0.0, "mlm_share": 0.15, "noise_negatives": 0, "repetition_unit": "subword",
    "student_loss": "mse", "student_queue": 65536, "student_scale": 1.0, "pooler": "cls", "freeze_layers": 0,
    "kernel": "exponential", "kernel_power": 4.0, "nu_after": 1.0, "augs": "sf+rv+de+rp", "posi_cst": True,
    "peer_coop": True, "fix_peer": False, "engine": "zca", "prompt_form": "text", "prompt_init": "tokens",
    "prompt_head": "tanh", "noise_gradient": True, "fresh_pooler": "each", "ltn_input": "pooler",
    "train_pooling": "auto", "lora_rank": 0, "lora_alpha": 16.0, "lora_dropout": 0.0,
    "lora_targets": "all-linear", "lora_base": "fp32", "chunk": 0, "checkpoint_layers": False,
}  # fmt: skip
"""Options of LATER that keys of records, stages and members leave out at these values."""
LATER = {"text": "train", "pooling": "cls", "sick": False, "drop_norms": 0} | LATEST
LATER |= dict.fromkeys(("prompt", "query_prompt", "passage_prompt"), "")
"""Options that older records lack, with the value that held before."""
_DETERMINED = (
    *("prompt", "prompts", "similarity", "pooling", "dtype", "folder_dtype", "parameters"),
    *("adapter", "routes", "unread", "unread_settings", "length", "coverage", "own_code"),
    "reads",
)
"""Facts of an encoder that its options and weights determine; with _FROM: their source."""
_FROM = "_from"


def drop_latest_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options, or settings of a stage, that differ from their value in LATEST."""
    return {name: value for name, value in options.items() if name not in LATEST or value != LATEST[name]}


def drop_keyed_facts(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the facts of an encoder that its key leaves open."""
    return {name: v for name, v in (facts or {}).items() if name.removesuffix(_FROM) not in _DETERMINED}


UNSET, NONE = "not set", "none"
Reader = Callable[[RunRecord], Any]


@dataclass(frozen=True)
class Fact:
    """A fact that determines a result, or may change its last digits."""

    # "encoder" and "evaluation" facts enter the key; "machine" facts may change digits only. Entries
    # of a mapping get names of their own: "option lr".
    name: str
    read: Reader
    default: Any = None  # for records that lack it
    of: Literal["encoder", "evaluation", "machine"] = "encoder"
    breaks: bool = True  # the gate refuses results that differ in it
    in_family: bool = True  # it separates averages over seeds
    in_stage: bool = False  # it enters the key of each training stage
    show: Callable[[RunRecord], str] | None = None  # for messages, such as a name next to a hash
    parameter: str = ""  # field of a run's specification, for ``bench verify RECORD.json --rerun``
    choices: tuple[Any, ...] = ()  # values that the field accepts
    later: bool = False  # keys leave it out at its default, so that earlier keys stay valid

    @property
    def keyed(self) -> bool:
        """True if it enters the key."""
        return self.of != "machine"

    def value(self, record: RunRecord) -> Any:
        """Return its value in a record, or the default."""
        value = self.read(record)
        return self.default if value is None else value


def _hash_fact(name: str, block: Reader, label: str = "name", *, in_stage: bool = False) -> Fact:
    """Return the fact of a block with a hash; messages show its label next to the hash."""

    def sha256(record: RunRecord) -> str | None:
        content = block(record)
        return identity_hash(content) if content else None

    def show(record: RunRecord) -> str:
        content = block(record)
        return f"{content.get(label)} {identity_hash(content)[:8]}" if content else NONE

    return Fact(name, sha256, in_stage=in_stage, show=show)


def identity_hash(named: Mapping[str, Any]) -> str:
    """Return the hash of a block; for a backbone made by a recipe the recipe's."""
    return str(named.get("recipe") or named["sha256"])


def _identity_hashes(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: identity_hash(fact) for name, fact in facts.items()}


def _made_weights_hash(record: RunRecord) -> str | None:
    """Return the hash of the weights of a backbone made by a recipe, which vary with the processor."""
    backbone = record.backbone or {}
    return str(backbone["sha256"])[:12] if "recipe" in backbone else None


def _member_facts(training: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the methods that a method builds on at any depth; drop defaults of the latest options."""
    members = {}
    for role, member in training.get("members", {}).items():
        facts = {**member, "options": drop_latest_defaults(member["options"])}
        if "recipe" in (member.get("backbone") or {}):
            facts["backbone"] = {**member["backbone"], "sha256": ""}
        if "members" in member:
            facts["members"] = _member_facts(member)
        members[role] = facts
    return members


def _stage_blocks(record: RunRecord) -> dict[str, dict[str, Any]]:
    blocks: dict[str, dict[str, Any]] = record.training.get("stages", {})
    return blocks


def _stage_texts(record: RunRecord) -> dict[str, str]:
    return _identity_hashes({role: s["text"] for role, s in _stage_blocks(record).items() if "text" in s})


def _stage_settings(record: RunRecord) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for role, stage in _stage_blocks(record).items():
        settings |= {f"{role} {name}": value for name, value in stage.get("settings", {}).items()}
    return settings


def _training_reader(name: str, older: str) -> Reader:
    """Return a reader of a setting that all stages share; before schema 3 single stages had it."""

    def read(record: RunRecord) -> Any:
        of_stages = [stage[older] for stage in _stage_blocks(record).values() if older in stage]
        return record.training.get(name, max(of_stages, default=None))

    return read


def training_arithmetic(record: RunRecord) -> int:
    """Return the version of the training arithmetic, 0 for an untrained encoder."""
    return int(_training_reader("arithmetic", "numerics")(record) or bool(_stage_blocks(record)))


def _evaluation_reader(name: str, block: str, older: str) -> Reader:
    """Return a reader of an evaluation setting, which before schema 3 was in the provenance."""
    return lambda record: record.evaluation.get(name, record.provenance.get(block, {}).get(older))


def _setting(name: str, read: Reader, default: Any, **given: Any) -> Fact:
    """Return the fact of a setting that the user asks for: ``parameter``, ``choices`` and more of a Fact."""
    return Fact(name, read, default, **{"breaks": False, "in_stage": True, **given})


_PRECISION = _training_reader("precision", "precision")
_TRAIN_PRECISION = {"parameter": "train_precision", "choices": ("fp32", "tf32", "bf16", "bf16-weights")}
_COMPILED = {"parameter": "compiled", "choices": (NONE, "inductor", "graphs"), "later": True}
_RANKS = {"parameter": "ranks", "choices": tuple(range(1, 1025))}
_DEVICE = {"parameter": "device", "choices": ("cpu", "cuda", "mps")}
_THREADS = {"parameter": "threads", "choices": tuple(range(1, 257))}
_OF_EVALUATION: dict[str, Any] = {"of": "evaluation", "breaks": True, "in_stage": False}
_SOLVER = {"parameter": "transfer_solver", "choices": ("exact", "sgd"), **_OF_EVALUATION}
_LOWERED = {"parameter": "precision", "choices": ("fp32", "bf16", "fp16"), **_OF_EVALUATION}
_read_solver = _evaluation_reader("solver", "transfer", "solver")
_read_precision = _evaluation_reader("precision", "evaluation_precision", "name")
FACTS = (
    Fact("method", lambda r: r.name),
    Fact("method version", lambda r: r.version),
    Fact("plug-in file", lambda r: plugin_identities(r.provenance), in_stage=True),
    Fact("option", lambda r: {n: v for n, v in r.options.items() if LATER.get(n, UNSET) != v}),
    _hash_fact("weights", lambda r: r.backbone, in_stage=True),
    Fact("base of", lambda r: (r.backbone or {}).get("bases"), {}, later=True),
    Fact("auxiliary model", lambda r: _identity_hashes(r.training.get("auxiliaries", {})), in_stage=True),
    Fact("member", lambda r: _member_facts(r.training)),
    _hash_fact("training text", lambda r: r.training.get("corpus")),
    Fact("training text of stage", _stage_texts),
    _hash_fact("dev set", lambda r: r.training.get("dev"), "task", in_stage=True),
    Fact("version of stage", lambda r: {role: s.get("version", 1) for role, s in _stage_blocks(r).items()}),
    Fact("setting of stage", _stage_settings),
    Fact("arithmetic of training", training_arithmetic, in_stage=True),
    _setting("training precision", _PRECISION, "fp32", breaks=True, **_TRAIN_PRECISION),
    # until 2026-11-28 in modules, whatever the architecture
    Fact("dropout set in", lambda r: r.training.get("dropout"), "modules", in_stage=True, later=True),
    _setting("compilation", lambda r: r.training.get("compiled"), NONE, **_COMPILED),
    _setting("ranks", _training_reader("ranks", "ranks"), 1, **_RANKS),
    _setting("device", lambda r: str(r.provenance.get("device")).split(" ")[0], None, **_DEVICE),
    _setting("threads", lambda r: r.provenance.get("threads"), None, **_THREADS),
    Fact("seeds", lambda r: NONE if r.seed is None else "several"),
    Fact("seed", lambda r: r.seed, breaks=False, in_family=False),
    Fact("suite", lambda r: r.suite, of="evaluation"),
    Fact("data", lambda r: _identity_hashes(r.tasks), of="evaluation"),
    Fact("world", lambda r: r.world or {}, of="evaluation"),
    Fact("version of the evaluation", lambda r: r.evaluation.get("version"), 1, "evaluation"),
    _setting("transfer solver", _read_solver, "exact", **_SOLVER),
    _setting("precision", _read_precision, "fp32", **_LOWERED),
    Fact("weights as made", _made_weights_hash, of="machine", breaks=False),
    Fact("Python", provenance_reader("python"), of="machine", breaks=False),
    Fact("platform", provenance_reader("platform"), of="machine", breaks=False),
    Fact("GPU", read_gpu, of="machine", breaks=False),
    Fact("version of", read_versions, of="machine", breaks=False),
    Fact("encoder's", lambda r: drop_keyed_facts(r.provenance.get("encoder")), of="machine", breaks=False),
    Fact("CPU", read_cpu, of="machine", breaks=False),
)
KEYED = tuple(filter(attrgetter("keyed"), FACTS))
FAMILY = tuple(filter(attrgetter("in_family"), KEYED))
ENCODER_FACTS = tuple(fact for fact in FACTS if fact.of == "encoder")
IN_STAGE = tuple(filter(attrgetter("in_stage"), FACTS))
BREAKING = tuple(filter(attrgetter("breaks"), FACTS))
MACHINE = tuple(fact for fact in FACTS if fact.of == "machine")
JUDGED = tuple(fact for fact in FACTS if fact.name == "plug-in file")
GATED = tuple(fact for fact in BREAKING if fact not in JUDGED)
"""Facts that must agree for the gate, which judges changed code."""
SPECIFICATION = tuple(filter(attrgetter("breaks"), FAMILY))
SETTING = tuple(fact for fact in FAMILY if not fact.breaks)
"""Device and threads change last digits; compilation and ranks change draws like another seed."""


@dataclass(frozen=True)
class FactDifference:
    """A differing fact of two records; ``name`` includes the entry of a mapping."""

    fact: str
    name: str
    then: str
    now: str

    def __str__(self) -> str:
        """Format for messages."""
        return f"{self.name} then {self.then}, now {self.now}"


def format_fact_value(value: Any) -> str:
    """Format a value for messages: a hash by its beginning, a member by its method, true or false."""
    if isinstance(value, Mapping):
        return str(value.get("method", dict(value)))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text


def hash_canonical_json(facts: object) -> str:
    """Return the sha256 of facts in canonical JSON."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def fact_values(record: RunRecord, facts: Sequence[Fact]) -> dict[str, Any]:
    """Return the values of some facts by name; drop later ones at their default."""
    values = {}
    for fact in facts:
        value = fact.value(record)
        if not (fact.later and value == fact.default):
            values[fact.name] = value
    return values


def compute_record_key(record: RunRecord) -> str:
    """Return the sha256 of everything that determines the scores: equal key, equal result."""
    return hash_canonical_json(fact_values(record, KEYED))


def compute_family_key(record: RunRecord) -> str:
    """Return the key of all seeds: only records of one family are averaged."""
    return hash_canonical_json(fact_values(record, FAMILY))


def find_fact_differences(
    then: RunRecord, now: RunRecord, facts: Sequence[Fact] = KEYED
) -> tuple[FactDifference, ...]:
    """Return the differing facts of two records, the entries of a mapping one by one."""
    return tuple(difference for fact in facts for difference in _compare_fact(fact, then, now))


def _compare_fact(fact: Fact, then: RunRecord, now: RunRecord) -> Iterator[FactDifference]:
    values = fact.value(then), fact.value(now)
    if values[0] == values[1]:
        return
    if all(isinstance(value, Mapping) for value in values):
        old, new = ({**value} for value in values)
        if fact.name == "option":
            # The values leave out defaults of later options. A record of another method may lack such an
            # option: there a default is in the record itself.
            later = LATER if then.name == now.name else {}
            old, new = ({**later, **r.options, **v} for r, v in zip((then, now), (old, new), strict=True))
        for name in dict.fromkeys([*values[0], *values[1]]):
            entries = old.get(name, UNSET), new.get(name, UNSET)
            if entries[0] != entries[1]:
                yield FactDifference(fact.name, f"{fact.name} {name}", *map(format_fact_value, entries))
        return
    texts = []
    for value, record in zip(values, (then, now), strict=True):
        if value in (None, ""):
            texts.append(NONE)
        else:
            texts.append(fact.show(record) if fact.show else format_fact_value(value))
    yield FactDifference(fact.name, fact.name, *texts)


def explain_differences(then: RunRecord, now: RunRecord, facts: Sequence[Fact] = KEYED) -> str:
    """Return the differing facts of two records in one line, with a remedy for an older arithmetic."""
    differences = find_fact_differences(then, now, facts)
    text = "; ".join(map(str, differences))
    arithmetic = training_arithmetic(then)
    if arithmetic and any(difference.fact == "arithmetic of training" for difference in differences):
        text += f"; to add to what was trained by arithmetic {arithmetic}"
        text += f", install cse-bench {then.provenance.get('bench')}"
        if commit := (then.provenance.get("git") or {}).get("commit"):
            text += f", commit {commit[:12]}"
    return text


def specification_fields(record: RunRecord) -> dict[str, Any]:
    """Return the fields of a run's specification that repeat a record; raises DataError for a wrong value."""
    fields = {}
    for fact in filter(attrgetter("parameter"), FACTS):
        value, choices = fact.value(record), fact.choices
        if value not in choices or isinstance(value, bool):
            numbers = isinstance(choices[0], int)
            expected = f"{choices[0]} to {choices[-1]}" if numbers else f"one of {', '.join(choices)}"
            raise DataError(f"the record says {fact.name} '{value}'", where=record.method, expected=expected)
        fields[fact.parameter] = value
    return fields


def machine_facts(record: RunRecord) -> dict[str, str]:
    """Return versions, device, threads, ranks and CPU of a record: equal facts give equal bytes."""
    facts: dict[str, str] = {}
    for fact in (*SETTING, *MACHINE):
        value = fact.value(record)
        if isinstance(value, Mapping):
            facts |= {name: str(entry) for name, entry in value.items() if entry is not None}
        elif value not in (None, ""):
            facts[fact.name] = str(value)
    return facts


def machine_differences(
    then: Sequence[RunRecord], now: Sequence[RunRecord]
) -> tuple[tuple[str, list[str], list[str]], ...]:
    """Return (name, values then, values now) of versions and hardware that differ between two sides."""
    before, after = _machine_values(then), _machine_values(now)
    rows = ((name, values, after.get(name)) for name, values in before.items())
    return tuple((name, was, is_now) for name, was, is_now in rows if is_now is not None and was != is_now)


def machine_warnings(then: Sequence[RunRecord], now: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line for each version or hardware that differs."""
    lines = []
    for name, was, is_now in machine_differences(then, now):
        lines.append(f"{name} then {' and '.join(was)}, now {' and '.join(is_now)}")
    return tuple(lines)


def _machine_values(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    values: dict[str, set[str]] = {}
    for facts in map(machine_facts, records):
        for name, value in facts.items():
            values.setdefault(name, set()).add(value)
    return {name: sorted(texts) for name, texts in values.items()}
