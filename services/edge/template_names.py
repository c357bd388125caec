"""Templates in a request: refused wherever they stand, since they would run on the gateway or the worker. Pure; request modules
import it.

Looked for by name, in every object of the body. Not in texts, and not below the members listed here: there a client describes
data of its own (a tool's parameters, the shape of an answer, what a tool was called with), so that the name is a property of it
like any other. No runtime reads a template from there; the schema goes to the grammar's compiler and is printed as JSON. An
object that is none of these has no such excuse: `tools[0].function.chat_template` is refused.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from services.edge import fields

_NAMES = frozenset({"chat_template", "chat_template_path", "injected_chat_template_kwargs"})
# A name without escapes has this in it; with escapes, the other.
_TRACE, _ESCAPE = b"chat_template", b"\\u00"
# `*` stands for each item of a list.
_CLIENTS_OWN = frozenset({
    ("tools", "*", "function", "parameters"),
    # Of tools in the form of other APIs.
    ("tools", "*", "parameters"), ("tools", "*", "input_schema"),
    ("functions", "*", "parameters"),
    ("messages", "*", "tool_calls", "*", "function", "arguments"), ("messages", "*", "function_call", "arguments"),
    # Tools of one message, as some runtimes have them.
    ("messages", "*", "tools", "*", "function", "parameters"),
    ("response_format", "json_schema", "schema"), ("response_format", "schema"),
    ("response_format", "structures", "*", "schema"), ("response_format", "format"),
    ("guided_json",), ("json_schema",), ("structured_outputs", "json"),
})  # fmt: skip
# All ways to them; whatever leaves these needs no further look at its way.
_WAYS = frozenset(own[:length] for own in _CLIENTS_OWN for length in range(len(own) + 1))
_MAX_PATH = 256

# Where a value stands, the last part first: a body may be deep and wide at once.
_Place = tuple["_Place | None", str | int]
_Way = tuple[str, ...] | None


def refuse(body: Mapping[str, Any], texts: Iterable[bytes]) -> None:
    """400 that names the first template in the body. `texts`: the members as they were written."""
    # Most bodies have none, and large ones need not be walked to see it.
    if not any(_TRACE in text or _ESCAPE in text for text in texts) and not _NAMES & body.keys():
        return
    path = _found(body)
    if path is not None:
        fields.refuse(path, f"{path!r} is not taken from requests: the model's template is its operator's.")


def _found(body: Mapping[str, Any]) -> str | None:
    stack: list[tuple[Any, _Place | None, _Way]] = [(body, None, ())]
    while stack:
        value, place, way = stack.pop()
        if way in _CLIENTS_OWN:
            continue
        if isinstance(value, dict):
            for name, item in value.items():
                if name in _NAMES and item is not None:
                    return _shown((place, name))
            inner = [(item, (place, name), _further(way, name)) for name, item in value.items() if _is_container(item)]
        else:
            further = _further(way, "*")
            inner = [(item, (place, index), further) for index, item in enumerate(value) if _is_container(item)]
        # What stands first is looked at first.
        stack += reversed(inner)
    return None


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def _further(way: _Way, name: str) -> _Way:
    further = None if way is None else (*way, name)
    return further if further in _WAYS else None


def _shown(place: _Place) -> str:
    parts: list[str] = []
    at: _Place | None = place
    while at is not None:
        at, part = at
        parts.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    text = "".join(reversed(parts)).removeprefix(".")
    if len(text) <= _MAX_PATH:
        return text
    # Names are the client's and may be long; the last says what is wrong.
    return f"{text[: _MAX_PATH - len(parts[0]) - 3]}...{parts[0]}"
