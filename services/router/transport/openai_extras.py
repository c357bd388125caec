"""What each runtime understands beyond the OpenAI API. A table; imported by `openai_fields.py` only.

Read from the request models of trtllm-serve, Triton's OpenAI frontend, vLLM, SGLang and llama.cpp's server, and limited to what
shapes the answer and nothing else. The first two refuse a request with any other name; the others pass over it in silence, and
the client would pay for an answer that it did not ask for. `openai-compatible` says nothing of what runs there, so that it gets
whatever one of them understands.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Extras:
    """The names that one runtime takes besides the OpenAI API's."""

    # For chats and completions, for one of them, and for embeddings.
    both: AbstractSet[str]
    chat: AbstractSet[str] = _NONE
    completion: AbstractSet[str] = _NONE
    embedding: AbstractSet[str] = _NONE
    # Names of the OpenAI API that its request model forbids.
    lacks: AbstractSet[str] = _NONE

    def of(self, operation: Operation.ValueType) -> AbstractSet[str]:
        """The names for one operation."""
        return {
            OPERATION_CHAT_COMPLETION: self.both | self.chat,
            OPERATION_COMPLETION: self.both | self.completion,
            OPERATION_EMBEDDING: self.embedding,
        }[operation]


# What only OpenAI's own platform understands: harmless to leave out.
PLATFORM = frozenset({
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store",
})  # fmt: skip
# What changes the answer into another one: left out in silence, it would be charged for what nobody asked for.
ESSENTIAL = frozenset({
    "audio", "ebnf", "function_call", "functions", "grammar", "guided_choice", "guided_grammar", "guided_json",
    "guided_regex", "json_schema", "regex", "structured_outputs", "web_search_options",
})  # fmt: skip

_FOR_VLLM_AND_ITS_KIN = frozenset({
    "add_special_tokens", "best_of", "ignore_eos", "include_stop_str_in_output", "length_penalty", "min_p", "min_tokens",
    "repetition_penalty", "skip_special_tokens", "spaces_between_special_tokens", "stop_token_ids", "top_k",
    "truncate_prompt_tokens", "use_beam_search",
})  # fmt: skip
_TEMPLATE = frozenset({"add_generation_prompt", "chat_template_kwargs", "documents"})
_UNHEARD_BY_STRICT_ONES = PLATFORM | {"audio", "modalities", "prediction", "verbosity", "web_search_options"}

_TENSORRT_LLM = Extras(
    both=_FOR_VLLM_AND_ITS_KIN | {"early_stopping", "top_p_min"},
    chat=_TEMPLATE,
    embedding=frozenset({"add_special_tokens"}),
    lacks=_UNHEARD_BY_STRICT_ONES | {"function_call", "functions"},
)
_TRITON = Extras(both=frozenset({"ignore_eos", "min_tokens"}), lacks=_UNHEARD_BY_STRICT_ONES)
_VLLM = Extras(
    both=_FOR_VLLM_AND_ITS_KIN | {
        "allowed_token_ids", "bad_words", "guided_choice", "guided_decoding_backend", "guided_grammar", "guided_json",
        "guided_regex", "guided_whitespace_pattern", "structured_outputs",
    },
    chat=_TEMPLATE | {"continue_final_message", "include_reasoning"},
    embedding=frozenset({"add_special_tokens", "normalize", "truncate_prompt_tokens"}),
)  # fmt: skip
_SGLANG = Extras(
    both=frozenset({
        "ebnf", "ignore_eos", "min_p", "min_tokens", "no_stop_trim", "regex", "repetition_penalty", "skip_special_tokens",
        "stop_token_ids", "top_k",
    }),
    chat=frozenset({"chat_template_kwargs", "continue_final_message", "separate_reasoning", "stream_reasoning"}),
    completion=frozenset({"json_schema"}),
)  # fmt: skip
_LLAMA_CPP = Extras(
    both=frozenset({
        "dry_allowed_length", "dry_base", "dry_multiplier", "dry_penalty_last_n", "dry_sequence_breakers",
        "dynatemp_exponent", "dynatemp_range", "grammar", "ignore_eos", "json_schema", "min_p", "mirostat",
        "mirostat_eta", "mirostat_tau", "repeat_last_n", "repeat_penalty", "top_k", "typical_p", "xtc_probability",
        "xtc_threshold",
    }),
    chat=frozenset({"add_generation_prompt", "chat_template_kwargs", "reasoning_format", "thinking_forced_open"}),
)  # fmt: skip
_ALL = (_TENSORRT_LLM, _TRITON, _VLLM, _SGLANG, _LLAMA_CPP)
# Of a server of which nothing is known.
ANYBODYS = Extras(
    both=_NONE.union(*(each.both for each in _ALL)),
    chat=_NONE.union(*(each.chat for each in _ALL)),
    completion=_NONE.union(*(each.completion for each in _ALL)),
    # Servers of embedding models alone have names of their own.
    embedding=_NONE.union({"instruction"}, *(each.embedding for each in _ALL)),
)

RUNTIMES = {
    "tensorrt-llm": _TENSORRT_LLM,
    "triton": _TRITON,
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "llama.cpp": _LLAMA_CPP,
    "openai-compatible": ANYBODYS,
}
