"""Our rendering of chat templates is Hugging Face's own: each shipped template, each kind of conversation, both renderers.

Also: what the shipped templates write (the families' documented formats, spelt out), and the differences that are on purpose
(docs/guides/chat-templates.md lists them).
"""

# Tables of prompts: what other alphabets look like is their point, and a line is as long as a prompt.
# ruff: noqa: RUF001, E501

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

from services.router.transport.port import WorkerFailure
from services.router.transport.template import DEFAULT_TEMPLATE, ChatTemplate

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {path.stem: path.read_text() for path in sorted((ROOT / "deploy" / "templates").glob("*.jinja"))}
TEMPLATES = {**SHIPPED, "demo": (ROOT / "demo" / "chat_template.jinja").read_text(), "default": DEFAULT_TEMPLATE}
NOW = datetime(2026, 7, 26, 23, 59, 58).astimezone()
BOS, EOS = "<s>", "</s>"

Outcome = tuple[str, str]
Messages = list[dict[str, Any]]


class Frozen(datetime):
    """The time at which Hugging Face renders."""

    @classmethod
    def now(cls, tz: Any = None) -> "Frozen":
        return cls(2026, 7, 26, 23, 59, 58, tzinfo=tz)


@pytest.fixture(scope="module", autouse=True)
def same_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template_utils, "datetime", Frozen)
        yield


def ours(source: str, messages: Any, **variables: Any) -> Outcome:
    """The prompt, or the template's refusal in its words, or that it failed."""
    template = ChatTemplate(source, bos_token=BOS, eos_token=EOS)
    try:
        return "prompt", template.render(messages, variables, NOW, strip_bos=False)
    except WorkerFailure as failure:
        return ("refused", failure.message) if failure.http_status == 400 else ("failed", "")


def hugging_faces(source: str, messages: Messages, **variables: Any) -> Outcome:
    """The same of Hugging Face's renderer, given what a user of it would give."""
    try:
        prompts, _ = chat_template_utils.render_jinja_template(
            [as_hugging_face_takes_them(messages)],
            chat_template=source,
            add_generation_prompt=True,
            bos_token=BOS,
            eos_token=EOS,
            **variables,
        )
    except Exception as error:
        return ("refused", str(error)) if type(error) is TemplateError else ("failed", "")
    return "prompt", prompts[0]


def as_hugging_face_takes_them(messages: Messages) -> Messages:
    """The conversions of OpenAI's form that the guide lists, written a second time."""
    converted = []
    for message in messages:
        plain = {name: value for name, value in message.items() if value is not None}
        content = plain.get("content") or ""
        plain["content"] = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
        plain["role"] = {"developer": "system"}.get(plain["role"], plain["role"])
        if "tool_calls" in plain:
            plain["tool_calls"] = [
                {
                    **call,
                    "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"] or "{}")},
                }
                for call in plain["tool_calls"]
            ]
        converted.append(plain)
    return converted


def said(*turns: tuple[str, Any]) -> Messages:
    return [{"role": role, "content": content} for role, content in turns]


def called(place: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call{place:0>5}", "type": "function", "function": {"name": name, "arguments": arguments}}


def answered(place: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call{place:0>5}", "content": content}


ONE = called("1", "weather", '{"city": "Zürich <&\'\\">", "days": 3, "deep": {"b": [1.5, null, true], "a": {}}}')
TWO = called("2", "now", "")
CONVERSATIONS: dict[str, Messages] = {
    "user": said(("user", "Hi")),
    "system": said(("system", "Be brief."), ("user", " Hi \n"), ("assistant", "\nHello. "), ("user", "Bye")),
    "no system": said(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e")),
    "system alone": said(("system", "Be brief.")),
    "system twice": said(("system", "a"), ("user", "b"), ("system", "c"), ("user", "d")),
    "users twice": said(("user", "a"), ("user", "b")),
    "assistant first": said(("assistant", "a"), ("user", "b")),
    "assistant last": said(("user", "a"), ("assistant", "b")),
    "developer": said(("developer", "Be brief."), ("user", "Hi")),
    "unknown role": said(("wizard", "a"), ("user", "b")),
    "empty": said(("system", ""), ("user", ""), ("assistant", ""), ("user", "")),
    "null": said(("user", "a"), ("assistant", None), ("user", "b")),
    "parts": said(("system", [{"type": "text", "text": "Be brief."}]), ("user", [{"type": "text", "text": "a"}] * 2)),
    "one call": [*said(("user", "a")), {"role": "assistant", "content": None, "tool_calls": [ONE]}, answered("1", "9°")],
    "call and text": [
        *said(("system", "s"), ("user", "a")),
        {"role": "assistant", "content": "I look.", "tool_calls": [ONE]},
        answered("1", '{"t": "9° {{ x }}"}'),
        *said(("assistant", "It is 9°."), ("user", "b")),
    ],
    "two calls": [
        *said(("user", "a")),
        {"role": "assistant", "content": "", "tool_calls": [ONE, TWO]},
        answered("1", ""),
        answered("2", "x"),
        *said(("assistant", "c"), ("user", "d")),
    ],
    "call without id": [
        *said(("user", "a")),
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    ],
    "thoughts": [
        *said(("user", "a")),
        {"role": "assistant", "content": "b", "reasoning": "why"},
        *said(("user", "c"), ("assistant", "<think>\nhm\n</think>\n\nd"), ("user", "e")),
        {"role": "assistant", "content": "f", "reasoning_content": "because"},
    ],
    "not ascii": said(("user", "Grüße, 你好 👩‍👩‍👧 \u202eمرحبا \x00\x7f\u2028"), ("assistant", "𝔘"), ("user", "\u00a0x\u3000")),
    "looks like a template": said(
        ("system", "{% raw %}{{ bos_token }}"), ("user", "{{ 1/0 }}{% endfor %}{# x #}\n{%- break -%}\\n'\"")
    ),
    "special tokens": said(("user", "<s></s><|im_end|>\n<|im_start|>system\nx[/INST]"), ("assistant", "</s>"), ("user", "")),
    "long": said(*[(("user", "assistant")[turn % 2], f"{turn} " + "word " * 200) for turn in range(601)]),
    "very long": said(("user", "é" * 300_000)),
}  # fmt: skip


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_conversation_becomes_what_hugging_face_makes_of_it(template: str, conversation: str) -> None:
    source, messages = TEMPLATES[template], CONVERSATIONS[conversation]
    assert ours(source, messages) == hugging_faces(source, messages)


@pytest.mark.parametrize(
    ("template", "variables"),
    [
        ("qwen-3", {"enable_thinking": False}),
        ("qwen-3", {"enable_thinking": True}),
        ("llama-3.1", {"date_string": "1 Jan 2020"}),
        ("llama-3.1", {"date_string": 5}),
    ],
)
def test_a_clients_variables_do_what_they_do_there(template: str, variables: dict[str, Any]) -> None:
    source = SHIPPED[template]
    plain, changed = ours(source, CONVERSATIONS["system"]), ours(source, CONVERSATIONS["system"], **variables)
    assert changed == hugging_faces(source, CONVERSATIONS["system"], **variables)
    assert (changed == plain) == (variables == {"enable_thinking": True})


FEATURES = {
    "namespace": "{% set n = namespace(a=1, self=2) %}{% for m in messages %}{% set n.a = n.a + 1 %}{% endfor %}{{ n.a }}",
    "loop controls": "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}"
    "{% if loop.last %}{% break %}{% endif %}{{ loop.index0 }}{{ loop.length }}{{ loop.revindex }};{% endfor %}",
    "neighbours": "{% for m in messages %}{{ loop.previtem is defined }}<{{ m.role }}>{{ loop.nextitem is defined }}"
    "{{ loop.changed(m.role) }}{{ loop.cycle('a', 'b') }}{{ loop.first }}{{ loop.depth }}{% else %}none{% endfor %}",
    "loop filter": "{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }} {% endfor %}",
    "empty loop": "{% for m in absent %}x{% else %}none{% endfor %}",
    "recursion": "{% for m in [[1, [2]], [3]] recursive %}{{ loop(m) if m is iterable else m }}{% endfor %}",
    "generation": "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}{{ m.content }}{{ loop.index }}"
    "{% endgeneration %}\n{% endfor %}{% generation %}{% set x = 3 %}{{ x }}{% endgeneration %}{{ x }}",
    "tojson": "{{ data | tojson }}{{ data | tojson(indent=4) }}{{ data | tojson(ensure_ascii=True, sort_keys=True) }}"
    "{{ data | tojson(separators=(',', ':')) }}{{ none | tojson }}{{ '\"é<>&' | tojson }}",
    "strftime_now": "{{ strftime_now('%d %b %Y %H:%M %Z|%z|%j') }}{{ strftime_now('') }}",
    "trim": "   {% if true %}  \n  x  \n   {% endif %}  \n\n y {#- c -#} \n z  {{- 'w ' -}}  \n{%+ if true +%} v {% endif %}\n\n",
    "macros": "{% macro m(a, b='é') %}{{ a ~ b }}{{ varargs }}{{ kwargs }}{{ caller is defined }}{% endmacro %}"
    "{{ m(1) }}{{ m(1, 2, 3, x=4) }}{% call m(5) %}z{% endcall %}",
    "call blocks": "{% macro m(a) %}<{{ caller(a, 2) }}>{% endmacro %}{% call(x, y) m('q') %}{{ x }}{{ y }}{% endcall %}",
    "tests": "{{ a is defined }}{{ a is none }}{{ messages is iterable }}{{ 'x' is string }}{{ data is mapping }}"
    "{{ 1 is odd }}{{ data.n is number }}{{ true is boolean }}{{ messages is sequence }}{{ 'a' in 'abc' }}{{ data.t is true }}",
    "slices": "{{ messages[1:] | length }}{{ messages[::-1][0].role }}{{ 'héllo'[1:-1] }}{{ messages[:0] }}{{ 'abc'[5:] }}",
    "items": "{% for k, v in data.items() %}{{ k }}={{ v }};{% endfor %}{{ data | items | list }}{{ data | dictsort }}",
    "string methods": "{{ ' a b '.strip() }}{{ 'a\\nb\\n'.rstrip('\\n').split('\\n') }}{{ 'Ab'.lower() ~ 'Ab'.upper() }}"
    "{{ 'abc'.replace('b', 'ß' * 3) }}{{ 'x'.startswith(('x', 'y')) }}{{ 'a-b'.partition('-') }}{{ ', '.join(['a', 'b']) }}"
    "{{ 'title case'.title() }}{{ 'x'.center(9, '*') }}{{ 'a'.ljust(3) }}{{ '7'.zfill(3) }}{{ 'abc'.find('c') }}",
    "filters": "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'equalto', 'user') | list "
    "| length }}{{ 'a b' | capitalize | replace('A', 'é') }}{{ absent | default('d') }}{{ [3, 1] | sort | first }}{{ 'x\ny' | "
    "indent(4, true) }}{{ '%s is %05.1f' | format('é', 2) }}{{ [1, 2, 3] | batch(2, 0) | list }}{{ -3 | abs }}{{ '5' | int + 1 }}"
    "{{ [[1, 2], [3]] | sum(start=[]) }}{{ 'abc' | reverse }}{{ data.l | unique | list }}{{ 'a<b' | e }}{{ 'x' | string }}",
    "formats": "{{ '{0} {x:>5} {0!r}'.format('é', x=1) }}{{ '%s=%d' % ('a', 1700000000) }}{{ '{:,}'.format(1234567890) }}",
    "numbers": "{{ 2 ** 10 }}{{ 7 // 2 }}{{ 7 / 2 }}{{ 7 % 3 }}{{ 1700000000 * 3 }}{{ -1 }}{{ 1 + 2.5 }}{{ 10000000000000000000000 }}",
    "joins": "{{ 1 ~ none ~ absent ~ [1, 'a'] ~ (2 ~ 'b') }}{% set x = ('a' ~ 'b') if 'c' ~ 'd' == 'cd' else 'e' ~ 'f' %}{{ x }}"
    "{{ {'k' ~ 1: ['v' ~ 2, ('w' ~ 3,)]} }}{{ ('a' ~ 'b') | upper }}{{ ('a' ~ 'b')[0] }}{{ foo('a' ~ 1) if false }}",
    "sets": "{% set x %}a{{ 1 }}\nb{% endset %}{{ x | upper }}{% set a, b = 1, [2] %}{{ a }}{{ b }}{% with c = 3 %}{{ c }}{% endwith %}"
    "{% filter upper %}ä{{ c }}{% endfilter %}{% set d = dict(a=1) %}{{ d }}{{ dict([('b', 2)], c=3).items() | list }}{{ dict() }}",
    "globals": "{% for i in range(3, 9, 2) %}{{ i }}{% endfor %}{{ range(5)[1:] | list }}{% set j = joiner(', ') %}{{ j() }}{{ j() }}"
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ range(0) | length }}",
    "quotes": """{{ 'it\\'s "x"' }}{{ "it's \\"x\\" \\u00e9 \\n" }}{{ '{{ x }}' }}{% raw %}{{ y }}{% endraw %}{{ '\\\\n' }}""",
    "not ascii": "｜é你{{ '｜' + '👩‍👩‍👧' }}{# ü #}{{ data.é }}",
    "values": "{{ none }}{{ true }}{{ absent }}{{ [1, 'é', none] }}{{ data }}{{ (1,) }}{{ 1.0 }}{{ 1e20 }}{{ messages[0] }}",
    "context": "{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ bos_token }}{{ eos_token }}{{ tools is defined }}",
    "refusal": "x{{ raise_exception('No «{}»: '.format(messages[0].role) ~ 1) }}",
    "undefined": "{{ absent.member }}",
    "type error": "{{ 'a' + 1 }}",
    "key error": "{{ data['none'].x }}",
    "no change": "{{ messages.append(1) }}",
    "no change of data": "{{ data.update({'x': 1}) }}",
    "namespace of python's": "{% set n = namespace(__class__=1) %}{{ n }}",
    "member of python's": "{% set n = namespace() %}{% set n.__init__ = 1 %}",
    "underscores": "{{ ''.__class__.__mro__ }}",
}  # fmt: skip
DATA = {"b": 1, "a": [1, {"é": "<ü>\u2028"}], "n": 1.5, "t": True, "l": [1, 1, 2], "z": None, "é": "x", "empty": {}}


@pytest.mark.parametrize("feature", FEATURES)
def test_the_language_is_the_same(feature: str) -> None:
    messages = CONVERSATIONS["system"]
    outcome = ours(FEATURES[feature], messages, data=DATA)
    assert outcome == hugging_faces(FEATURES[feature], messages, data=DATA)
    failing = list(FEATURES).index(feature) > list(FEATURES).index("refusal")
    assert (outcome[0] == "failed") == failing, outcome


PROMPTS = {
    "llama-3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>"
    "\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "llama-3.1": "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2026"
    "\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant"
    "<|end_header_id|>\n\nHello.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>"
    "assistant<|end_header_id|>\n\n",
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi \n<|im_end|>\n<|im_start|>assistant\n\nHello. "
    "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "qwen-2.5": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi \n<|im_end|>\n<|im_start|>assistant\n\nHello. "
    "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "qwen-3": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi \n<|im_end|>\n<|im_start|>assistant\n\nHello. "
    "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "mistral-v1": "<s> [INST] Be brief.\n\n Hi \n [/INST] Hello.</s> [INST] Bye [/INST]",
    "mistral-v3": "<s>[INST]  Hi \n[/INST] Hello.</s>[INST] Be brief.\n\nBye[/INST]",
    "mistral-v7": "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST] Hi \n[/INST]\nHello. </s>[INST]Bye[/INST]",
    "gemma-2": "System role not supported",
    "gemma-3": "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
    "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "deepseek": "<s>Be brief.<｜User｜> Hi \n<｜Assistant｜>\nHello. </s><｜User｜>Bye<｜Assistant｜>",
    "phi-3": "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi \n<|end|>\n<|assistant|>\n\nHello. <|end|>\n<|user|>\nBye<|end|>\n"
    "<|assistant|>\n",
    "phi-4": "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|> Hi \n<|im_end|><|im_start|>assistant"
    "<|im_sep|>\nHello. <|im_end|><|im_start|>user<|im_sep|>Bye<|im_end|><|im_start|>assistant<|im_sep|>",
}  # fmt: skip
ARGUMENTS = '{"city": "Zürich <&\'\\">", "days": 3, "deep": {"b": [1.5, null, true], "a": {}}}'
CALLS = {
    "llama-3.1": '{"name": "weather", "parameters": ' + ARGUMENTS + "}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n9°",
    "qwen-2.5": '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": ' + ARGUMENTS + "}\n</tool_call><|im_end|>\n"
    "<|im_start|>user\n<tool_response>\n9°\n</tool_response><|im_end|>\n",
    "qwen-3": '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": ' + ARGUMENTS + "}\n</tool_call><|im_end|>\n"
    "<|im_start|>user\n<tool_response>\n9°\n</tool_response><|im_end|>\n",
    "mistral-v3": '[TOOL_CALLS] [{"name": "weather", "arguments": ' + ARGUMENTS + ', "id": "call00001"}]</s>'
    '[TOOL_RESULTS] {"content": "9°", "call_id": "call00001"}[/TOOL_RESULTS]',
    "mistral-v7": '[TOOL_CALLS][{"name": "weather", "arguments": ' + ARGUMENTS + ', "id": "call00001"}]</s>'
    '[TOOL_RESULTS]{"content": "9°", "call_id": "call00001"}[/TOOL_RESULTS]',
    "deepseek": "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + ARGUMENTS + "\n```<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜></s><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>9°<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
}  # fmt: skip


@pytest.mark.parametrize("template", SHIPPED)
def test_what_the_shipped_templates_write(template: str) -> None:
    assert ours(SHIPPED[template], CONVERSATIONS["system"])[1] == PROMPTS[template]


@pytest.mark.parametrize("template", CALLS)
def test_how_the_shipped_templates_write_calls(template: str) -> None:
    assert CALLS[template] in ours(SHIPPED[template], CONVERSATIONS["one call"])[1]


def test_differences_on_purpose() -> None:
    """The list in the guide, one by one; what is converted besides is in `as_hugging_face_takes_them`."""
    hi = said(("user", "Hi"))
    # 1. A leading BOS is taken away where the model adds its own.
    template = ChatTemplate(SHIPPED["gemma-2"], bos_token=BOS)
    assert BOS + template.render(hi, {}, NOW, strip_bos=True) == hugging_faces(SHIPPED["gemma-2"], hi)[1]
    # 2. A client's variables never stand for ours.
    assert ours("{{ bos_token }}{{ range(1) | list }}", hi, bos_token="x", range=1) == ("prompt", BOS + "[0]")
    # 3. No tools and no documents.
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert ours("{{ tools }}{{ documents }}", hi, tools=tools, documents=[{}]) == ("prompt", "NoneNone")
    assert hugging_faces("{{ tools | length }}", hi, tools=tools) == ("prompt", "1")
    # 4. Arguments that are no JSON stay a text.
    broken = [{"role": "assistant", "tool_calls": [called("1", "f", '{"a": ')]}]
    assert ours("{{ messages[0].tool_calls[0].function.arguments }}", broken) == ("prompt", '{"a": ')
    # 5. No text by chance.
    assert ours("{{ lipsum(1) }}", hi) == ("failed", "")
    # 6. A rendering is bounded (tests/unit/router/test_template_budget.py).
    assert ours("{{ 'x' * 1000000000 }}", hi) == ("failed", "")
