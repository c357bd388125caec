"""Promise: a worker's words that reach a client are bounded, hold nothing that its registration holds, none of the things that
are known by their looks, wherever they stand between other words, and no character that nobody sees. Long texts are read in a
moment (the fuzzer's time limit for one input says so).
"""

import unicodedata

from services.router.safe_text import MAX_CHARACTERS, MIN_SECRET_CHARACTERS, SafeText
from tests.fuzz.choices import Choices

INSTRUMENTED = (
    "services.router.safe_text",
    "services.common.visible_text",
    "services.router.safe_text_code",
    "services.router.safe_text_hosts",
    "services.router.safe_text_places",
)
_SECRET_LETTERS = ("a", "b", "Z", "0", "9", "-", "_", ".", "/", "+", "=", ":", "é")
_WORDS = (
    "the", "engine", "failed", "at", "limit:4096", "a::b", ":", "::", "1.2.3", "-", "\n", "Basic", "Bearer", "[", "]", '"', "'",
    "0x", "#1", "File", "key=", "=", "//", "/", ".", "..", "é", "\x00", "localhost", "a-b", "x.py", "fe80", "%",
    "\x1b[", "\u202e", "\u200b", "\r", "port", "host", "line 3", "in", "a-1", "<a", "of", "+",
)  # fmt: skip
# Never to be seen, whatever stands beside them with a space between.
_HIDDEN = (
    "http://10.1.2.3:8000/v1", "grpc://triton-7.prod.svc:8001", "10.1.2.3:8000", "sk-abcdefgh12345678", "hf_abcdEFGH1234",
    "/opt/engine/model.py:17", "/usr/lib/libengine.so", "[fe80::1]:8000", "fe80::12:3", "worker-7.internal", "localhost:8000",
    "AKIAABCDEFGHIJKLMNOP", "password=hunter2", "gpu-node-7:8000",
    "gpu-node-17", "worker-3.cluster.local", "trt.prod.acme.com", "port 8000", "engine.py line 40", "0x7fff12345678",
    "api key=abc",
)  # fmt: skip
_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}


def check(data: bytes) -> None:
    """Secrets, then a text of words, secrets and things to hide, some of them very often."""
    choices = Choices(data)
    secrets = [choices.text(_SECRET_LETTERS, 20) for _ in range(choices.below(4))]
    if choices.flag():
        secrets.append("Bearer " + choices.text(_SECRET_LETTERS, 20))
    safe = SafeText(secrets)
    known = [
        part for secret in secrets for part in (secret.strip(), *secret.split()) if len(part) >= MIN_SECRET_CHARACTERS
    ]
    glue = choices.pick((" ", " ", "", "\n"))
    words: list[str] = []
    while choices.more and len(words) < 400:
        kind = choices.below(8)
        if kind == 0 and secrets:
            words.append(choices.pick(secrets))
        elif kind == 1:
            words.append(choices.pick(_HIDDEN))
        elif kind == 2:
            words.append(choices.pick(_WORDS) * (choices.below(40) * choices.below(40)))
        elif kind == 3:
            words.append(choices.take(choices.below(12)).decode("utf-8", "replace"))
        else:
            words.append(choices.pick(_WORDS))
    text = glue.join(words)
    bound = choices.pick((MAX_CHARACTERS, 200, 10))
    seen = safe(text, bound)
    assert len(seen) <= bound
    assert not _UNSEEN.intersection(map(unicodedata.category, seen.replace("\n", ""))), (
        "a character that cannot be seen"
    )
    assert not [secret for secret in known if secret in seen], "a secret of the registration"
    assert "Traceback (most recent call last)" not in seen
    if glue == " ":
        assert not [each for each in _HIDDEN if f" {each} " in f" {seen} "], "an address, a path or a credential"
