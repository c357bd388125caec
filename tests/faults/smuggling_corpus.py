"""Requests that two readers of HTTP could read differently, byte for byte, each with a second request hidden in it.

REFUSED: answered with 4xx and closed, nothing dispatched. ONE: read as the one request that it is; what is hidden stays text.
NONE: read as the one request that it is, which is none for a model. EITHER: REFUSED by one of aiohttp's parsers, read as ONE
by the other; the edge has nothing in front of it that could be deceived by the difference.
"""

import json
from dataclasses import dataclass

from tests.fakes.scripted_billing import KEY
from tests.fakes.scripted_router import MODEL

REFUSED, ONE, NONE, EITHER = "refused", "one", "none", "either"
HIDDEN = b"smuggled-canary"


@dataclass(frozen=True)
class Case:
    """Bytes of one connection, and what comes of them."""

    name: str
    data: bytes
    outcome: str = REFUSED


def _body(text: str) -> bytes:
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}]}).encode()


LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
KEYED = f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n".encode()
HOST = b"Host: x\r\n"
BODY = _body("hello")
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
_INNER = _body(HIDDEN.decode())
SECOND = LINE + HOST + KEYED + b"Content-Length: %d\r\n\r\n" % len(_INNER) + _INNER
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
NUMBER = b"%d" % len(BODY)


def _head(*fields: bytes, line: bytes = LINE, host: bytes = HOST) -> bytes:
    return line + host + KEYED + b"".join(field + b"\r\n" for field in fields) + b"\r\n"


def _both(name: str, coding: bytes, outcome: str = REFUSED) -> Case:
    """A length that covers everything, and a coding that ends at once, so that the second request is body or request."""
    rest = b"0\r\n\r\n" + SECOND
    return Case(name, _head(b"Content-Length: %d" % len(rest), coding) + rest, outcome)


def _length(name: str, *fields: bytes, outcome: str = REFUSED) -> Case:
    """Lengths beside one another, or written otherwise; the second request follows where the usual reading ends."""
    return Case(name, _head(*fields) + BODY + (SECOND if outcome == REFUSED else b""), outcome)


def _chunks(name: str, body: bytes, outcome: str = REFUSED, coding: bytes = b"Transfer-Encoding: chunked") -> Case:
    return Case(name, _head(coding) + body + (SECOND if outcome == REFUSED else b""), outcome)


def _field(name: str, field: bytes, outcome: str = REFUSED) -> Case:
    """A field beside a sound request."""
    return Case(name, _head(field, LENGTH.strip()) + BODY + (SECOND if outcome == REFUSED else b""), outcome)


def _line(name: str, line: bytes, outcome: str = REFUSED, host: bytes = HOST) -> Case:
    return Case(
        name, _head(LENGTH.strip(), line=line, host=host) + BODY + (SECOND if outcome == REFUSED else b""), outcome
    )


_SIZE = b"%x" % len(BODY)
_SECOND_LENGTH = b"Content-Length: %d" % (len(BODY) + len(SECOND))

CASES = (
    # A length and a coding.
    _both("length, then coding", b"Transfer-Encoding: chunked"),
    Case("coding, then length", _head(b"Transfer-Encoding: chunked", LENGTH.strip()) + CHUNKS + SECOND),
    _both("coding in other letters", b"tRANSFER-eNCODING: cHUNKED"),
    _both("space before the colon", b"Transfer-Encoding : chunked"),
    _both("tab before the colon", b"Transfer-Encoding\t: chunked"),
    _both("tab after the colon", b"Transfer-Encoding:\tchunked"),
    _both("coding on a folded line", b"Transfer-Encoding:\r\n chunked"),
    _both("vertical tab before the coding", b"Transfer-Encoding: \x0bchunked"),
    _both("NUL after the coding", b"Transfer-Encoding: chunked\x00"),
    _both("NUL in the name", b"Transfer-Encoding\x00: chunked"),
    _both("identity and a length", b"Transfer-Encoding: identity"),
    _both("two codings on one line", b"Transfer-Encoding: identity, chunked"),
    _both("two codings on two lines", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
    _both("coding hidden behind a bare LF", b"X: y\nTransfer-Encoding: chunked"),
    _both("coding hidden behind a bare CR", b"X: y\rTransfer-Encoding: chunked"),
    Case("underscore in the coding's name", _head(b"Transfer_Encoding: chunked", LENGTH.strip()) + BODY, ONE),
    # Codings alone.
    _chunks("unknown coding", CHUNKS, coding=b"Transfer-Encoding: xchunked"),
    _chunks("chunked is not the last", CHUNKS, coding=b"Transfer-Encoding: chunked, identity"),
    _chunks("chunked twice", CHUNKS, coding=b"Transfer-Encoding: chunked, chunked"),
    _chunks("a coding in quotes", CHUNKS, coding=b'Transfer-Encoding: "chunked"'),
    _chunks("a coding with a parameter", CHUNKS, coding=b"Transfer-Encoding: chunked;q=1"),
    _chunks("chunked on two lines", CHUNKS, coding=b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
    Case("a coding under HTTP/1.0", _head(b"Transfer-Encoding: chunked", line=LINE.replace(b"1.1", b"1.0")) + CHUNKS + SECOND),
    _chunks("well-formed chunks", CHUNKS, ONE),
    _chunks("well-formed chunks in other letters", CHUNKS, ONE, b"transfer-encoding: Chunked"),
    # Lengths.
    _length("the same length twice", LENGTH.strip(), LENGTH.strip()),
    _length("two lengths, the longer first", _SECOND_LENGTH, LENGTH.strip()),
    _length("two lengths, the shorter first", LENGTH.strip(), _SECOND_LENGTH),
    _length("a list of lengths", b"Content-Length: %s, %s" % (NUMBER, NUMBER)),
    _length("a length with a plus", b"Content-Length: +" + NUMBER),
    _length("a length with a minus", b"Content-Length: -" + NUMBER),
    _length("a hexadecimal length", b"Content-Length: 0x" + _SIZE),
    _length("a length with an underscore", b"Content-Length: 1_0"),
    _length("a length with a space in it", b"Content-Length: 1 0"),
    _length("a length with a point", b"Content-Length: " + NUMBER + b".0"),
    _length("a length with an exponent", b"Content-Length: 1e2"),
    _length("an empty length", b"Content-Length:"),
    _length("a length in other digits", b"Content-Length: \xb2\xb3"),
    _length("a length beyond 64 bits", b"Content-Length: 184467440737095516160"),
    _length("a length in quotes", b'Content-Length: "%s"' % NUMBER),
    _length("a length with a semicolon", b"Content-Length: %s;" % NUMBER),
    _length("space before the length's colon", b"Content-Length : " + NUMBER),
    _length("a length on a folded line", b"Content-Length:\r\n " + NUMBER),
    _length("a length behind a bare LF", b"X: y\nContent-Length: " + NUMBER),
    _length("a length with spaces around it", b"Content-Length:  %s \t" % NUMBER, outcome=ONE),
    # Chunks.
    _chunks("chunk size with 0x", b"0x" + CHUNKS),
    _chunks("chunk size with a plus", b"+" + CHUNKS),
    _chunks("chunk size with a minus", b"-" + CHUNKS),
    _chunks("space before the chunk size", b" " + CHUNKS),
    _chunks("chunk size with an underscore", b"0_" + CHUNKS),
    _chunks("empty chunk size", b"\r\n" + CHUNKS),
    _chunks("chunk size of letters", b"zz\r\n" + BODY + b"\r\n0\r\n\r\n"),
    _chunks("chunk size beyond 64 bits", b"1" + b"0" * 16 + _SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
    _chunks("bare LF after the chunk size", CHUNKS.replace(b"\r\n", b"\n", 1)),
    _chunks("bare CR after the chunk size", CHUNKS.replace(b"\r\n", b"\r", 1)),
    _chunks("chunk longer than its size", b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY) - 1, BODY)),
    _chunks("bare LF after the chunk", b"%s\r\n%s\n0\r\n\r\n" % (_SIZE, BODY)),
    _chunks("nothing after the chunk", b"%s\r\n%s0\r\n\r\n" % (_SIZE, BODY)),
    _chunks("extension with a bare LF", b"%s;a\nb\r\n%s\r\n0\r\n\r\n" % (_SIZE, BODY)),
    _chunks("extension with a bare CR", b"%s;a\rb\r\n%s\r\n0\r\n\r\n" % (_SIZE, BODY), EITHER),
    _chunks("a long extension", b"%s;%s\r\n%s\r\n0\r\n\r\n" % (_SIZE, b"a" * 100_000, BODY), EITHER),
    _chunks("a plain extension", b"%s;a=b\r\n%s\r\n0\r\n\r\n" % (_SIZE, BODY), ONE),
    _chunks("trailers", CHUNKS[:-2] + b"X-Sum: 1\r\n\r\n", ONE),
    _chunks("trailers that name a length", CHUNKS[:-2] + b"Content-Length: 9999\r\n\r\n", EITHER),
    _chunks("a trailer without a colon", CHUNKS[:-2] + b"nonsense\r\n\r\n"),
    _chunks("ten thousand trailers", CHUNKS[:-2] + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"\r\n"),
    # Fields.
    _field("folded field", b"X-A: b\r\n c"),
    _field("space in a name", b"X A: b"),
    _field("no name", b": b"),
    _field("no colon", b"nonsense"),
    _field("NUL in a value", b"X-A: b\x00c"),
    _field("bare CR in a value", b"X-A: b\rc"),
    _field("bare LF in a value", b"X-A: b\nc"),
    _field("line that begins with a space", b" X-A: b"),
    _field("bytes beyond ASCII in a name", b"X-\xc3\xa9: b"),
    _field("parentheses in a name", b"X(A): b"),
    _field("a long value", b"X-A: " + b"b" * 9000),
    _field("a long name", b"X" * 9000 + b": b"),
    _field("ten thousand fields", b"\r\n".join(b"X-%d: y" % n for n in range(10_000))),
    _field("over a hundred fields", b"\r\n".join(b"X-%d: y" % n for n in range(101))),
    _field("a field of a megabyte", b"X-A: " + b"b" * 1_000_000),
    _field("underscore in a name", b"X_A: b", ONE),
    _field("the length is named hop-by-hop", b"Connection: content-length", ONE),
    _field("a second host", b"Host: y"),
    # First lines.
    Case("bare LFs throughout", (_head(LENGTH.strip()) + BODY + SECOND).replace(b"\r\n", b"\n")),
    _line("absolute form of another host", b"POST http://other.test/v1/chat/completions HTTP/1.1\r\n", ONE),
    _line("authority form", b"POST x:80 HTTP/1.1\r\n"),
    _line("asterisk form", b"POST * HTTP/1.1\r\n"),
    Case("CONNECT", b"CONNECT other.test:80 HTTP/1.1\r\nHost: x\r\n\r\n" + SECOND),
    Case("CONNECT with a body", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(SECOND) + SECOND),
    Case("CONNECT in chunks", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + SECOND),
    _line("TRACE", b"TRACE /v1/chat/completions HTTP/1.1\r\n", NONE),
    _line("two spaces", b"POST  /v1/chat/completions HTTP/1.1\r\n", EITHER),
    _line("a tab", b"POST\t/v1/chat/completions HTTP/1.1\r\n"),
    _line("space after the version", b"POST /v1/chat/completions HTTP/1.1 \r\n"),
    _line("space in the target", b"POST /v1/chat/completions x HTTP/1.1\r\n"),
    _line("NUL in the target", b"POST /v1/chat\x00/completions HTTP/1.1\r\n"),
    _line("bare CR in the target", b"POST /v1/chat/completions\r HTTP/1.1\r\n"),
    _line("no version (HTTP/0.9)", b"POST /v1/chat/completions\r\n"),
    _line("HTTP/2.0", b"POST /v1/chat/completions HTTP/2.0\r\n"),
    _line("HTTP/1.10", b"POST /v1/chat/completions HTTP/1.10\r\n"),
    _line("a version with a comma", b"POST /v1/chat/completions HTTP/1,1\r\n"),
    _line("another protocol", b"POST /v1/chat/completions HTTPS/1.1\r\n"),
    _line("a method that is none", b"PO(ST /v1/chat/completions HTTP/1.1\r\n"),
    _line("a long target", b"POST /v1/chat/completions?" + b"a" * 9000 + b" HTTP/1.1\r\n"),
    _line("no host", LINE, host=b""),
    Case("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + SECOND),
    Case("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + SECOND),
    Case("a second request after close", _head(b"Connection: close", LENGTH.strip()) + BODY + SECOND),
    Case("a second request in a body that is too large", _head(b"Content-Length: 99999999999") + SECOND),
    Case("a body on a GET", b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(SECOND) + SECOND, NONE),
    _field("an upgrade to h2c", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA", ONE),
)  # fmt: skip
