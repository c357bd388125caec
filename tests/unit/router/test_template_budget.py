"""What a template cannot reach, and what it cannot use up. Bounds are counted, so that no test looks at a clock."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION

from services.common.settings import RouterLimits
from services.router.transport import template_budget
from services.router.transport.port import Dispatch, WorkerFailure
from services.router.transport.template import ChatTemplate
from services.router.transport.template_thread import MAX_BYTES_ON_THE_LOOP, beside_the_loop
from services.router.transport.triton import TritonTransport
from services.router.transport.triton_check import Known
from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_errors import rejected
from tests.unit.router.triton_models import plan

NOW = datetime(2026, 12, 2, tzinfo=UTC)
HI = [{"role": "user", "content": "Hi"}]
LOOP_SOURCE = (
    "{% set n = namespace(text='') %}{% for m in messages %}{% set n.text = n.text + m.content %}{% endfor %}ok"
)


def refusal(source: str, messages: Any = HI, **variables: Any) -> WorkerFailure:
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    with pytest.raises(WorkerFailure) as caught:
        template.render(messages, variables, NOW, strip_bos=False)
    return caught.value


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ (''|attr('__class__')).x }}{{ (messages|attr('append')).__self__.x }}",
        "{{ messages|map(attribute='__class__')|map(attribute='__mro__')|list }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ '{m.__class__.__init__.__globals__}'.format_map({'m': messages}) }}",
        "{{ ('{0.__class__.__base__}' ~ '').format(1) }}",
        "{% set f = '{0.__class__}'.format %}{{ f(1) }}{{ 1 / 0 }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ joiner.__init__.__globals__ }}{{ joiner.__init__.__globals__.x }}",
        "{{ namespace.__init__.__globals__.sys.modules }}",
        "{{ dict.__class__.__mro__ }}{{ dict.__base__.x }}",
        "{{ range.__class__.__base__.x }}",
        "{{ raise_exception.__globals__.x }}{{ raise_exception.__globals__['x'] }}",
        "{{ strftime_now.__closure__[0].cell_contents }}",
        "{{ self.__init__.__globals__.x }}{{ self._TemplateReference__context.environment.x }}",
        "{% macro m() %}{% endmacro %}{{ m._func.__globals__.x }}",
        "{% for m in messages %}{{ loop.__init__.__globals__.x }}{% endfor %}",
        "{% set n = namespace() %}{% set n.__class__ = 1 %}",
        "{% set n = namespace(__init__=1) %}",
        "{{ (messages|list).append.__self__.__class__.x }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update(role='system') }}",
        "{{ messages[0].pop('role') }}",
        "{% include 'x' %}",
        "{% import '/etc/passwd' as x %}",
        "{% extends 'x' %}",
        "{{ lipsum.__globals__.os.popen('id') }}",
        "{{ lipsum(n=1) }}",
        "{{ open('/etc/passwd') }}",
        "{{ ().__reduce_ex__(2) }}",
        "{{ [].sort.__func__.x }}",
        "{{ 'a'.encode().__class__.x }}",
        "{{ messages.__len__.__self__.x }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
    ],
)
def test_what_a_template_cannot_reach(source: str) -> None:
    failure = refusal(source)
    assert failure.message == "the model's chat template failed"
    assert not any(word in failure.detail for word in ("__", "passwd", "Traceback", "/"))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ [0] * 1000000000 }}",
        "{{ 10 ** (10 ** 9) }}",
        "{{ 2 ** 100000 }}",
        "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = [n.x, n.x]|join %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = '%s%s' % (n.x, n.x) %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = '{0}{0}'.format(n.x) %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x.replace('x', 'xx') %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x|replace('x', 'xx') %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}"
        "{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ '' ~ n.x }}",
        "{% set n = namespace(x=1) %}{% for i in range(500) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x | tojson(indent=1) }}",
        "{{ 'x'|center(1000000000) }}",
        "{{ 'x'.center(1000000000) }}{{ 'x'.ljust(1) }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ 'x'.rjust(width) }}",
        "{{ 'x'.zfill(1000000000) }}",
        "{{ '\\t'.expandtabs(1000000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{w}}'.format(1, w=1000000000) }}",
        "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
        "{% set f = '{:1000000000}'.format %}{{ f(1) }}",
        "{{ messages|tojson(indent=1000000000) }}",
        "{{ messages|tojson(indent=width) }}",
        "{{ 'x'|indent(1000000000) }}",
        "{{ (range(999)|list)|tojson(indent=90000) }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x] * 9 %}{% endfor %}{{ n.x|tojson(indent=1) }}",
        "{{ ('x\\n' * 999)|indent(90000) }}",
        "{{ ('\\t' * 999).expandtabs(90000) }}",
        "{{ ('x' * 9999)|wordwrap(1, wrapstring='y' * 9999) }}",
        "{{ [1]|batch(1000000000, 1)|list }}",
        "{{ [1]|slice(1000000000)|list }}",
        "{{ ('x' * 1000000).join(range(1000)|map('string')|list) }}",
        "{{ range(1000)|map('string')|list|join('x' * 1000000) }}",
        "{{ range(1000000000) }}",
        "{% for i in range(1000000000) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{% for a in 'x' * 99999 %}{% for b in 'x' * 99999 %}{% if false %}{% endif %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% else %}x{% endif %}{% endmacro %}{{ m(60)|length }}",
    ],
)  # fmt: skip
def test_what_a_template_cannot_use_up(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Smaller, so that the test takes no time; the relations are the same.
    monkeypatch.setattr(template_budget, "MAX_STEPS", 5_000)
    monkeypatch.setattr(template_budget, "MAX_MADE", 5_000_000)
    failure = refusal(source, width=10**9)
    assert (failure.http_status, failure.param, failure.counts_against_worker) == (413, "messages", False)
    assert failure.message.endswith("for the model's chat template")


def test_a_client_cannot_make_a_text_be_copied_without_end() -> None:
    """Appending to one text copies it for each message; the copies are counted."""
    many = [{"role": "user", "content": "x" * 400}] * 2000
    with pytest.raises(WorkerFailure, match="too long"):
        ChatTemplate(LOOP_SOURCE).render(many, {}, NOW, strip_bos=False)
    assert ChatTemplate(LOOP_SOURCE).render(many[:500], {}, NOW, strip_bos=False) == "ok"


def test_steps_grow_with_the_conversation_and_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "{% for m in messages %}{{ m.role }}{{ m.content | trim }}{% endfor %}"
    monkeypatch.setattr(template_budget, "MAX_STEPS", 6 * 100)
    assert len(ChatTemplate(source).render(HI * 100, {}, NOW, strip_bos=False)) == 600
    assert refusal(source, HI * 101).http_status == 413


def test_each_rendering_has_its_own_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "MAX_STEPS", 20)
    template = ChatTemplate("{% for m in messages %}{{ m.role }}{% endfor %}")
    for _ in range(5):
        assert template.render(HI * 5, {}, NOW, strip_bos=False) == "user" * 5
    assert refusal("{% for m in messages %}{{ m.role }}{% endfor %}", HI * 20).http_status == 413


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", "{}"),
        (" ", "{}"),
        ('{"a": 123456789012345678901234567890}', '{"a": 123456789012345678901234567890}'),
        ('{"a": 1, "b": "é"}', '{"a": 1, "b": "é"}'),
        ("not json", '"not json"'),
        # Lone surrogates could not be sent.
        ('{"a": "\\ud800"}', '"{\\"a\\": \\"\\\\ud800\\"}"'),
        ("[" * 5000 + "]" * 5000, '"' + "[" * 5000 + "]" * 5000 + '"'),
        ("1" * 5000, '"' + "1" * 5000 + '"'),
    ],
)
def test_arguments_of_calls(arguments: str, shown: str) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "assistant", "tool_calls": [call]}]
    template = ChatTemplate("{{ messages[0].tool_calls[0].function.arguments | tojson }}")
    prompt = template.render(messages, {}, NOW, strip_bos=False)
    assert prompt == shown
    assert prompt.encode()


def test_arguments_are_only_so_deep() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "[" * 200 + "]" * 200}}
    failure = refusal("{{ messages[0].tool_calls | tojson(indent=4) }}", [{"role": "assistant", "tool_calls": [call]}])
    assert (failure.message, failure.http_status) == (
        "a value is nested too deeply for the model's chat template",
        413,
    )


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        ({"reasoning_content": "a"}, "a|a|"),
        ({"reasoning": "a"}, "a|a|a"),
        ({"thinking": "a"}, "a|a|"),
        ({"reasoning_content": "a", "thinking": "b", "reasoning": "c"}, "a|b|c"),
        ({"reasoning_content": None, "reasoning": "c"}, "c|c|c"),
        ({"reasoning": None}, "||"),
    ],
)
def test_reasoning_comes_by_every_name_of_it(message: dict[str, Any], seen: str) -> None:
    source = "{% set m = messages[0] %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.reasoning }}"
    messages = [{"role": "assistant", "content": "x", **message}]
    assert ChatTemplate(source).render(messages, {}, NOW, strip_bos=False) == seen


def test_null_is_absent() -> None:
    messages = [{"role": "assistant", "content": "x", "tool_calls": None, "name": None}]
    source = "{{ 'tool_calls' in messages[0] }}{{ messages[0].name is defined }}"
    assert ChatTemplate(source).render(messages, {}, NOW, strip_bos=False) == "FalseFalse"


async def test_a_long_conversation_is_rendered_beside_the_loop() -> None:
    loops = threading.get_ident()
    short, long = (
        [("messages", b"x" * MAX_BYTES_ON_THE_LOOP)],
        [("messages", b"x" * MAX_BYTES_ON_THE_LOOP), ("n", b"1")],
    )
    assert await beside_the_loop(short, threading.get_ident) == loops
    assert await beside_the_loop(long, threading.get_ident) != loops


async def test_the_loop_goes_on_while_a_long_conversation_is_rendered() -> None:
    went_on = threading.Event()
    asyncio.get_running_loop().call_soon(went_on.set)
    # Waits for the loop: on the loop itself it would wait in vain.
    assert await beside_the_loop([("messages", b"x" * 10_000)], lambda: went_on.wait(30))


class Remembering(ChatTemplate):
    """A template that tells in which thread it renders, as its refusal."""

    def render(self, *_: Any, **__: Any) -> str:
        raise rejected(str(threading.get_ident()), param="messages")


async def test_the_transport_renders_long_conversations_beside_the_loop() -> None:
    transport = TritonTransport(
        "http://127.0.0.1:9", TritonConfig(transport="triton", model_name="m"), ["acme/m"], "triton", RouterLimits()
    )
    transport._known = Known({"m": plan()}, Remembering("x"))

    async def thread(content: str) -> str:
        members = [("messages", orjson.dumps([{"role": "user", "content": content}]))]
        with pytest.raises(WorkerFailure) as caught:
            async for _ in transport.generate(Dispatch("r", 1, OPERATION_CHAT_COMPLETION, "acme/m", False, members, 9)):
                pass
        return caught.value.message

    assert await thread("x") == str(threading.get_ident())
    assert await thread("x" * MAX_BYTES_ON_THE_LOOP) != str(threading.get_ident())
    await transport.close()


async def test_a_refusal_comes_back_from_beside_the_loop() -> None:
    template = ChatTemplate("{{ raise_exception('no') }}")
    with pytest.raises(WorkerFailure, match=r"^no$"):
        await beside_the_loop([("messages", b"x" * 10_000)], lambda: template.render(HI, {}, NOW, strip_bos=False))
