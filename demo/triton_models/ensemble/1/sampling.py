"""From the ensemble's input tensors to the body of one llama.cpp completion.

Pure: plain values in, a dict out, neither Triton nor llama.cpp imported. What llama.cpp cannot honour is refused by
name instead of being dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Input tensor -> llama.cpp's field, where the value passes as it is.
SAME_MEANING = {
    "top_k": "top_k",
    "top_p": "top_p",
    "temperature": "temperature",
    "repetition_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}


class Refused(ValueError):
    """The request asks for something this model cannot do; the text is for the caller."""


def completion_body(inputs: Mapping[str, list[Any]]) -> dict[str, Any]:
    """`inputs`: tensor name -> its elements (text as str); absent optional tensors are absent.

    `end_id` ends generation in the stock model. llama.cpp ends at the model's own end tokens whatever we say, so only
    its off switch, -1, means something here. `pad_id` never matters: nothing is padded.
    """
    max_tokens = int(inputs["max_tokens"][0])
    if max_tokens < 1:  # llama.cpp would take 0 as 1 and -1 as endless
        raise Refused(f"max_tokens must be at least 1, got {max_tokens}")
    body: dict[str, Any] = {
        "prompt": inputs["text_input"][0],
        "max_tokens": max_tokens,
        # Streamed inside even where the caller wants one answer: only a stream can be stopped half-way.
        "stream": True,
        "timings_per_token": True,  # the running token counts, on every chunk
        "return_progress": True,  # a chunk per evaluated batch of the prompt: a chance to notice a cancel
    }
    for tensor, field in SAME_MEANING.items():
        if tensor in inputs:
            body[field] = inputs[tensor][0]
    if "seed" in inputs:
        body["seed"] = int(inputs["seed"][0]) % 2**32  # llama.cpp's seeds have 32 bits
    if stop := [word for word in inputs.get("stop_words", []) if word]:
        body["stop"] = stop
    if banned := [word for word in inputs.get("bad_words", []) if word]:
        body["logit_bias"] = [[word, False] for word in banned]
    min_tokens = int(inputs.get("min_tokens", [0])[0])
    if min_tokens >= max_tokens or inputs.get("end_id", [0])[0] == -1:
        body["ignore_eos"] = True
    elif min_tokens > 0:
        raise Refused("min_tokens below max_tokens is not something llama.cpp can do")
    return body
