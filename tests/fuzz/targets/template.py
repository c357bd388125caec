"""Promise: a conversation becomes a bounded prompt or a refusal (WorkerFailure), and nothing that a client wrote is ever
evaluated or takes the place of what the gateway gives the template.
"""

from datetime import UTC, datetime
from typing import Any

from services.router.transport.port import WorkerFailure
from services.router.transport.template import DEFAULT_TEMPLATE, ChatTemplate
from tests.fuzz.choices import Choices

INSTRUMENTED = ("services.router.transport.template", "services.router.transport.template_sandbox")
NOW = datetime(2026, 12, 2, tzinfo=UTC)
MAX_CHARS = 400
BOS, EOS = "<bos>", "<eos>"
_CHATML = """\
{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
{% if message.tool_calls %}{% for call in message.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}{% endif %}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
_STRICT = """\
{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('roles must alternate') }}{% endif %}{{ message['content'] | trim }}{{ eos_token }}{% endfor %}"""
TEMPLATES = tuple(
    ChatTemplate(source, bos_token=BOS, eos_token=EOS, max_chars=MAX_CHARS)
    for source in (DEFAULT_TEMPLATE, _CHATML, _STRICT)
)
# What would show if a text were taken for a template.
_EVIL = ("{{ 7 * 191 }}", "{% raw %}", "{{ bos_token }}", "{# x #}", "{{ ''.__class__ }}", "{{ raise_exception('x') }}")
_SHOWS = "1337"
_PIECES = ("a", "\n", "é", " ", "{", "}", "%", "#", "'", '"', "\\", "<bos>", *_EVIL)


def check(data: bytes) -> None:
    """Messages, then variables of the client's own."""
    choices = Choices(data)
    which = choices.below(len(TEMPLATES))
    strip = choices.flag()
    messages: Any = [_message(choices) for _ in range(choices.below(5))]
    variables = {
        choices.pick(("messages", "bos_token", "add_generation_prompt", "raise_exception", "loop", "x", "namespace")): (
            choices.value()
        )
        for _ in range(choices.below(3))
    }
    if choices.below(16) == 15:
        messages = choices.value()
    try:
        prompt = TEMPLATES[which].render(messages, variables, NOW, strip_bos=strip)
    except WorkerFailure as error:
        failure = error
    else:
        _check_prompt(prompt, messages, which, strip)
        return
    assert not failure.counts_against_worker, "a client's message must not open a worker's circuit"
    assert len(failure.message) <= MAX_CHARS + 100


def _check_prompt(prompt: str, messages: Any, which: int, strip: bool) -> None:
    assert len(prompt) <= MAX_CHARS
    assert _SHOWS not in prompt, "a client's text was evaluated"
    assert which == 2 or prompt.endswith(("assistant:", "<|im_start|>assistant\n"))
    for text in _texts(messages):
        expected = text.strip() if which == 2 else text
        assert expected in prompt or strip, "a text is not in the prompt as it was written"


def _message(choices: Choices) -> Any:
    text = choices.text(_PIECES, 8)
    content = choices.pick((
        text, text, text, [{"type": "text", "text": text}], None, [], [{"type": "image_url"}], 7, choices.value(),
    ))  # fmt: skip
    message: dict[str, Any] = {
        "role": choices.pick(("user", "assistant", "system", "developer", 5)),
        "content": content,
    }
    if choices.below(4) == 3:
        arguments = choices.pick(('{"a": 1}', "{", choices.text(_PIECES), choices.value()))
        calls = [{"function": {"name": "f", "arguments": arguments}}]
        message["tool_calls"] = choices.pick((calls, choices.value()))
    return choices.pick((message, message, message, choices.value()))


def _texts(messages: Any) -> list[str]:
    return [each["content"] for each in messages if isinstance(each.get("content"), str)]
