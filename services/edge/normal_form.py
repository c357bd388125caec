"""How long a text is in the normal form NFKC, without the price of making it. Pure; `prompt_size.py` imports it.

Making the form is slow where characters fall apart into many (U+FDFA becomes 18) and quadratic in a run of combining marks,
and nothing else runs meanwhile. So characters are counted first: the sum of what each falls apart into is a bound on the form,
since composing shrinks a text and ordering leaves its length. Only where that bound is above the raw text, and the form is
cheap, is the form made, in pieces: then the answer is exact.
"""

import re
import unicodedata
from collections import Counter
from functools import lru_cache

# Texts up to here are looked at in one call.
_SHORT = 256
# One call counts at most so many characters, since other threads wait for it.
_STRIDE = 64 * 1024
# A form is made where at most one character of so many changes by itself, ...
_CHANGING = 16
# ... and at most one of so many is a combining mark.
_MARKS = 4
# A new piece may begin at such a character: it neither composes with what is before it nor moves.
_SAFE = re.compile(r"[\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]")


def string_bytes(text: str) -> int:
    """UTF-8 bytes of a string: the larger of raw and NFKC form, or a bound above both where that form is costly."""
    if text.isascii():
        return len(text)
    raw = len(text.encode())
    if len(text) <= _SHORT and unicodedata.is_normalized("NFKC", text):
        return raw
    fallen = changing = marks = 0
    for character, count in _counted(text).items():
        size, changes, is_mark = _fate(character)
        fallen += size * count
        changing += count if changes else 0
        marks += count if is_mark else 0
    if fallen <= raw:
        return raw
    if changing * _CHANGING > len(text) or marks * _MARKS > len(text):
        return fallen
    return max(raw, _form_bytes(text))


def _counted(text: str) -> Counter[str]:
    if len(text) <= _STRIDE:
        return Counter(text)
    counts: Counter[str] = Counter()
    for start in range(0, len(text), _STRIDE):
        counts.update(text[start : start + _STRIDE])
    return counts


@lru_cache(16 * 1024)
def _fate(character: str) -> tuple[int, bool, bool]:
    """(bytes of what it falls apart into, whether the form has something else in its place, whether it is a mark)"""
    if character.isascii():
        return 1, False, False
    apart = unicodedata.normalize("NFKD", character)
    changes = unicodedata.normalize("NFKC", character) != character
    return len(apart.encode()), changes, unicodedata.combining(apart[0]) > 0


def _form_bytes(text: str) -> int:
    """The form's bytes, from pieces that begin where nothing reaches over."""
    total = start = 0
    while start < len(text):
        cut = _SAFE.search(text, start + _SHORT, start + 2 * _SHORT)
        end = cut.start() if cut else len(text) if len(text) <= start + 2 * _SHORT else 0
        if end:
            total += len(unicodedata.normalize("NFKC", text[start:end]).encode())
        else:
            # No place to cut at: what each character falls apart into, up to the next one.
            further = _SAFE.search(text, start + 2 * _SHORT)
            end = further.start() if further else len(text)
            total += sum(_fate(character)[0] * count for character, count in _counted(text[start:end]).items())
        start = end
    return total
