"""What of a worker's text a client may see."""

import re
from collections.abc import Iterator
from re import _constants as re_constants  # type: ignore[attr-defined]
from re import _parser as re_parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from services.common import visible_text
from services.common.visible_text import MASK
from services.router import safe_text, safe_text_code, safe_text_hosts, safe_text_places
from services.router.safe_text import MAX_CHARACTERS, MAX_SEEN, PLAIN, SafeText

REPEATS = (re_constants.MAX_REPEAT, re_constants.MIN_REPEAT, re_constants.POSSESSIVE_REPEAT)
# As many as there are characters at all.
MAX_TURNS = MAX_SEEN

NATIVE = (
    "[TensorRT-LLM][ERROR] Assertion failed: bad beam (/home/jenkins/agent/cpp/batch.cpp:57)\n"
    "1       0x7fe3a2c41 /usr/local/lib/libtensorrt_llm.so(+0x81) [0x7fe3a2c41]\n2  0x7f /usr/lib/libc.so.6"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        # Tracebacks.
        ('x\nTraceback (most recent call last):\n  File "/a.py", line 3', "x"),
        ("x\nAt:\n  /models/m/1/model.py(12): execute", "x"),
        (NATIVE, "[TensorRT-LLM][ERROR] Assertion failed: bad beam (***)"),
        (NATIVE.replace("\n", " "), "[TensorRT-LLM][ERROR] Assertion failed: bad beam (***)"),
        ("bad\n#0  0x00007f in raise ()", "bad"),
        ("failed at vllm/engine/core.py:88 in step", "failed at *** in step"),
        ("no /opt/models/rank0.engine", "no ***"),
        # Addresses.
        ("at http://10.1.2.3:8000/v1 now", "at *** now"),
        ("at 10.1.2.3:80, 10.1.2.4", "at ***, ***"),
        ("at trt-frontend:8000", "at ***"),
        ("at gpu-node-7.internal.", "at ***."),
        ("at gpu7.rack.local:9", "at ***"),
        ("at localhost:80", "at ***"),
        ("at api.example.com:443", "at ***"),
        ("at [fd00::1]:8000", "at ***"),
        ("from fe80::2: refused", "from ***: refused"),
        ("from fe80::2%eth0", "from ***"),
        ("from 2001:db8:0:0:0:0:0:1.", "from ***."),
        ("from ::1", "from ***"),
        # Credentials.
        ("with Bearer abc.def and sk-si-abcdefgh", "with *** and ***"),
        ("with Basic dXNlcjpwYXNz", "with ***"),
        ("with Basic dXNl", "with ***"),
        ("with hf_abcDEF123", "with ***"),
        ("?api_key=hf_abc&x=1", "?***&x=1"),
        ('{"api-key": "abc", "x": 1}', '{"***", "x": 1}'),
        ("password: hunter2", "***"),
        # Names without a dot, and their ports.
        ("Cannot connect to host trtllm:8000 ssl:default", "Cannot connect to host *** ssl:default"),
        ("worker1:8000 refused", "*** refused"),
        ("to gpu_node_3:8001.", "to ***."),
        ("(trtllm:8000)", "(***)"),
        ("Triton:8001, vllm-0:30000", "***, ***"),
        ("dial tcp engine:80: refused", "dial tcp ***: refused"),
        ("at blue:7123", "at ***"),
        ("redis:6379/0 is full", "*** is full"),
        ("trtllm:8000/v1/chat now", "*** now"),
        ("HTTPConnectionPool(host='trtllm', port=8000): x", "HTTPConnectionPool(***', ***): x"),
        ("lookup trtllm on 10.0.0.2:53: no such host", "lookup *** on ***: no such host"),
        ("ip-10-0-3-7 is down", "*** is down"),
        ("gpu_7.internal and a_b.svc:80", "*** and ***"),
        # Other places.
        ("in C:\\Program Files\\trt\\a.plan now", "in *** now"),
        ('{"path": "D:\\\\models\\\\x"}', '{"path": "***"}'),
        ("in c:/models/x", "in ***"),
        ("on \\\\nas01\\models\\x", "on ***"),
        ("in ~/models/x and ~triton/m", "in *** and ***"),
        ("in $HOME/x, ${MODELS}/y, %APPDATA%\\z", "in ***, ***, ***"),
        ("at unix:/run/t.sock", "at ***"),
        ("at unix:t.sock and unix-abstract:@t", "at *** and ***"),
        ("at ipv4:10.0.0.1:80 and dns:///trt:1", "at *** and ***"),
        ("at grpc://trt:8001 and grpcs://x", "at *** and ***"),
        ("at https://user:pass@host/x?y=1#z", "at ***"),
        ("at user:pass@host:5432/db", "at ***"),
        ("at [fe80::1%25eth0]:80/x", "at ***"),
        ("from fe80::1%en-0", "from ***"),
        # Other credentials.
        ("Authorization: Basic dXNlcjpwYXNz\nnext", "***\nnext"),
        ('{"Authorization": "Basic dXNlcjpwYXNz", "x": 1}', '{"***", "x": 1}'),
        ("{'authorization': 'Digest username=\"u\", response=\"r\"', 'x': 1}", "{'***', 'x': 1}"),
        ('authorization: Digest username="u", response="r"', "***"),
        ("[('authorization', 'Bearer x'), 1]", "[('***'), 1]"),
        ('"{\\"Authorization\\": \\"Basic dXNl cGFz\\"', '"{\\"***'),
        ("Proxy-Authorization: Negotiate YII abc", "***"),
        ("Cookie: a=b; session=c\nnext", "***\nnext"),
        ("Set-Cookie: sid=1; Path=/; HttpOnly", "***"),
        ("with eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_", "with ***"),
        ("with AKIAIOSFODNN7EXAMPLE and ASIAIOSFODNN7EXAMPLE", "with *** and ***"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "***"),
        ("with AIzaSyA1234567890abcdefghijklmnopqrstu", "with ***"),
        ("with ya29.a0AfH6SMBx-1234", "with ***"),
        ("AccountKey=abcd1234==;x", "***;x"),
        ("client_secret: 'two words'", "***'"),
        ("x?token=abcdef123&y=1", "x?***&y=1"),
        ("sk_live_abcd1234 and sk-ant-api03-abcd", "*** and ***"),
        ("ssh-ed25519 AAAAC3NzaC1 me", "*** me"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,X-Y\nabc\n-----END RSA PRIVATE KEY----- b", "a *** b"),
        ("a -----BEGIN CERTIFICATE-----\nabc", "a ***"),
        # Nothing of the kind.
        ("max-tokens:4096 and max-tokens:8000", "max-tokens:4096 and max-tokens:8000"),
        ("at line:1234 col:80", "at line:1234 col:80"),
        ("limit:8000, layer12:1024, int8:4096", "limit:8000, layer12:1024, int8:4096"),
        ("worker_count:8000", "worker_count:8000"),
        ("foo:4096 bar:12345", "foo:4096 bar:12345"),
        ('{"max_tokens":8192,"model":"a","code":400}', '{"max_tokens":8192,"model":"a","code":400}'),
        ("at 12:30, 2024-01-02T12:30:45Z", "at 12:30, 2024-01-02T12:30:45Z"),
        ("16:9 and 1:1000", "16:9 and 1:1000"),
        ("scale:1000.5 or step:1000:2", "scale:1000.5 or step:1000:2"),
        ("std::vector<int>::at and x::y::z", "std::vector<int>::at and x::y::z"),
        ("a token = b and tokens=12", "a token = b and tokens=12"),
        ("'temperature' must be < 2.0 (got 3.5)", "'temperature' must be < 2.0 (got 3.5)"),
        ("about ~5/6 of it, 50%, $5/1M", "about ~5/6 of it, 50%, $5/1M"),
        ("bad escape \\d in pattern", "bad escape \\d in pattern"),
        ("the authorization failed, the cookie is bad", "the authorization failed, the cookie is bad"),
        ("the password must be set", "the password must be set"),
        ("for acme/model-1: bad file: a", "for acme/model-1: bad file: a"),
        ("dns: no answer; file: none", "dns: no answer; file: none"),
        ("Grüße: 你好", "Grüße: 你好"),
        ("ratio 3:2, max_tokens: 4096", "ratio 3:2, max_tokens: 4096"),
        ("limit:4096 top_k:12345", "limit:4096 top_k:12345"),
        ("at 12:34:56 on 2024-01-02", "at 12:34:56 on 2024-01-02"),
        ("std::vector and a::b", "std::vector and a::b"),
        ("a ratio of 1/2 and input/output", "a ratio of 1/2 and input/output"),
        ("basic usage of tools", "basic usage of tools"),
        ("unexpected token: }", "unexpected token: }"),
        ("messages.0.content: bad", "messages.0.content: bad"),
        ("value 0x10 is odd", "value 0x10 is odd"),
        ("version 1.2.3", "version 1.2.3"),
        ("y" * 9000, "y" * 2000),
    ],
)
def test_safe_text(text: str, shown: str) -> None:
    assert PLAIN(text) == shown


def test_what_is_known_is_taken_out_as_a_whole_and_in_its_parts() -> None:
    safe = SafeText(["Bearer team-key-1", "team-key-1-long", "abc", "", "gpu:80"])
    assert safe("team-key-1-long team-key-1 abc gpu:80 of gpu") == "*** *** abc *** of gpu"
    # However much of it stands before the cut.
    assert "team" not in safe("http://" + "x" * 7990 + "/ team-key-1")


def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    """Whatever comes after what can be seen changes nothing, so that the work is bounded."""
    for odd in ("b.c-", "/a", "1.", " ", "Basic ", "eyJaaaaaaaa.", "-----END "):
        shown = PLAIN(odd * 200_000)
        assert shown == PLAIN((odd * MAX_SEEN)[: MAX_SEEN + 1])
        assert len(shown) <= MAX_CHARACTERS


def test_a_credential_that_the_cut_goes_through_is_not_shown() -> None:
    shown = PLAIN("http://" + "x" * (MAX_SEEN - 15) + " AKIAIOSFODNN7EXAMPLE")
    assert shown == MASK


PATTERNS = {
    f"{module.__name__}.{name}": value
    for module in (safe_text, visible_text, safe_text_code, safe_text_hosts, safe_text_places)
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
}


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_looks_at_a_character_again_and_again(name: str) -> None:
    """The work per character is bounded: what repeats without a bound ends its pattern, so that nothing can fail after it,
    and what repeats inside a repetition does so a bounded number of times."""
    pattern = PATTERNS[name]
    assert list(unbounded(parsed(pattern))) == []
    assert most_turns(parsed(pattern)) <= MAX_TURNS


def parsed(pattern: re.Pattern[str]) -> Any:
    return re_parser.parse(pattern.pattern, pattern.flags)


def unbounded(items: Any, last: bool = True) -> Iterator[str]:
    """Repetitions without a bound that something follows."""
    items = list(items)
    for place, (kind, value) in enumerate(items):
        ends = last and place == len(items) - 1
        if kind in REPEATS:
            _least, most, inner = value
            if most == re_constants.MAXREPEAT and not ends:
                yield f"{kind} at {place}: {inner}"
            yield from unbounded(inner, ends and most == 1)
        elif kind == re_constants.SUBPATTERN:
            yield from unbounded(value[-1], ends)
        elif kind == re_constants.BRANCH:
            for branch in value[1]:
                yield from unbounded(branch, ends)
        elif kind in (re_constants.ASSERT, re_constants.ASSERT_NOT):
            yield from unbounded(value[1], False)


def most_turns(items: Any) -> int:
    """How often the innermost part of a repetition can be tried at most, for one beginning; without a bound it ends there."""
    most = 1
    for kind, value in items:
        if kind in REPEATS:
            _least, turns, inner = value
            most = max(most, (1 if turns == re_constants.MAXREPEAT else turns) * most_turns(inner))
        elif kind == re_constants.SUBPATTERN:
            most = max(most, most_turns(value[-1]))
        elif kind == re_constants.BRANCH:
            most = max(most, *(most_turns(branch) for branch in value[1]))
        elif kind in (re_constants.ASSERT, re_constants.ASSERT_NOT):
            most = max(most, most_turns(value[1]))
    return most
