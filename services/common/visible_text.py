"""The characters of others' words (workers' messages, names): what a reader sees is what is there. Pure; anybody may import it.

Line feeds stay, since refusals have several lines. Every other control character goes, as do terminals' commands and what
changes the order in which others are read (a name may be written so that it looks like another one) or cannot be seen at all.
Joiners stay: Persian, Indic scripts and emoji are written with them. Half a surrogate pair is no text that can be sent.
"""

import re

MASK = "***"

_COMMAND = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,32}[ -/]{0,8}[@-~]"
    "|(?:\x1b\\]|\x9d)[^\x07\x1b\x9c\n]{0,500}(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]{0,4}[0-~]"
)
_LINE_END = re.compile("\r\n|[\r\x85\u2028\u2029]")
# White space of control.
_SPACE = re.compile("[\t\x0b\x0c\x1c-\x1f]")
_UNSEEN_CHARACTERS = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSEEN = re.compile(f"[{_UNSEEN_CHARACTERS}]")
_UNSEEN_IN_JSON = re.compile(f"[{_UNSEEN_CHARACTERS}\x85\u2028\u2029]")
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """The text in characters that can be seen, and line feeds."""
    if text.isprintable():
        return text
    text = _COMMAND.sub("", text)
    text = _LINE_END.sub("\n", text)
    text = _SPACE.sub(" ", text)
    return _HALF_PAIR.sub("\ufffd", _UNSEEN.sub("", text))


def escaped(json_text: str) -> str:
    """JSON of the same value, with all that `plain` takes away written as \\uXXXX; in JSON it stands in strings only."""
    return json_text if json_text.isascii() and "\x7f" not in json_text else _UNSEEN_IN_JSON.sub(_escape, json_text)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def is_name(text: str) -> bool:
    """Whether the text is one line in which all can be seen."""
    return "\n" not in text and plain(text) == text
