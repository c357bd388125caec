"""A worker's words as a client may see them: no traceback, source path, address or credential, and bounded. Pure; the
transports import it.

What a worker's registration holds (its key, the values of its headers, where it is) is known exactly and taken out first;
the rest is known by its looks. A number after a word is a port only where the word looks like a host's: `limit:4096` stays.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address

MASK = "***"
MAX_CHARACTERS = 2000
# Shorter values of headers stand in too many words, and are no secrets.
MIN_SECRET_CHARACTERS = 4

# From here on it is only about the inside: Python's tracebacks, pybind11's, and frames of native code.
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|File \"[^\"\n]*\", line \d+|(?:^|\n)\s*At:\s*\n"
    r"|(?:^|\s)[#\[]?\d{1,3}[:\]]?\s+0x[0-9a-f]{3,}\b",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(
    r"(?i:\bBearer\s+\S+)"
    # A word after `Basic` is one only if it looks encoded.
    r"|(?i:\bBasic)\s+(?=[a-z+/]*[A-Z0-9=])[A-Za-z0-9+/]{4,}={0,2}"
    r"|(?i:\b(?:sk-|nvapi-|gh[opsu]_|github_pat_|xox[a-z]-|hf_|glpat-)[\w-]{4,})|\bAKIA[0-9A-Z]{12,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"
    r"|(?i:(?:api[_-]?key|(?:access|auth|secret|session)[_-]?(?:key|token)|password|passwd|authorization)"
    r"[\"']?\s*[=:]\s*[\"']?[^\s\"',;&]+)"
)
_NAME = r"[a-z0-9](?:[a-z0-9-]{0,62}\.){1,10}"
_PLACE = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,30}://\S+"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"
    r"|\[[0-9a-f:.]{2,45}(?:%\w+)?\](?::\d{1,5})?"
    rf"|\b{_NAME}(?:internal|local|localdomain|lan|intranet|corp|svc)\b(?::\d{{1,5}}\b)?"
    rf"|\b(?:localhost|{_NAME}[a-z][a-z0-9-]{{0,62}}):\d{{1,5}}\b"
    # As containers are named: two words and more, and what is nearly always a port.
    r"|\b[a-z][a-z0-9]{0,62}(?:-[a-z0-9]{1,62}){1,8}:\d{4,5}\b"
    # Source files: below a root, or with the number of a line.
    r"|(?<![\w.])(?:/[\w.+@-]+){2,}(?::\d+|\(\d+\))?"
    r"|(?<![\w.])[\w./+-]{0,200}\w\.(?:pyx?|c|cc|cpp|cxx|cu|cuh|h|hpp|rs|go|so)(?::\d+|\(\d+\))",
    re.IGNORECASE,
)
# Whatever might be an IPv6 address without brackets; the library says whether it is.
_COLONS = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}:[0-9a-f.:]{1,42}(?:%\w{1,16})?(?![\w])", re.IGNORECASE)


class SafeText:
    """The rules for one worker, which know what its registration holds."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known: set[str] = set()
        for secret in secrets:
            # `Bearer abc` is also told as `abc`.
            known.update(part for part in (secret.strip(), *secret.split()) if len(part) >= MIN_SECRET_CHARACTERS)
        # The longest first, so that no part of it is left beside a mask.
        self._known = sorted(known, key=lambda part: (-len(part), part))

    def __call__(self, text: str, max_characters: int = MAX_CHARACTERS) -> str:
        """The text without what nobody outside may see; may be empty."""
        for secret in self._known:
            text = text.replace(secret, MASK)
        text = text[: 4 * MAX_CHARACTERS]
        found = _TRACEBACK.search(text)
        if found is not None:
            text = text[: found.start()]
        text = _CREDENTIAL.sub(MASK, text)
        text = _COLONS.sub(_ipv6, _PLACE.sub(MASK, text))
        return text[:max_characters].strip()


def _ipv6(found: re.Match[str]) -> str:
    text = found.group()
    address = text.rstrip(".:") if not text.endswith("::") else text
    try:
        IPv6Address(address)
    except ValueError:
        return text
    # Names of code may look so as well (`a::b`), but seldom with a digit.
    return MASK + text[len(address) :] if any(map(str.isdigit, address)) else text


# For texts of nobody's registration.
PLAIN = SafeText()
