"""Names that look like other names: letters of one alphabet in place of another's.

The table has the letters that common typefaces draw as a Latin one. Latin letters alone, such as ``l`` and
``I``, are left to the reader.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from bench.records.record import RunRecord
from bench.registry import METHODS

_TWINS = {  # Cyrillic, Greek, Armenian and Cherokee letters, and small capitals
    "a": "\u0430\u0251\u03b1", "c": "\u0441\u03f2\u1d04", "d": "\u0501", "e": "\u0435\u04bd",
    "g": "\u0261\u0581", "h": "\u04bb\u0570", "i": "\u0456\u0131\u03b9\u0269", "j": "\u0458\u03f3",
    "l": "\u04cf", "n": "\u0578", "o": "\u043e\u03bf\u0585\u1d0f", "p": "\u0440\u03c1", "q": "\u051b\u0566",
    "s": "\u0455\ua731", "u": "\u057d\u03c5\u1d1c", "v": "\u0475\u03bd\u1d20", "w": "\u051d\u0461\u1d21",
    "x": "\u0445\u03c7", "y": "\u0443\u04af", "z": "\u1d22", "A": "\u0410\u0391\u13aa",
    "B": "\u0412\u0392\u13f4", "C": "\u0421\u03f9\u13df", "D": "\u13a0", "E": "\u0415\u0395\u13ac",
    "G": "\u050c", "H": "\u041d\u0397\u13bb", "I": "\u0406\u0399\u04c0", "J": "\u0408\u037f\u13ab",
    "K": "\u041a\u039a\u13e6", "L": "\u13de", "M": "\u041c\u039c\u13b7", "N": "\u039d",
    "O": "\u041e\u039f\u0555", "P": "\u0420\u03a1\u13e2", "S": "\u0405\u054f\u13da",
    "T": "\u0422\u03a4\u13a2", "V": "\u0474\u13d9", "W": "\u051c\u13b3", "X": "\u0425\u03a7",
    "Y": "\u04ae\u03a5", "Z": "\u0396\u13c3",
}  # fmt: skip
_LATIN_OF = {twin: latin for latin, twins in _TWINS.items() for twin in twins}
_SMALL_CAPITAL = "LATIN LETTER SMALL CAPITAL "
_WORD = re.compile(r"[^\W_]+")
_BESIDE_LATIN = {"LATIN", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "DIGIT", "SUPERSCRIPT"}
"""First words in the Unicode names of characters that stand beside Latin letters in honest words."""
_BLANK = "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
_BLANK += "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
_INVISIBLE = re.compile(f"[{_BLANK}]")
"""What typefaces draw as nothing (Unicode's default ignorable code points) or as a blank."""


def write_in_latin(name: str) -> str:
    r"""Return a name with Latin letters in place of those that look like them, without marks on letters.

    >>> write_in_latin("sim\u0441se")
    'simcse'
    """
    letters = []
    for char in unicodedata.normalize("NFKD", _INVISIBLE.sub("", name)):
        full = unicodedata.name(char, "")
        latin = full.removeprefix(_SMALL_CAPITAL) if full.startswith(_SMALL_CAPITAL) else ""
        if unicodedata.category(char) != "Mn":
            letters.append(latin.lower() if len(latin) == 1 else _LATIN_OF.get(char, char))
    return "".join(letters)


def find_look_alike(name: str) -> str:
    """Return the fault of a name that poses as a Latin one, or "".

    Faults are characters that nobody sees, forms of Latin letters and digits such as full-width ones, marks
    on Latin letters that no letter has, words that mix Latin letters with look-alikes or other alphabets, and
    names that look like a registered method. Greek letters that look like no Latin one may stand in a
    Latin word. Names in one alphabet are free.
    """
    if name != " ".join(name.split(" ")).strip(" ") or "  " in name:
        return f"'{name}' has a blank at an end, or two in a row"
    if name.isascii():
        return ""
    if unseen := _INVISIBLE.search(name):
        return f"'{name}' looks like '{write_in_latin(name)}', and has {_describe(unseen[0])}"
    composed = unicodedata.normalize("NFC", name)
    odd = [char for char in composed if _is_latin_form(char)]
    for before, char in pairwise(composed):
        if unicodedata.combining(char) and _script(before) == "LATIN":
            odd.append(char)
    for word in _WORD.findall(composed):
        odd += _find_mixed_letters(word)
    heads = {composed, re.split(r"[\[:=]", composed)[0]}
    known = {method.casefold() for method in METHODS.names()}
    if not odd and any(write_in_latin(head).casefold() in known for head in heads):
        odd = [char for char in composed if not char.isascii()]
    if odd:
        return f"'{name}' looks like '{write_in_latin(name)}', and has {_describe(odd[0])}"
    return ""


def _find_mixed_letters(word: str) -> list[str]:
    """Return the characters of a word with Latin letters that are of another alphabet, or look like Latin."""
    if not any(_script(char) == "LATIN" for char in word):
        return []
    odd = []
    for char in word:
        script = _script(char)
        foreign = script not in _BESIDE_LATIN and script not in ("GREEK", "MICRO")
        if foreign or (char in _LATIN_OF and script != "LATIN"):
            odd.append(char)
    return odd


def _script(char: str) -> str:
    """Return the first word of a character's Unicode name, which is the alphabet of most letters."""
    return "LATIN" if char.isascii() and char.isalpha() else unicodedata.name(char, "").partition(" ")[0]


def _describe(char: str) -> str:
    return f"the character U+{ord(char):04X} ({unicodedata.name(char, 'unnamed')})"


def find_record_look_alike(record: RunRecord) -> str:
    """Return the fault of the first such name that tables show of a record, or ""."""
    names = (record.profile, record.method, record.name, record.suite, *record.tasks)
    return next(filter(None, map(find_look_alike, names)), "")


def _is_latin_form(char: str) -> bool:
    """Return whether a character is another form of Latin ones: full-width, mathematical, a ligature.

    Superscript digits are none: everybody sees them.
    """
    folded = unicodedata.normalize("NFKC", char)
    return folded != char and folded.isascii() and unicodedata.category(char) != "No"
