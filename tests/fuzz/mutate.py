"""Damage to bytes, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
    """One damage to a file's bytes."""
    kinds: Sequence[Callable[[bytes, Dice], bytes]] = (
        lambda b, d: b[: d.below(len(b) + 1)],
        _insert,
        _flip,
        _on_a_line(lambda lines, d: lines.pop(d.below(len(lines)))),
        _on_a_line(lambda lines, d: lines.insert(d.below(len(lines)), d.pick(lines))),
        _on_a_line(_join),
        lambda b, _: b"\xef\xbb\xbf" + b,
        lambda b, _: b.replace(b"\n", b"\r\n"),
        lambda b, _: b.decode("utf-8", "replace").encode("utf-16"),
        lambda b, _: b.decode("utf-8", "replace").encode("latin-1", "replace"),
        lambda b, _: b"",
        lambda b, _: b + b"\n",
        lambda b, d: b + b"\x00" * d.below(5),
        *(_change_field,) * 3,
    )
    return dice.pick(kinds)(raw, dice)


def damaged(raw: bytes, steps: Sequence[Dice]) -> bytes:
    """A file's bytes after one damage a step."""
    for step in steps:
        raw = bytes_of(raw, step)
    return raw


def difference(before: bytes, after: bytes) -> str:
    """Lines that a damaged text has and the good one has not, cut to what can be read."""
    good, new = set(before.splitlines()), after.splitlines()
    return (
        f"{[line.strip() for line in new if line not in good]!r:.1500}, {len(good - set(new))} line(s) less"
    )


def _insert(raw: bytes, dice: Dice) -> bytes:
    place = dice.below(len(raw) + 1)
    return raw[:place] + dice.pick(_ODD_BYTES) + raw[place:]


def _flip(raw: bytes, dice: Dice) -> bytes:
    if not raw:
        return raw
    place = dice.below(len(raw))
    return raw[:place] + bytes([dice.below(256)]) + raw[place + 1 :]


def _on_a_line(change: Callable[[list[bytes], Dice], object]) -> Callable[[bytes, Dice], bytes]:
    def damage(raw: bytes, dice: Dice) -> bytes:
        lines = raw.splitlines(keepends=True)
        if lines:
            change(lines, dice)
        return b"".join(lines)

    return damage


def _join(lines: list[bytes], dice: Dice) -> None:
    place = dice.below(len(lines))
    lines[place] = lines[place].rstrip(b"\r\n")


def _change_field(raw: bytes, dice: Dice) -> bytes:
    """Another text in one field of one line, whatever separates them."""
    lines = raw.split(b"\n")
    place = dice.below(len(lines))
    separator = next((s for s in (b"\t", b",", b" ") if s in lines[place]), b" ")
    fields = lines[place].split(separator)
    junk = dice.pick(NUMBERS if dice.chance(0.6) else JUNK).encode("utf-8", "surrogateescape")
    number = dice.below(len(fields))
    if dice.chance(0.2):
        fields.insert(number, junk)
    elif dice.chance(0.2):
        del fields[number]
    else:
        fields[number] = junk
    lines[place] = separator.join(fields)
    return b"\n".join(lines)


def text_of(text: str, dice: Dice) -> str:
    """One damage to a text: a character more, less or other, or a junk token."""
    place = dice.below(len(text) + 1)
    kind = dice.below(5)
    if kind == 0:
        return text[:place]
    if kind == 1:
        return text[:place] + text[place + 1 :]
    if kind == 2:
        return text[:place] + dice.pick(JUNK) + text[place:]
    if kind == 3:
        return text[:place] + dice.pick("=[]:,.#-+ \t\n\r0159aZ_\"'\\{}") + text[place + 1 :]
    return dice.pick(JUNK)


def arguments_of(arguments: list[str], dice: Dice) -> list[str]:
    """One damage to a command line: most often to a value, else a token more, less or twice."""
    found = list(arguments)
    values = [place for place, token in enumerate(found) if place and not token.startswith("-")]
    if values and dice.chance(0.7):
        place = dice.pick(values)
        found[place] = dice.pick(JUNK) if dice.chance(0.3) else text_of(found[place], dice)
        return found
    place, kind = dice.below(len(found) + 1), dice.below(4)
    if kind == 0 or place == len(found):
        found.insert(place, dice.pick(JUNK))
    elif kind == 1:
        del found[place]
    elif kind == 2:
        found.insert(place, dice.pick(found))
    else:
        found[place] = text_of(found[place], dice)
    return found


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
    """One damage to what a JSON text holds: a value, a key, an entry, somewhere."""
    places = _places(data)
    if not places:
        return dice.pick(_VALUES)
    parent, key = dice.pick(places)
    kind = dice.below(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[dice.pick(("extra", "", "value", "seed", "\ud800"))] = dice.pick(_VALUES)
    elif kind == 1 or (kind == 2 and isinstance(parent, list)):
        parent.append(_copy(parent[key]))
    elif kind == 2:
        other = dice.pick(places)
        parent[key] = _copy(other[0][other[1]])
    elif kind < 6 and isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
        parent[key] = _other_number(parent[key], dice)
    elif kind < 6 and isinstance(parent[key], str) and dice.chance(0.7):
        parent[key] = text_of(parent[key], dice)
    else:
        parent[key] = _copy(dice.pick(_VALUES))
    return data


def _other_number(value: float, dice: Dice) -> Any:
    new = dice.pick((-value, value + 1, value * 1.5, 1 - dice.number(), str(value), [value], 0.1 + 0.2))
    return int(new) if isinstance(value, int) and isinstance(new, float) and dice.chance(0.7) else new


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every (parent, key or index) of nested dicts and lists."""
    found: list[tuple[Any, Any]] = []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        found.append((data, key))
        found += _places(value)
    return found


def json_bytes(data: Any, dice: Dice) -> bytes:
    """A JSON text of it, at times with a key twice; lone surrogates stay, escaped."""
    text = json.dumps(data, indent=2, sort_keys=True)
    if dice.chance(0.1):
        lines = text.split("\n")
        pairs = [n for n, line in enumerate(lines) if ": " in line and line.rstrip().endswith((",", '"'))]
        if pairs:
            place = dice.pick(pairs)
            name = lines[place].partition(":")[0]
            lines.insert(place, f"{name}: {dice.pick(('0.25', '1', 'null', chr(34) + 'twice' + chr(34)))},")
            text = "\n".join(lines)
    return text.encode()
