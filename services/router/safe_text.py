"""A worker's words as a client may see them: no traceback, source path, address or credential, and bounded. Pure; the
transports import it.

What a worker's registration holds (its key, the values of its headers, where it is) is known exactly and taken out first;
the rest is known by its looks: credentials here, `safe_text_code.py` for places in a program, `safe_text_places.py` for where
things are. Only characters that can be seen are left to look at (`services/common/visible_text.py`). Of a long text only the
beginning is looked at, and each pattern looks at a character a bounded number of times, so that no worker can keep us busy.
"""

import re
from collections.abc import Iterable

from services.common.visible_text import MASK, plain
from services.router.safe_text_code import without_code
from services.router.safe_text_places import without_places

MAX_CHARACTERS = 2000
# More than is shown, since what is masked becomes shorter.
MAX_SEEN = 4 * MAX_CHARACTERS
# Where the text was cut, a word may be a credential whose beginning alone does not look like one.
MAX_CUT_WORD = 200
# Shorter values of headers stand in too many words, and are no secrets.
MIN_SECRET_CHARACTERS = 4

# From here on it is only about the inside: Python's tracebacks, pybind11's, and frames of native code.
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|File \"[^\"\n]{1,500}\", line \d+|(?:^|\n)[ \t]{0,20}At:[ \t]{0,20}\n"
    r"|(?:^|\s)[#\[]?\d{1,3}[:\]]?\s{1,20}0x[0-9a-f]{3}[0-9a-f]{0,13}\b",
    re.IGNORECASE,
)
# From a name to its value, in JSON within JSON and in Python's own forms, too.
_TO_VALUE = r"(?:\\{0,3}[\"']\s{0,5},|\\{0,3}[\"']?\s{0,5}[=:])\s{0,5}\\{0,3}b?"
_QUOTED = r"\"(?:[^\"\\\n]|\\.){0,8000}|'(?:[^'\\\n]|\\.){0,8000}"
# Values of headers have spaces in them: quoted, or the rest of the line.
_LINE = _TO_VALUE + rf"(?:{_QUOTED}|[^\n]*)"
_WORD = _TO_VALUE + rf"(?:{_QUOTED}|[^\s\"',;&]+)"
_CREDENTIAL = re.compile(
    # The block of a key, or all that is left of the text.
    r"-----BEGIN [A-Z0-9 ]{1,40}-----(?:(?!-----END )[\s\S]){0,8000}(?:-----END [A-Z0-9 ]{1,40}-----)?"
    r"|(?i:\b(?:proxy-)?authorization" + _LINE + ")"
    r"|(?i:\b(?:set-)?cookie2?" + _LINE + ")"
    r"|(?i:\bBearer\s{1,20}\S+)"
    # A word after `Basic` is one only if it looks encoded.
    r"|(?i:\bBasic)\s{1,20}(?=[a-z+/]{0,200}[A-Z0-9=])[A-Za-z0-9+/]{4}[A-Za-z0-9+/]*"
    # Of the environment.
    r"|\b(?:[A-Z][A-Z0-9]{0,40}_){1,6}(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PWD)\s{0,2}[=:]\s{0,2}[^\s\"',;&]+"
    r"|(?i:\b(?:sk-|nvapi-|gh[opsu]_|github_pat_|xox[a-z]-|hf_|glpat-|[rsp]k_(?:live|test)_)[\w-]{4}[\w-]*)"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12}[0-9A-Z]*|\bAIza[\w-]{20}[\w-]*|\bya29\.[\w-]{10}[\w-]*"
    r"|\bssh-(?:rsa|dss|ed25519)\s{1,5}AAAA\S*"
    r"|\beyJ[\w-]{8,2000}\.[\w.-]*"
    r"|(?i:(?:api[_ -]?key|(?:access|account|auth|client|private|secret|session|signing)[_ -]?(?:key|token|secret)|password"
    r"|passwd|passphrase)(?:\s(?:is|was|provided|given|used))?" + _WORD + ")"
    # Without a sign between: a word with a digit is no English.
    r"|(?i:\b(?:api[_ -]?key|(?:access|auth|secret)[_ -](?:key|token)|password)\s{1,3}"
    r"(?:(?:is|was|provided|given|used)\s{1,3})?[\"'(]?(?=[\w./+-]{0,200}\d)[\w./+=-]{6}[\w./+=-]*)"
    # Long and mixed, after what names such things.
    r"|(?i:\b(?:key|token|secret)(?:\s{0,3}[:=])?\s{0,3}[\"']?(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[a-z])[\w-]{24}[\w-]*)"
    r"|(?i:\b(?:token|secret|signature|sig)=[^\s\"',;&]{6}[^\s\"',;&]*)"
)
# What a credential's padding or quote leaves behind.
_LEFT = re.compile(re.escape(MASK) + "={1,2}")


class SafeText:
    """The rules for one worker, which know what its registration holds."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known: set[str] = set()
        for secret in map(plain, secrets):
            # `Bearer abc` is also told as `abc`.
            known.update(part for part in (secret.strip(), *secret.split()) if len(part) >= MIN_SECRET_CHARACTERS)
        # The longest first, so that no part of it is left beside a mask.
        self._known = sorted(known, key=lambda part: (-len(part), part))

    def __call__(self, text: str, max_characters: int = MAX_CHARACTERS) -> str:
        """The text without what nobody outside may see; may be empty."""
        text = _beginning(self.without_known(text))
        found = _TRACEBACK.search(text)
        if found is not None:
            text = text[: found.start()]
        text = _LEFT.sub(MASK, _CREDENTIAL.sub(MASK, text))
        return without_places(without_code(text))[:max_characters].strip()

    def without_known(self, text: str) -> str:
        """The text without what is known to be secret, and otherwise as it is: what operators may see."""
        text = plain(text)
        for secret in self._known:
            text = text.replace(secret, MASK)
        return text


def _beginning(text: str) -> str:
    """As much as is looked at, without a word that the cut goes through."""
    if len(text) <= MAX_SEEN:
        return text
    seen = text[:MAX_SEEN]
    last = seen[-MAX_CUT_WORD:].split()[-1:]
    return seen[: seen.rindex(last[0])] if last else seen


# For texts of nobody's registration.
PLAIN = SafeText()
