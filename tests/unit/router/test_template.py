"""Chat templates by Hugging Face's rules. The expected prompts are written out: what those families' models were trained on."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from speedinfer.router.v1 import frame_pb2

from services.router.transport import template as template_module
from services.router.transport.port import WorkerFailure
from services.router.transport.template import DEFAULT_TEMPLATE, ChatTemplate, TemplateProblem, load

NOW = datetime(2026, 12, 2, 13, 5, tzinfo=UTC)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi "},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]

LLAMA_3 = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
CHATML = """\
{% for message in messages %}
    {% if loop.first and message.role != 'system' %}
{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- generation %}
    {{- message.content + '<|im_end|>' + '\\n' }}
    {%- endgeneration %}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}
"""
MISTRAL = """\
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.last and system is defined %}
            {{- '[INST] ' + system + '\\n\\n' + message['content'] + '[/INST]' }}
        {%- else %}
            {{- '[INST] ' + message['content'] + '[/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}
"""
GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}\
{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""


def render(
    source: str, messages: Any, *, bos: str | None = None, eos: str | None = None, strip: bool = False, **variables: Any
) -> str:
    return ChatTemplate(source, bos_token=bos, eos_token=eos).render(messages, variables, NOW, strip_bos=strip)


def test_llama_3() -> None:
    assert render(LLAMA_3, TALK, bos="<|begin_of_text|>") == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_chatml() -> None:
    assert render(CHATML, TALK) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(CHATML, TALK[3:]) == (
        "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )


def test_mistral() -> None:
    assert (
        render(MISTRAL, TALK, bos="<s>", eos="</s>") == "<s>[INST]  Hi [/INST] Hello.</s>[INST] Be brief.\n\nBye[/INST]"
    )


def test_gemma() -> None:
    assert render(GEMMA, TALK[1:], bos="<bos>") == (
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )


def test_the_default_is_plain() -> None:
    assert render(DEFAULT_TEMPLATE, TALK) == "system: Be brief.\nuser:  Hi \nassistant: Hello.\nuser: Bye\nassistant:"


def test_one_leading_bos_is_stripped_where_the_model_adds_its_own() -> None:
    assert render(GEMMA, TALK[3:], bos="<bos>", strip=True).startswith("<start_of_turn>user")
    assert render("{{ bos_token }}{{ bos_token }}x", TALK, bos="<s>", strip=True) == "<s>x"
    assert render("x{{ bos_token }}", TALK, bos="<s>", strip=True) == "x<s>"


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ [1, {'a': true}] | tojson(indent=2) }}", '[\n  1,\n  {\n    "a": true\n  }\n]'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{{ strftime_now('%d %b %Y') }}", "02 Dec 2026"),
        (
            "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.role }};{% endfor %}",
            "system;user;",
        ),
        ("{{ tools }}|{{ documents }}|{{ add_generation_prompt }}|{{ absent }}", "None|None|True|"),
        ("<b>{{ messages[0].content }}</b>", "<b>Be brief.</b>"),
        ("  {% if true %}\nx\n  {% endif %}\ny\n", "x\ny"),
    ],
)
def test_the_environment_is_hugging_faces(source: str, prompt: str) -> None:
    assert render(source, TALK) == prompt


def test_a_clients_variables_come_in_but_never_over_ours() -> None:
    source = "{{ enable_thinking }} {{ messages[0].content }} {{ add_generation_prompt }} {{ bos_token }} {{ tools }}"
    variables = {
        "enable_thinking": False,
        "messages": [],
        "add_generation_prompt": False,
        "bos_token": "x",
        "tools": [1],
    }
    template = ChatTemplate(source, bos_token="<s>")
    assert template.render(TALK, variables, NOW, strip_bos=False) == "False Be brief. True <s> None"


def test_a_client_cannot_set_what_templates_are_made_of() -> None:
    variables = {"bos_token": "x", "range": 1, "namespace": 1, "raise_exception": 1, "strftime_now": 1, "loop": 1}
    source = "{{ bos_token }}{% set n = namespace(a=1) %}{{ n.a }}{% for i in range(2) %}{{ loop.index }}{% endfor %}"
    assert ChatTemplate(source).render(TALK, variables, NOW, strip_bos=False) == "112"
    with pytest.raises(WorkerFailure, match="no"):
        ChatTemplate("{{ raise_exception('no') }}").render(TALK, variables, NOW, strip_bos=False)


def test_a_refusal_of_the_templates_own_is_the_clients_400() -> None:
    with pytest.raises(WorkerFailure) as caught:
        render(GEMMA, TALK, bos="<bos>")
    failure = caught.value
    assert (failure.message, failure.http_status, failure.param) == ("System role not supported", 400, "messages")
    assert (failure.try_another, failure.counts_against_worker) == (False, False)


@pytest.mark.parametrize(
    "source",
    ["{{ 1 / 0 }}", "{{ messages[0].nothing.more }}", "{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"],
)
def test_another_fault_is_the_operators_and_tells_nothing(source: str) -> None:
    with pytest.raises(WorkerFailure) as caught:
        render(source, TALK)
    failure = caught.value
    assert failure.reason == frame_pb2.FAILURE_REASON_UPSTREAM
    assert failure.message == "the model's chat template failed"
    assert not failure.counts_against_worker
    assert "__class__" not in failure.detail


def test_a_clients_text_is_never_a_template() -> None:
    assert render("{{ messages[0].content }}", [{"role": "user", "content": "{{ 1 / 0 }}"}]) == "{{ 1 / 0 }}"


def test_the_prompt_is_bounded() -> None:
    longest = ChatTemplate("{% for i in range(50) %}x{% endfor %}", max_chars=50)
    assert longest.render(TALK, {}, NOW, strip_bos=False) == "x" * 50
    longer = ChatTemplate("{% for i in range(51) %}x{% endfor %}", max_chars=50)
    with pytest.raises(WorkerFailure, match="too long"):
        longer.render(TALK, {}, NOW, strip_bos=False)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_content_is_one_text(content: Any, text: str) -> None:
    assert render("[{{ messages[0].content }}]", [{"role": "user", "content": content}]) == f"[{text}]"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}],
            "messages[0].content[0]",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"content": "x"}], "messages[0]"),
        (["x"], "messages[0]"),
        ([], "messages"),
        (None, "messages"),
    ],
)
def test_what_is_no_text_is_refused_by_its_place(messages: Any, param: str) -> None:
    with pytest.raises(WorkerFailure) as caught:
        render("x", messages)
    assert (caught.value.http_status, caught.value.param) == (400, param)


def test_developer_is_system_and_tool_arguments_are_objects() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [{"role": "developer", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    source = "{{ messages[0].role }} {{ messages[1].tool_calls[0].function.arguments.a }}"
    assert render(source, messages) == "system 1"


@pytest.mark.parametrize("source", ["{% for %}", "{{ unclosed", "{% endif %}", "{{ x | no_such_filter }}"])
def test_a_template_that_does_not_compile_is_a_problem_for_the_operator(source: str) -> None:
    with pytest.raises(TemplateProblem):
        ChatTemplate(source)


def test_a_template_is_inline_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(CHATML)
    assert load(str(file)) == CHATML
    assert load(CHATML) == CHATML
    assert load("{{ messages }}") == "{{ messages }}"


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(TemplateProblem, match=r"none\.jinja cannot be read: No such file"):
        load(str(tmp_path / "none.jinja"))
    (tmp_path / "latin").write_bytes(b"\xe9")
    with pytest.raises(TemplateProblem, match="not UTF-8"):
        load(str(tmp_path / "latin"))
    (tmp_path / "big").write_bytes(b"x" * (template_module.MAX_TEMPLATE_BYTES + 1))
    with pytest.raises(TemplateProblem, match="larger than"):
        load(str(tmp_path / "big"))
