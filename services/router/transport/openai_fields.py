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

from services.common.json_members import NotJson, parse

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

# More sequences than the hold was made for (`n` and `best_of` are known to it).
_MULTIPLY = frozenset({
    "batch_size", "beam_search", "beam_size", "beam_width", "beams", "best_of_n", "candidate_count", "n_beams",
    "n_choices", "n_cmpl", "n_completions", "n_predict", "n_samples", "num_beam_groups", "num_beams",
    "num_candidates", "num_choices", "num_completions", "num_generations", "num_outputs", "num_responses",
    "num_return_sequences", "num_samples", "num_sequences", "return_sequences",
})  # fmt: skip
# The output's length and the prompt's, which are the gateway's to set.
_LENGTH = frozenset({
    "max_completion_tokens", "max_decode_tokens", "max_gen_len", "max_gen_tokens", "max_gen_toks",
    "max_generated_tokens", "max_input_tokens", "max_length", "max_model_len", "max_new_tokens", "max_output_len",
    "max_output_length", "max_output_tokens", "max_prompt_tokens", "max_seq_len", "max_sequence_length",
    "max_thinking_tokens", "max_time", "max_tokens", "max_tokens_to_sample", "max_total_tokens", "min_length",
    "min_new_tokens", "n_ctx", "n_discard", "n_indent", "n_keep", "new_tokens", "num_ctx", "num_keep", "num_predict",
    "output_len", "output_length", "prompt_ignore_length", "request_output_len", "response_length",
    "t_max_predict_ms", "t_max_prompt_ms",
})  # fmt: skip
# What would stand in for the prompt that was counted, or go beside it.
_OTHER_PROMPT = frozenset({
    "audio_data", "context", "conversation", "conversations", "decoder_input_ids", "decoder_inputs", "decoder_prompt",
    "draft_input_ids", "draft_tokens", "encoder_input_features", "encoder_input_ids", "encoder_inputs",
    "encoder_output_lengths", "encoder_prompt", "image", "image_data", "images", "input_embeddings", "input_embeds",
    "input_extra", "input_ids", "input_prefix", "input_suffix", "input_text", "input_token_ids", "input_tokens",
    "inputs", "inputs_embeds", "instructions", "mm_data", "mm_hashes", "modality_data", "multi_modal_data",
    "multi_modal_uuids", "multimodal_data", "prompt_embedding_table", "prompt_embeddings", "prompt_embeds",
    "prompt_ids", "prompt_table_extra_id", "prompt_table_extra_ids", "prompt_token_ids", "prompt_tokens",
    "prompt_tuning_config", "prompt_vocab_size", "prompts", "queries", "query", "raw_prompt", "system",
    "system_prompt", "text", "text_input", "texts", "token_ids", "tokens", "video_data", "videos",
})  # fmt: skip
# Objects that hold parameters of their own.
_NESTED = frozenset({
    "backend_params", "extra", "extra_args", "extra_body", "extra_headers", "extra_params", "extra_query",
    "gen_kwargs", "generation_config", "generation_kwargs", "generation_params", "kwargs", "model_kwargs", "nvext",
    "options", "parameters", "params", "request", "sampling_config", "sampling_parameters", "sampling_params",
    "vllm_xargs",
})  # fmt: skip
# What reaches into the worker, brings a template, or changes what it reports.
_INSIDE = frozenset({
    "adapter", "adapter_id", "adapter_name", "adapters", "bootstrap_host", "bootstrap_port", "bootstrap_room",
    "cache_salt", "chat_template", "chat_template_path", "continuous_usage_stats", "control_vectors",
    "conversation_params", "custom_logit_processor", "custom_params", "data_parallel_rank", "disaggregated_params",
    "extra_key", "id_slot", "include_usage", "injected_chat_template_kwargs", "kv_cache_retention_config",
    "kv_transfer_params", "logits_processor", "logits_processors", "lookahead_config", "lora", "lora_adapters",
    "lora_config", "lora_id", "lora_name", "lora_path", "lora_request", "lora_task_id", "lora_uid", "lora_weights",
    "media_io_kwargs", "mm_processor_kwargs", "model", "model_path", "priority", "prompt_adapter",
    "prompt_adapter_request", "request_id", "response_fields", "return_hidden_states", "return_routed_experts",
    "return_usage", "rid", "routed_dp_rank", "scheduling_params", "session_id", "session_params", "slot_id", "stream",
    "stream_interval", "stream_options", "stream_usage", "streaming", "template", "template_kwargs", "tokenizer",
    "tokenizer_path", "trace_headers", "verbose",
})  # fmt: skip
# The prompt of one operation in a request of another.
_PROMPTS = frozenset({"input", "messages", "prompt"})
_FORBIDDEN = _MULTIPLY | _LENGTH | _OTHER_PROMPT | _NESTED | _INSIDE
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
            or (name in _PROMPTS and name not in standard)
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
