"""Messages: their text, and what is in them that is not text. Pure; `chat_request.py` imports it.

Images come as data URLs only: an address would have the worker fetch what the client names. Other media have no bound on
the tokens that they become, so no hold can be made for them.
"""

from typing import Any

from services.edge.fields import refuse
from services.edge.prompt_size import printed_bytes, string_bytes, value_bytes

# A worker may go by the name of a member and ignore `type`, so the names are what is looked at.
_IMAGES = ("image_url", "image", "input_image")
_OTHER = (
    "input_audio",
    "audio_url",
    "audio",
    "video_url",
    "video",
    "file",
    "input_file",
    "file_url",
    "image_pil",
    "image_embeds",
    "audio_embeds",
)


def measure(messages: list[dict[str, Any]]) -> tuple[int, int]:
    """(bytes of text, number of images). Refused (400) for anything that cannot be bounded or would be fetched."""
    size = images = 0
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message.get("role"), str) or not message["role"]:
            refuse(f"{where}.role", f"'{where}.role' must be a string that is not empty.")
        for name, value in message.items():
            if name == "content":
                text, found = _content(value, f"{where}.content")
                size += text
                images += found
            elif isinstance(value, dict | list):
                # Tool calls and the like: a template may print them as JSON.
                size += printed_bytes(value)
            else:
                size += value_bytes(value)
        if "audio" in message and message["audio"] is not None:
            refuse(f"{where}.audio", "Audio is not supported.")
    return size, images


def _content(content: Any, where: str) -> tuple[int, int]:
    if content is None:
        return 0, 0
    if isinstance(content, str):
        return string_bytes(content), 0
    if not isinstance(content, list):
        refuse(where, f"'{where}' must be a string or a list of parts.")
    size = images = 0
    for index, part in enumerate(content):
        place = f"{where}[{index}]"
        if isinstance(part, str):
            size += string_bytes(part)
            continue
        if not isinstance(part, dict):
            refuse(place, f"'{place}' must be an object.")
        kind = part.get("type")
        if kind is not None and not isinstance(kind, str):
            refuse(f"{place}.type", f"'{place}.type' must be a string.")
        for name in _OTHER:
            if part.get(name) is not None or kind == name:
                refuse(place, f"'{place}': {name} is not supported.")
        for name, value in part.items():
            if name in _IMAGES:
                images += _image(value, f"{place}.{name}")
            else:
                size += value_bytes(value)
        if kind in _IMAGES and not any(part.get(name) for name in _IMAGES):
            refuse(place, f"'{place}' has no image.")
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
