"""Usage objects: how fuzzers make them, and how the contract reads them (section 6), written apart from the product."""

from typing import Any

from tests.fuzz.choices import Choices

LARGEST = 2**31 - 1

# Prompt, cached, completion; and whether one of them was there but is no count.
Counts = tuple[int | None, int | None, int | None, bool]


def made(choices: Choices) -> Any:
    """Anything that a worker may send as `usage`."""
    kind = choices.below(8)
    if kind == 7:
        return choices.pick((None, {}, [], "5", 0))
    usage: dict[str, Any] = {}
    if kind != 6:
        usage["prompt_tokens"] = choices.number() if kind in (0, 3) else choices.below(40)
    if kind != 5:
        usage["completion_tokens"] = choices.number() if kind in (1, 3) else choices.below(40)
    if kind in (2, 3):
        usage["prompt_tokens_details"] = choices.pick(({"cached_tokens": choices.number()}, None, {}, [], {"x": 1}))
    if choices.flag():
        usage["total_tokens"] = choices.number()
    return usage


def read(usage: Any) -> Counts | None:
    """What is reported; None if nothing is."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    written = [usage.get("prompt_tokens"), cached, usage.get("completion_tokens")]
    if written == [None, None, None]:
        return None
    read = [each if _is_count(each) else None for each in written]
    malformed = any(each is not None and not _is_count(each) for each in written)
    return read[0], read[1], read[2], malformed


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
