"""Which of the client's fields a worker gets. Pure; the OpenAI transport imports it.

Three lists decide: the OpenAI API's own fields for the operation, the runtimes' extras that only shape the answer, and what
never passes: fields that change how tokens are counted, bring a template, or reach into the worker. A field on no list passes
only where the worker's registration says so.
"""

from collections.abc import Sequence

from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)

from services.router.json_members import NotJson, parse

_SAMPLING = frozenset({
    "frequency_penalty", "logit_bias", "logprobs", "n", "presence_penalty", "seed", "stop", "temperature", "top_p",
    "user", "response_format",
})  # fmt: skip
# What only OpenAI's own platform understands: harmless to leave out, and a server with a strict schema refuses it.
_PLATFORM = frozenset({
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store",
})  # fmt: skip
_CHAT = _SAMPLING | _PLATFORM | {
    "audio", "function_call", "functions", "messages", "modalities", "parallel_tool_calls", "prediction",
    "reasoning_effort", "tool_choice", "tools", "top_logprobs", "verbosity", "web_search_options",
}  # fmt: skip
_COMPLETION = _SAMPLING | {"best_of", "echo", "prompt", "suffix"}
_EMBEDDING = frozenset({"dimensions", "encoding_format", "input", "user"})

_STANDARD: dict[Operation.ValueType, frozenset[str]] = {
    OPERATION_CHAT_COMPLETION: _CHAT,
    OPERATION_COMPLETION: _COMPLETION,
    OPERATION_EMBEDDING: _EMBEDDING,
}

# Documented request fields of trtllm-serve, vLLM, SGLang and llama.cpp that shape the answer and nothing else.
_EXTRAS = frozenset({
    "add_generation_prompt", "add_special_tokens", "allowed_token_ids", "bad_words", "best_of",
    "chat_template_kwargs", "continue_final_message", "documents", "dry_allowed_length", "dry_base",
    "dry_multiplier", "dry_penalty_last_n", "dry_sequence_breakers", "dynatemp_exponent", "dynatemp_range",
    "early_stopping", "ebnf", "grammar", "guided_choice", "guided_decoding_backend", "guided_grammar",
    "guided_json", "guided_regex", "guided_whitespace_pattern", "ignore_eos", "include_reasoning",
    "include_stop_str_in_output", "json_schema", "length_penalty", "min_p", "min_tokens", "mirostat",
    "mirostat_eta", "mirostat_tau", "no_stop_trim", "reasoning_format", "regex", "repeat_last_n", "repeat_penalty",
    "repetition_penalty", "separate_reasoning", "skip_special_tokens", "spaces_between_special_tokens",
    "stop_token_ids", "stream_reasoning", "structured_outputs", "thinking_forced_open", "top_k", "top_p_min",
    "truncate_prompt_tokens", "typical_p", "use_beam_search", "xtc_probability", "xtc_threshold",
})  # fmt: skip
_EMBEDDING_EXTRAS = frozenset({"add_special_tokens", "instruction", "normalize", "truncate_prompt_tokens"})

_FORBIDDEN = frozenset({
    "bootstrap_host", "bootstrap_port", "bootstrap_room", "cache_salt", "chat_template", "continuous_usage_stats",
    "control_vectors", "custom_logit_processor", "custom_params", "data_parallel_rank", "disaggregated_params",
    "id_slot", "image_data", "injected_chat_template_kwargs", "input_embeds", "input_ids", "kv_transfer_params",
    "logits_processor", "logits_processors", "lora", "lora_adapters", "lora_id", "lora_name", "lora_path",
    "lora_request", "max_completion_tokens", "max_length", "max_new_tokens", "max_output_tokens", "max_tokens",
    "media_io_kwargs", "mm_processor_kwargs", "model", "multi_modal_data", "n_cmpl", "n_indent", "n_predict",
    "priority", "prompt_embeds", "prompt_ignore_length", "prompt_token_ids", "request_id", "return_hidden_states",
    "rid", "session_id", "session_params", "slot_id", "stream", "stream_options", "t_max_predict_ms",
    "t_max_prompt_ms", "template", "tokenizer", "vllm_xargs",
})  # fmt: skip
# Keyword arguments of a template's rendering that would replace the template, or what it is rendered from.
_FORBIDDEN_TEMPLATE_ARGUMENTS = frozenset({
    "chat_template", "conversation", "messages", "tokenize", "tokenizer", "tools", "documents",
    "add_generation_prompt",
})  # fmt: skip

# These runtimes refuse a request with a field that their schema does not know.
_STRICT_RUNTIMES = frozenset({"tensorrt-llm", "triton"})

Members = Sequence[tuple[str, bytes]]


def choose(
    operation: Operation.ValueType, members: Members, runtime: str, forward_unknown: bool
) -> tuple[list[tuple[str, bytes]], tuple[str, ...]]:
    """What passes, in the client's order, and the names of what does not."""
    standard = _STANDARD[operation]
    extras = _EMBEDDING_EXTRAS if operation == OPERATION_EMBEDDING else _EXTRAS
    strict = runtime in _STRICT_RUNTIMES
    passing: list[tuple[str, bytes]] = []
    ignored: list[str] = []
    for name, value in members:
        if value == b"null":
            continue
        if (
            name in _FORBIDDEN
            or (name == "chat_template_kwargs" and not _is_harmless(value))
            or (strict and name in _PLATFORM and not forward_unknown)
        ):
            ignored.append(name)
        elif name in standard or name in extras or forward_unknown:
            passing.append((name, value))
        else:
            ignored.append(name)
    return passing, tuple(ignored)


def _is_harmless(value: bytes) -> bool:
    try:
        arguments = parse(value)
    except NotJson:
        return False
    return isinstance(arguments, dict) and not _FORBIDDEN_TEMPLATE_ARGUMENTS & arguments.keys()
