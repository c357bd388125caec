"""Where things are, in a worker's words: addresses, hosts, paths. Pure; imported by `safe_text.py` only.

What points into the client's own request looks like a path and stays: JSON pointers, references in a schema, the API's routes.
Names of hosts without a domain are `safe_text_hosts.py`'s.
"""

import re
from ipaddress import IPv6Address

from services.common.visible_text import MASK
from services.router.safe_text_hosts import REST, without_hosts

_NAME = r"[a-z0-9](?:[a-z0-9_-]{0,62}\.){1,10}"
# Domains with a meaning to a resolver only; of those that anybody may have, only names of three labels or more are taken.
_INNER = "internal|local|localdomain|lan|intranet|corp|svc"
_PUBLIC = (
    "com|net|org|io|dev|cloud|ai|app|edu|gov|eu|de|uk|us|cn|jp|kr|fr|ru|tech"
    "|cluster|consul|home|private|example|invalid|test"
)
# The beginnings of paths into a request.
_REQUEST = (
    "messages|tools|functions|properties|definitions|items|response_format|prompt|input|body|parameters|arguments"
)
_PLACE = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,30}://\S+"
    # gRPC's ways to name a place.
    r"|\b(?:unix(?:-abstract)?|vsock|ipv[46]|dns|ipc|inproc|file):(?=[\w/@\[.])[^\s\"',;)]+"
    # The same with their signs escaped; a model's name has one stroke.
    r"|\b[a-z][a-z0-9+.-]{0,30}%3a(?:%2f){2}\S+|(?<!\w)(?:%(?:25){0,3}2f[\w.+@-]{1,100}){2,30}"
    # Users of a system, and their numbers.
    r"|\be?[ug]id[=:]\s?\d{1,10}(?:\([\w.-]{1,64}\))?|\bgroups=\d{1,10}\([\w.-]{1,64}\)(?:,\d{1,10}\([\w.-]{1,64}\)){0,30}"
    r"|\b(?:user|username|login)(?:[=:]\s{0,3}|\s{1,3})[\"']?(?:root|ubuntu|nobody|daemon|jenkins|www-data|triton-server|ec2-user)\b"
    # An address as one number.
    r"|(?<![\w.:/-])\d{8,10}:\d{2,5}(?![\w:]|\.\d)"
    + REST
    +
    # A user's name and password before a host.
    r"|\b[\w.+-]{1,64}:[^\s@/:\"']{1,128}@[\w.-]{1,253}(?::\d{1,5})?"
    + REST
    +
    # Windows' paths, also with their backslashes doubled, and its shares.
    r"|(?<![a-z0-9])[a-z]:(?:\\{1,2}|/)(?:[^\\/\n\"'<>|:*?]{1,100}(?:\\{1,2}|/)){0,20}[^\s\\/\"'<>|:*?,;)]{0,100}"
    r"|(?<!\\)\\{2,4}[a-z0-9][\w.$-]{0,62}\\{1,2}[^\s\"',;)]+"
    # Below somebody's home, or where a variable says.
    r"|(?<![\w~])~(?:[a-z_][\w.-]{0,31})?/[\w.][^\s\"',;)]*"
    r"|\$(?!defs/)(?:\{[a-z_]{1,30}\}|[a-z_]{1,30})/[^\s\"',;)]+|%[a-z_]{1,30}%\\[^\s\"',;)]+"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"
    + REST
    + r"|\[[0-9a-f:.]{2,45}(?:%[\w.-]{1,20})?\](?::\d{1,5})?"
    + REST
    + rf"|\b{_NAME}(?:{_INNER})\b(?::\d{{1,5}}\b)?"
    + REST
    + rf"|(?<![\w.-])(?!(?:{_REQUEST})\.)(?=[a-z0-9-]{{0,62}}[a-z])(?:[a-z0-9][a-z0-9-]{{0,62}}\.){{2,10}}(?:{_PUBLIC})\b"
    r"(?![\w-]|\.\w)(?::\d{1,5}\b)?"
    + REST
    + rf"|\b(?:localhost|{_NAME}[a-z][a-z0-9-]{{0,62}}):\d{{1,5}}\b"
    + REST
    # Cards of the network and of graphics, and their places on the bus.
    + r"|\b(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b|\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}\b"
    r"|\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b"
    # As Python's and Go's clients tell it.
    r"|\b(?:host|hostname|peer|upstream|server|addr|address)=[\"']?[a-z0-9][\w.-]*|(?<=\blookup )[\w.-]{1,253}(?= on\b)"
    # Below a root, or here; one name alone only where a system says what it could not do with it.
    rf"|(?<![\w.#])(?!/(?:{_REQUEST})/)(?!/v1/(?:chat/completions|completions|embeddings|models)\b)"
    r"(?:/[\w.+@-]{1,100}){2,30}(?::\d{1,6}|\(\d{1,6}\))?"
    r"|(?<![\w.])\.{1,2}(?:/[\w.+@-]{1,100}){1,30}"
    r"|(?:(?<=denied: )|(?<=directory: )|(?<=exists: ))[\"']?/[^\s\"',;)]+",
    re.IGNORECASE,
)
# Whatever might be an IPv6 address without brackets; the library says whether it is.
_COLONS = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}:[0-9a-f.:]{1,42}(?:%[\w.-]{1,20})?(?![\w])", re.IGNORECASE)


def without_places(text: str) -> str:
    """The text with everything that tells where something is masked."""
    return _COLONS.sub(_ipv6, without_hosts(_PLACE.sub(MASK, text)))


def _ipv6(found: re.Match[str]) -> str:
    text = found.group()
    address = text.rstrip(".:") if not text.endswith("::") else text
    try:
        IPv6Address(address)
    except ValueError:
        return text
    # Names of code may look so as well (`a::b`), but seldom with a digit.
    return MASK + text[len(address) :] if any(map(str.isdigit, address)) else text
