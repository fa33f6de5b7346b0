"""Damage to bytes, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tests.fuzz.core import Dice

JUNK = (
    *("", " ", "-", "--", "=", ",", "[", "]", "[]", "a[b=c", "a]b", ":", ".", "..", "/", "../..", "#", "#1"),
    *("\N{LATIN SMALL LETTER E WITH ACUTE}", "\u4e2d", "\u202e", "\x1b[31m", "\udcff", "\u2028", "\x85"),
    *("9" * 30, "-1", "nan", "inf", "-inf", "1e309", "1_000", "0x10", "1.5", "\u0661", "NaN", "None", "true"),
    *("%s", "{}", "{0}", "$(x)", "'", '"', "`", "\\", "x" * 300, "x" * 5000, "1-2-3", "5-1", "1,,2", "a=b"),
)
NUMBERS = (
    *("nan", "inf", "-inf", "1e400", "-1", "", " ", "5,0", "1_0", "0_1", "0x1", "\u0663", "1e-400", "00005"),
    *("3.0000000000000001", "5.1", "-0.0", "9" * 400, "4." + "3" * 400, "1e", "--1", "+2", "1.", ".5", "2 3"),
)
_ODD_BYTES = (b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b'"', b"\xc3", b"\x85", b"\xe2\x80\xa8")


def bytes_of(raw: bytes, dice: Dice) -> bytes:
    """Damage a file's bytes once."""
    lines = raw.splitlines(keepends=True) or [b""]
    line, place, byte = dice.randrange(len(lines)), dice.randrange(len(raw) + 1), bytes([dice.randrange(256)])
    text = raw.decode("utf-8", "replace")
    return dice.choice((
        raw[:place], b"", raw + b"\n", raw + b"\x00" * dice.randrange(5),
        raw[:place] + dice.choice(_ODD_BYTES) + raw[place:],
        raw[:place] + byte + raw[place + 1 :],
        b"".join(lines[:line] + lines[line + 1 :]),
        b"".join([*lines[:line], dice.choice(lines), *lines[line:]]),
        b"".join([*lines[:line], lines[line].rstrip(b"\r\n"), *lines[line + 1 :]]),
        b"\xef\xbb\xbf" + raw,
        raw.replace(b"\n", b"\r\n"),
        text.encode("utf-16"),
        text.encode("latin-1", "replace"),
        *(_change_field(raw, dice),) * 3,
    ))  # fmt: skip


def damaged(raw: bytes, steps: Sequence[Dice]) -> bytes:
    """Damage a file's bytes once a step."""
    for step in steps:
        raw = bytes_of(raw, step)
    return raw


def difference(before: bytes, after: bytes) -> str:
    """Describe the new lines of a damaged text, cut to a readable length."""
    good, new = set(before.splitlines()), after.splitlines()
    added = [line.strip() for line in new if line not in good]
    return f"{added!r:.1500}, {len(good - set(new))} line(s) less"


def _change_field(raw: bytes, dice: Dice) -> bytes:
    """Replace, insert or delete one field of one line, whatever separates them."""
    lines = raw.split(b"\n")
    place = dice.randrange(len(lines))
    separator = next((s for s in (b"\t", b",", b" ") if s in lines[place]), b" ")
    fields = lines[place].split(separator)
    junk = dice.choice(NUMBERS if dice.chance(0.6) else JUNK).encode("utf-8", "surrogateescape")
    number, kind = dice.randrange(len(fields)), dice.random()
    fields[number : number + (kind > 0.2)] = [junk] if kind < 0.2 or kind > 0.36 else []
    lines[place] = separator.join(fields)
    return b"\n".join(lines)


def text_of(text: str, dice: Dice) -> str:
    """Damage a text once: a character more, less or other, or a junk token."""
    place = dice.randrange(len(text) + 1)
    before, after, junk = text[:place], text[place + 1 :], dice.choice(JUNK)
    other = dice.choice("=[]:,.#-+ \t\n\r0159aZ_\"'\\{}")
    return dice.choice((before, before + after, before + junk + text[place:], before + other + after, junk))


def arguments_of(arguments: list[str], dice: Dice) -> list[str]:
    """Damage a command line once: mostly a value, otherwise a token more, less or twice."""
    tokens = list(arguments)
    values = [place for place, token in enumerate(tokens) if place and not token.startswith("-")]
    if values and dice.chance(0.7):
        place = dice.choice(values)
        tokens[place] = dice.choice(JUNK) if dice.chance(0.3) else text_of(tokens[place], dice)
        return tokens
    place, kind = dice.randrange(len(tokens) + 1), dice.randrange(4)
    if kind == 0 or place == len(tokens):
        tokens.insert(place, dice.choice(JUNK))
    elif kind == 1:
        del tokens[place]
    elif kind == 2:
        tokens.insert(place, dice.choice(tokens))
    else:
        tokens[place] = text_of(tokens[place], dice)
    return tokens


HUGE = 10**400
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, HUGE, 0.5, -0.5, 1e308, 1e-320, 2.5),
    *(float("nan"), float("inf"), float("-inf")),
    *("nan", "Infinity", "1", "", "x", "\x00", "\ud800", "\x1b[2J"),
    *("<script>", "../../x", [], {}, [[]], [1], {"a": 1}, ["x"], [None], {"": None}, {"sha256": "x"}),
    *([[1, 0.5]], [[[[[]]]]], "x" * 3000, [0] * 50),
)
"""What replaces a good value: other types, other ranges."""


def json_of(data: Any, dice: Dice) -> Any:
    """Damage the contents of a JSON text once: a value, a key or an entry."""
    places = _places(data)
    if not places:
        return dice.choice(_VALUES)
    parent, key = dice.choice(places)
    kind = dice.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[dice.choice(("extra", "", "value", "seed", "\ud800"))] = dice.choice(_VALUES)
    elif kind == 1 or (kind == 2 and isinstance(parent, list)):
        parent.append(deepcopy(parent[key]))
    elif kind == 2:
        other = dice.choice(places)
        parent[key] = deepcopy(other[0][other[1]])
    elif kind < 6 and isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
        parent[key] = _other_number(parent[key], dice)
    elif kind < 6 and isinstance(parent[key], str) and dice.chance(0.7):
        parent[key] = text_of(parent[key], dice)
    else:
        parent[key] = deepcopy(dice.choice(_VALUES))
    return data


def _other_number(value: float, dice: Dice) -> Any:
    new = dice.choice((-value, value + 1, value * 2, 1 - dice.random(), str(value), [value], 0.1 + 0.2))
    return int(new) if isinstance(value, int) and isinstance(new, float) and dice.chance(0.7) else new


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Return every (parent, key or index) of nested dicts and lists."""
    places: list[tuple[Any, Any]] = []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        places += [(data, key), *_places(value)]
    return places


def json_bytes(data: Any, dice: Dice) -> bytes:
    """Write a JSON text, at times with a repeated key; lone surrogates stay, escaped."""
    lines = json.dumps(data, indent=2, sort_keys=True).split("\n")
    pairs = [n for n, line in enumerate(lines) if ": " in line and line.rstrip().endswith((",", '"'))]
    if pairs and dice.chance(0.1):
        place = dice.choice(pairs)
        name = lines[place].partition(":")[0]
        lines.insert(place, f"{name}: {dice.choice(('0.25', '1', 'null', 'true'))},")
    return "\n".join(lines).encode()
