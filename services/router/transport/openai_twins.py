"""Members that stand twice in a worker's frame, of which a parsed copy knows the last alone: what the first says must neither
reach a client nor be lost. Pure; `openai_frames.py` imports it.

An exact look is taken only where the text holds such a name more often than the parsed copy.
"""

import json
from typing import Any

from services.common import json_members
from services.router.transport.openai_error_shape import NAMES, WORDS, says

# Letters of ASCII written as escapes: a name may be written so.
_ESCAPED = (b"\\u006", b"\\u007")
_TELLING = NAMES | WORDS
_INNER = ("delta", "message")


def without_empty_errors(text: bytes, frame: dict[str, Any]) -> bytes:
    """The text of a frame that is no error, without members that could be taken for one: those that stand twice, whatever
    the first says, and empty ones, which libraries take for an error by their name. A lone null stays as it is."""
    taken: dict[str, bytes | None] = {}
    for name, value in frame.items():
        if (folded := name.casefold()) not in _TELLING:
            continue
        is_empty_error = folded in NAMES and value is not None
        if is_empty_error or (_may_stand_twice(text, name) and _count(text, name) > 1):
            taken[name] = None
    return json_members.replace(text, taken) if taken else text


def contradicts_itself(text: bytes, frame: dict[str, Any]) -> bool:
    """Whether a choice says two things of how it ended: two reasons, or an error that a later one takes back."""
    said = frame.get("choices")
    if not said or not isinstance(said, list):
        return False
    choices = [each for each in said if isinstance(each, dict)]
    if (
        text.count(b'"finish_reason"') <= len(choices)
        and (b'"error"' not in text or text.count(b'"error"') <= _errors(frame, choices))
        and not _has_escapes(text)
    ):
        return False
    try:
        # Numbers are not looked at, and may be of any size.
        exact = json.loads(text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return True
    return any(_is_doubtful(each) for each in exact["choices"] if isinstance(each, _Pairs))


class _Pairs(dict[str, Any]):
    """An object that remembers members that were overwritten."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs if len(pairs) > len(self) else []

    def said(self, name: str) -> list[Any]:
        """What a member says, each time that it stands there with something in it."""
        return [value for other, value in self.pairs if other == name and says(value)]


def _is_doubtful(choice: _Pairs) -> bool:
    reasons = choice.said("finish_reason")
    if any(reason != reasons[0] for reason in reasons):
        return True
    # An error that is said last is seen by everybody.
    inner = [choice, *(choice[name] for name in _INNER if isinstance(choice.get(name), _Pairs))]
    return any(each.said("error") for each in inner)


def _errors(frame: dict[str, Any], choices: list[dict[str, Any]]) -> int:
    """How often the parsed copy has a member `error`."""
    inner = [each[name] for each in choices for name in _INNER if isinstance(each.get(name), dict)]
    return sum("error" in each for each in (frame, *choices, *inner))


def _may_stand_twice(text: bytes, name: str) -> bool:
    return text.count(json.dumps(name).encode()) != 1 or _has_escapes(text)


def _count(text: bytes, name: str) -> int:
    return sum(span.name == name for span in json_members.spans(text))


def _has_escapes(text: bytes) -> bool:
    return _ESCAPED[0] in text or _ESCAPED[1] in text
