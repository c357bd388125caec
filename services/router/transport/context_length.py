"""Whether a worker's refusal says that a request does not fit its context. Pure; both transports' errors import it.

Not whatever is too long: such a request goes once more without the gateway's own bound for the output, and that helps only
where prompt and output together did not fit. Not whatever names a context either: a server that cannot allocate one broke down.
"""

import re

_CONTEXT = r"\bcontext (?:length|size|window)\b"
_OVER = r"\b(?:exceed|(?:larger|greater|longer) than\b)"
_TOO_LONG = re.compile(
    r"\bmaximum (?:context|(?:input|sequence|prompt) length)\b"
    rf"|{_CONTEXT}.{{0,60}}(?:{_OVER}|\b(?:overflow|max|limit|fit|too|only|of \d))"
    rf"|(?:{_OVER}|\b(?:overflow|max|limit|fit|too|outside|beyond)).{{0,60}}{_CONTEXT}"
    rf"|\b(?:prompt|input|sequence|context|total|tokens?) (?:length|count|tokens?)\b.{{0,80}}{_OVER}"
    r"|\bexceed.{0,60}\b(?:context|max_model_len|max_seq_len)"
    rf"|\btokens?\b.{{0,80}}{_OVER}.{{0,80}}\b(?:max|context|limit|length)"
    rf"|\b(?:prompt|input|request)\b.{{0,40}}\btokens?\b.{{0,60}}(?:{_OVER}|\btoo long\b)",
    re.IGNORECASE | re.DOTALL,
)


def is_too_long(words: str) -> bool:
    """Whether the words are about the length of prompt and answer."""
    return _TOO_LONG.search(words) is not None
