"""What of a worker's words is taken for its inside, and what stays because a client needs it: both sides of each rule."""

import unicodedata

import pytest

from services.common.visible_text import plain
from services.router.safe_text import PLAIN, SafeText

TAKEN = [
    # Escaped.
    ("no %2Fopt%2Fmodels%2Fx there", "no *** there"),
    ("no %252fopt%252Fmodels", "no ***"),
    ("at http%3A%2F%2Fgpu%3A8000%2Fv1", "at ***"),
    # Processes and their users.
    ("Process 12345 has 70 GiB", "*** has 70 GiB"),
    ("generate_async() line 33", "***"),
    ("Engine::step(int, bool), at line 7", "***"),
    ("user root uid=0", "*** ***"),
    ("uid=0(root) gid=0(root) groups=0(root),4(adm)", "*** *** ***"),
    ("username: 'triton-server'", "***'"),
    # One number for an address.
    ("to 2130706433:8000/v1", "to ***"),
    # Ports.
    ("cannot reach port 8000", "cannot reach ***"),
    ("Port: 8001 is closed", "*** is closed"),
    ("port=50051, retry", "***, retry"),
    ("port is 8000", "***"),
    ("port number 8000", "***"),
    ("ports 8000-8003 are taken", "*** are taken"),
    ("ports 8000, 8001 and 8002", "***"),
    ("grpc_port=8001", "***"),
    ("--http-port 8000", "--http-***"),
    ("listening on :8000", "listening on ***"),
    ("bound to *:8000", "bound to ****"),
    ('{"port": 8000}', '{"***}'),
    ('{"port": "8000"}', '{"***"}'),
    # Hosts without a domain.
    ("gpu-node-17 is down", "*** is down"),
    ("on GPU-NODE-17.", "on ***."),
    ("(gpu-node-a17)", "(***)"),
    ("worker-3, worker-12", "***, ***"),
    ("vllm-0: refused", "***: refused"),
    ("from trtllm-worker-0", "from ***"),
    ("triton-1.triton-headless.prod", "***"),
    ("trtllm-7d9f8b6c5d-x2k4q restarted", "*** restarted"),
    ("at dgx-a100-03/metrics", "at ***"),
    ("host=gpu-node-17", "***"),
    ("gpu_node_17 fell over", "*** fell over"),
    ("connect to node17", "connect to ***"),
    ("on server2: no route", "on ***: no route"),
    ("host a1b2c3d4 is gone", "host *** is gone"),
    ("Cannot connect to host trtllm", "Cannot connect to host ***"),
    ("unknown host 'trtllm'", "unknown host '***'"),
    ("could not resolve host: trtllm", "could not resolve host: ***"),
    ("i-0abc123def4567890 stopped", "*** stopped"),
    ("user@gpu-node-17", "user@***"),
    # Hosts with one.
    ("worker-3.cluster.local is down", "*** is down"),
    ("ip-10-0-0-1.ec2.internal", "***"),
    ("via trt.prod.acme.com", "via ***"),
    ("via trt.prod.acme.com.", "via ***."),
    ("db-2.eu-west-1.rds.amazonaws.com/x now", "*** now"),
    ("in inference.example.cloud:443", "in ***"),
    ("gpu17.rack4.dc.consul", "***"),
    # Cards.
    ("aa:bb:cc:dd:ee:0f", "***"),
    ("GPU-5b2e1f3a-0000-1111-2222-333344445555 fell", "*** fell"),
    ("bus 0000:3b:00.0", "bus ***"),
    # Programs.
    ("engine.py line 40", "***"),
    ("engine.py, line 40, in step", "***"),
    ("'engine.py' line 40", "'***"),
    ("engine.py at line 40 in execute_model", "***"),
    ("engine.py:40:12: bad", "***: bad"),
    ("engine.py#L40", "***"),
    ("engine.py [line: 40]", "***"),
    ("core/engine.cpp(57): no", "***: no"),
    ("line 40 of engine.py", "***"),
    ("line 40 in file 'engine.cu'", "***'"),
    ("vllm/engine/core.py broke", "*** broke"),
    ("in engine.py:88 in <module>", "in ***"),
    ("at 0x7fff12345678 in foo()", "at ***"),
    ("at 0x7fff12345678", "at ***"),
    ("at 0x7fff12345678 in foo::bar(int, char)", "at ***"),
    ("<a.b.Engine object at 0x7f12ab>", "***"),
    ("<bound method E.run of <a.E object at 0x7f12ab>>", "***"),
    ("foo()+0x1f in libtrt.so.10", "*** in ***"),
    ("raise+0x1f/0x20", "***"),
    ("pid 4711 died, tid=12", "*** died, ***"),
    ("at 0x7f000001, 0x55d0c8a1", "at ***, ***"),
    ("no x in vllm.engine.arg_utils", "no x in ***"),
    ("in tensorrt_llm::executor::Executor::enqueue(Request const&) now", "in *** now"),
    # Paths.
    ("./engines/rank0.plan", "***"),
    ("no ../models/x", "no ***"),
    ("[Errno 13] Permission denied: '/models'", "[Errno 13] Permission denied: ***'"),
    ("No such file or directory: /engine.plan", "No such file or directory: ***"),
    # Credentials.
    ("api key=abc", "***"),
    ("API key: abc", "***"),
    ("Incorrect API key provided: abcdef", "Incorrect ***"),
    ("access token = abc", "***"),
    ("secret key 'abc12345'", "***'"),
    ("API key abc12345 is wrong", "*** is wrong"),
    ("the password is hunter22", "the ***"),
    ("HF_TOKEN=abc and MY_DB_PASSWORD: x", "*** and ***"),
    ("Your api key is: sk-abc", "Your ***"),
    ("key: 0123456789abcdef0123456789abcdef", "***"),
    ("token 'abcdef0123456789abcdef0123456789' is old", "***' is old"),
    # Characters.
    ("a\x00b\x07c\x7fd\x85e", "abcd\ne"),
    ("a\tb\x0bc\x1fd", "a b c d"),
    ("one\r\ntwo\rthree", "one\ntwo\nthree"),
    ("\x1b[1;31mError\x1b[0m: bad \x1b]0;title\x07x", "Error: bad x"),
    ("\u202egnp.exe\u202c \u2066a\u2069 \u200fb", "gnp.exe a b"),
    ("in\u200bvi\u2060si\ufeffble \U000e0041", "invisible"),
    ("half \ud83d pair", "half \ufffd pair"),
    # What is written between the letters of a secret hides nothing.
    ("10.0.\u200b0.1 and sk-\u202eabcdefgh", "*** and ***"),
]

KEPT = [
    "cannot process 12 images, nor process 70 requests",
    "user rooted, user name, username=alice",
    "for acme%2Fmodel-1 and 100%2F",
    "the function f(x) in line with 3",
    "groups=8, hidden 12345678: 10",
    "max_tokens must be at least 1, got 0",
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in "
    "the completion). Please reduce the length of the messages or completion.",
    "messages[0].content: field required",
    "messages.0.content: bad; tools.0.function.name: too long",
    "response_format.json_schema is invalid at line 3 column 7",
    "Expecting ',' delimiter: line 3 column 7 (char 41)",
    "JSON parse error at line 12, column 8000",
    "model meta-llama/Llama-3.1-8B-Instruct is not loaded",
    "Qwen/Qwen2.5-72B-Instruct-AWQ, mistralai/Mixtral-8x7B-Instruct-v0.1, acme/model-1, acme/node-1",
    "gpt-4o-2024-08-06, llama-3, llama-2-7b-chat-hf, gemma-2-9b, phi-4, claude-3-5, text-embedding-3-small",
    "tensorrt-10.2 and vllm-0.6.3 and v2.51.0",
    "report.pdf, main.py, data.csv, index.html and a/b.json are not supported",
    "tool 'run_main.py' is not known; engine.py is not a tool",
    "at 12:30:45 on 2024-01-02, 2024-01-02T12:30:45.123Z, in 5 minutes, 99.9%",
    "temperature must be between 0.0 and 2.0, got 3.5",
    "top_p: Input should be less than or equal to 1",
    "n must be 1 when best_of is not set (got n=2, best_of=1)",
    "please support 3 items; transport 5; export 8000 rows; report 8000",
    "the port must be a number",
    "node_1 and server_2 are no properties of the schema; 'worker3' is not in enum",
    "multi-node, server-side, worker-count-3, max-node-3, client-2, agent-7, step-3",
    "the host is busy; host header missing",
    "the API key is missing; the api key must be set; no API key was provided",
    "the access token limit and the secret key rule",
    "the password must be 12 characters or more",
    "#/definitions/Address/properties/city and #/components/schemas/Foo cannot be resolved",
    "$ref '#/$defs/Foo' and /messages/0/content/1/text and /properties/a/type",
    "use POST /v1/chat/completions, /v1/completions or /v1/embeddings",
    "e.g. foo, i.e. bar, etc. and so on...and on",
    "json-schema.org, example.com and x.y are words; java.io.IOException, node.js, socket.io",
    "seed must be below 0xFFFFFFFFFFFFFFFF, 0x7fffffff or 0x80000000; dtype torch.float16; std::chrono::seconds",
    "the tool server-2 is not known; property 'node-1' is required; unknown key: temperature_of_the_whole_answer",
    "value 0x10, 0xff and 0x1F600 are odd",
    "a + b, 1+0, C++ and f(x)+g(x)",
    "class <int> in List<String>",
    "limit 8000, seed 8000, 8000 tokens, top_k=8000",
    "input/output ratio 3/4, and/or, km/h, ./",
    "field1, field2: x1, y2; item3 must be unique",
    "error code 50051, line 40, page 8080 of 9000",
    "دما و می‌خواهم \U0001f469\u200d\U0001f680 Ärger 你好",
    "two\nlines",
]


@pytest.mark.parametrize(("text", "shown"), TAKEN)
def test_what_is_of_the_inside_is_taken_out(text: str, shown: str) -> None:
    assert PLAIN(text) == shown


@pytest.mark.parametrize("text", KEPT)
def test_what_a_client_needs_stays_as_it_is(text: str) -> None:
    assert PLAIN(text) == text


def test_no_character_stays_that_cannot_be_seen() -> None:
    # Nothing of the kind is assigned in the planes between.
    every = map(chr, (*range(0x20000), *range(0xE0000, 0xE1000)))
    unseen = [each for each in every if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert len(unseen) > 2200
    # Apart, since some together are commands. Joiners have a meaning.
    assert [each for each in unseen if each in plain(f"a{each}b")] == ["\n", "\u200c", "\u200d"]


def test_a_secret_is_found_between_characters_that_cannot_be_seen() -> None:
    assert SafeText(["team-key-one"])("team\u200b-key\x00-one") == "***"
    assert SafeText(["team\u200b-key-one"])("team\u200b-key-one") == "***"
