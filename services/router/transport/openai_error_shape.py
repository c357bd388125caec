"""Whether what a worker sent is an error rather than a part of an answer. Pure; the OpenAI transport's readers import it.

Servers write an error's members on frames that are none (`"error": null`, `"message": ""`), and structs of theirs with nothing
in them. So it is looked at what a member says, and an empty one is an error only where it is all that there is.
"""

from typing import Any

from services.router.safe_text import PLAIN

# Names of members that say that something went wrong, whatever else a frame holds.
NAMES = frozenset({"error", "error_message", "errormessage", "exception", "fault"})
# No part of an answer holds these: a frame that does would tell the client of the worker's inside.
WORDS = frozenset({"detail", "errors", "message", "msg"})
_GOOD_CODES = frozenset({"0", "200", "ok", "success"})
# What is nested deeper says something.
_DEEPEST = 6


def is_error(value: Any) -> bool:
    """Whether a JSON object is an error rather than a part of an answer."""
    if not isinstance(value, dict):
        return False
    if value.get("object") == "error" or value.get("type") == "error":
        return True
    named = [told for name, told in value.items() if name.casefold() in NAMES and told is not None]
    if any(map(says, named)):
        return True
    choices = value.get("choices")
    if choices:
        return isinstance(choices, list) and any(map(_choice_failed, choices))
    if value.get("data"):
        return False
    if says(value.get("detail")) or says(value.get("errors")):
        return True
    if says(value.get("message")) or says(value.get("msg")):
        return not _is_remark(value)
    if value.get("usage") or isinstance(choices, list) or _has_good_code(value):
        return False
    return any(told is not False for told in named) or any(value.get(name) not in (None, []) for name in WORDS)


def says(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether anything stands in a member: not null, no blank text, zero or false, nor objects and lists of such alone."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return bool(value)
    return any(depth == 0 or says(each, depth - 1) for each in value)


def _choice_failed(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    return says(choice.get("error")) or (isinstance(delta, dict) and says(delta.get("error")))


def _is_remark(value: dict[str, Any]) -> bool:
    """Whether a message without choices is no error: beside a code that says that all is well, or counts and no code. It must
    be fit for a client's eyes."""
    if not (_has_good_code(value) or (value.get("usage") and value.get("code") is None)):
        return False
    told = [value[name] for name in ("message", "msg") if says(value.get(name))]
    return all(isinstance(text, str) and PLAIN(text) == text.strip() for text in told)


def _has_good_code(value: dict[str, Any]) -> bool:
    code = value.get("code")
    return (type(code) is int and code in (0, 200)) or (isinstance(code, str) and code.casefold() in _GOOD_CODES)
