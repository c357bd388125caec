"""What of a worker's text a client may see."""

import pytest

from services.router.safe_text import MAX_CHARACTERS, PLAIN, SafeText

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
        # Nothing of the kind.
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


def test_it_takes_no_time_however_odd_the_text_is() -> None:
    for odd in ("a-", "[", ":", "1.", " ", "/a", "a.b", "0x", "f:", "api_key", "Basic ", "eyJaaaaaaaa."):
        assert len(PLAIN(odd * 100_000)) <= MAX_CHARACTERS
