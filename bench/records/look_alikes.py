"""Names that look like other names: letters of one alphabet in place of another's.

The table has the letters that common typefaces draw as a Latin one. Latin letters alone, such as ``l`` and
``I``, are left to the reader.
"""

from __future__ import annotations

import re
import unicodedata

from bench.records.record import RunRecord

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
_WORD = re.compile(r"[^\W\d_]+")


def write_in_latin(name: str) -> str:
    r"""Return a name with Latin letters in place of those that look like them.

    >>> write_in_latin("sim\u0441se")
    'simcse'
    """
    folded = unicodedata.normalize("NFKC", name)
    return "".join(_LATIN_OF.get(char, char) for char in folded)


def find_look_alike(name: str) -> str:
    """Return the fault of a name that poses as a Latin one, or "".

    Every word of the name is judged alone: Latin letters beside Cyrillic ones or beside look-alikes, forms of
    Latin letters such as full-width ones, and words of nothing but look-alikes are faults.
    """
    if name.isascii():
        return ""
    for word in _WORD.findall(name):
        foreign = [char for char in word if not char.isascii()]
        odd = [char for char in foreign if char in _LATIN_OF or _is_latin_form(char)]
        latin = any("LATIN" in unicodedata.name(char, "") for char in word)
        if latin and not odd:
            odd = [char for char in foreign if unicodedata.name(char, "").startswith("CYRILLIC")]
        if odd and (latin or len(odd) == len(word)):
            letter = f"{odd[0]} ({unicodedata.name(odd[0], 'unnamed')})"
            return f"'{name}' looks like '{write_in_latin(name)}', and has the letter {letter}"
    return ""


def find_record_look_alike(record: RunRecord) -> str:
    """Return the fault of the first such name that tables show of a record, or ""."""
    names = (record.profile, record.method, record.name, record.suite, *record.tasks)
    return next(filter(None, map(find_look_alike, names)), "")


def _is_latin_form(char: str) -> bool:
    """Return whether a character is another form of Latin letters: full-width, mathematical, a ligature."""
    folded = unicodedata.normalize("NFKC", char)
    return folded != char and folded.isascii()
