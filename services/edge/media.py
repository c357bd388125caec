"""Messages: their text, and what is in them that is not text. Pure; `chat_request.py` imports it.

Images come as data URLs only: an address would have the worker fetch what the client names. Other media have no bound on
the tokens that they become, so no hold can be made for them. What a part may be is a list of what is known; a name that
speaks of media and is not on it is refused wherever it stands.
"""

import re
from dataclasses import dataclass
from typing import Any

from services.edge.fields import refuse
from services.edge.normal_form import string_bytes
from services.edge.prompt_size import printed_bytes, value_bytes

_TEXT_KINDS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
# A worker may go by the name of a member and ignore `type`.
_IMAGES = ("image_url", "image", "input_image")
# Of all messages together: none is dear, and a body has room for millions.
MAX_PARTS = 16 * 1024
_MEDIA = re.compile(r"image|video|audio|media|file|url|document|embed|pixel|waveform", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Measured:
    """What is in all messages together."""

    text_bytes: int
    images: int
    # The part that holds the first of them, as an error names it; empty where there is none.
    first_image: str


def measure(messages: list[dict[str, Any]]) -> Measured:
    """Refused (400) for anything that cannot be bounded or would be fetched."""
    size = images = parts = 0
    first_image = ""
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message.get("role"), str) or not message["role"]:
            refuse(f"{where}.role", f"'{where}.role' must be a string that is not empty.")
        for name, value in message.items():
            if name == "content":
                parts += len(value) if isinstance(value, list) else 0
                if parts > MAX_PARTS:
                    refuse(f"{where}.content", f"'messages' must have at most {MAX_PARTS} parts of content together.")
                text, pictured = _content(value, f"{where}.content")
                size += text
                images += sum(found for _, found in pictured)
                if pictured and not first_image:
                    first_image = pictured[0][0]
                continue
            if value is not None and _MEDIA.search(name):
                refuse(f"{where}.{name}", f"'{where}.{name}' is not supported; images stand in 'content'.")
            # Tool calls and the like: a template may print them as JSON.
            size += printed_bytes(value) if isinstance(value, dict | list) else value_bytes(value)
    return Measured(size, images, first_image)


def _content(content: Any, where: str) -> tuple[int, list[tuple[str, int]]]:
    """(bytes of text, the parts with images and how many each has)."""
    if content is None:
        return 0, []
    if isinstance(content, str):
        return string_bytes(content), []
    if not isinstance(content, list):
        refuse(where, f"'{where}' must be a string or a list of parts.")
    size = 0
    pictured: list[tuple[str, int]] = []
    for index, part in enumerate(content):
        place = f"{where}[{index}]"
        if isinstance(part, str):
            size += string_bytes(part)
            continue
        if not isinstance(part, dict):
            refuse(place, f"'{place}' must be an object.")
        text, found = _part(part, place)
        size += text
        if found:
            pictured.append((place, found))
    return size, pictured


def _part(part: dict[str, Any], place: str) -> tuple[int, int]:
    kind = part.get("type")
    if kind is not None and kind not in _IMAGES and (not isinstance(kind, str) or kind not in _TEXT_KINDS):
        known = ", ".join((*_TEXT_KINDS, *_IMAGES))
        refuse(f"{place}.type", f"'{place}.type' is not supported; the gateway takes {known}.")
    size = images = 0
    for name, value in part.items():
        if name in _IMAGES:
            images += _image(value, f"{place}.{name}")
        elif value is not None and _MEDIA.search(name):
            refuse(f"{place}.{name}", f"'{place}.{name}' is not supported.")
        else:
            size += value_bytes(value)
    if kind in _IMAGES and not images:
        refuse(place, f"'{place}' has no image.")
    if kind in _TEXT_KINDS and not isinstance(part.get(_TEXT_KINDS[kind]), str):
        refuse(f"{place}.{_TEXT_KINDS[kind]}", f"'{place}.{_TEXT_KINDS[kind]}' must be a string.")
    return size, images


def _image(value: Any, where: str) -> int:
    if value is None:
        return 0
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str) or not url:
        refuse(where, f"'{where}' must be an object with a 'url'.")
    if url[:5].lower() != "data:":
        refuse(where, f"'{where}': only data URLs are supported; remote media is never fetched.")
    return 1
