"""Which of the client's fields a worker gets. Pure; the OpenAI transport imports it.

Three lists decide: the OpenAI API's own fields for the operation, the extras of the worker's runtime (`openai_extras.py`), and
what never passes: fields that change how tokens are counted, bring a template, or reach into the worker. A field on no list
passes only where the worker's registration says so. What does not pass is left out, and the client told its name; unless the
answer would be another one without it: then the request is refused.
"""

import functools
from collections.abc import Sequence

from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)

from services.common.json_members import NotJson, parse
from services.router.transport import openai_errors
from services.router.transport.openai_extras import ANYBODYS, ESSENTIAL, PLATFORM, RUNTIMES

_SAMPLING = frozenset({
    "frequency_penalty", "logit_bias", "logprobs", "n", "presence_penalty", "seed", "stop", "temperature", "top_p",
    "user", "response_format",
})  # fmt: skip
_CHAT = _SAMPLING | PLATFORM | {
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

# What an essential field may say without meaning anything.
_NOTHING = frozenset({b"[]", b'""', b"false"})

Members = Sequence[tuple[str, bytes]]


def choose(
    operation: Operation.ValueType, members: Members, runtime: str, forward_unknown: bool
) -> tuple[list[tuple[str, bytes]], tuple[str, ...]]:
    """What passes, in the client's order, and the names of what does not. WorkerFailure (400, naming the field) for what the
    runtime cannot honour and the answer cannot do without."""
    standard, known, essential = _lists(operation, runtime)
    passing: list[tuple[str, bytes]] = []
    ignored: list[str] = []
    for name, value in members:
        if value == b"null":
            continue
        if (
            name in _FORBIDDEN
            or (name in _PROMPTS and name not in standard)
            or (name == "chat_template_kwargs" and not _is_harmless(value))
        ):
            ignored.append(name)
        elif name in known or forward_unknown:
            passing.append((name, value))
        elif name in essential and value not in _NOTHING:
            raise openai_errors.not_honoured(name, runtime)
        else:
            ignored.append(name)
    return passing, tuple(ignored)


@functools.cache
def _lists(operation: Operation.ValueType, runtime: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The operation's own fields, those that the runtime knows, and those that an answer cannot do without."""
    standard = _STANDARD[operation]
    own = RUNTIMES[runtime]
    return (
        standard,
        frozenset((standard - own.lacks) | own.of(operation)),
        frozenset(ESSENTIAL & (standard | ANYBODYS.of(operation))),
    )


def _is_harmless(value: bytes) -> bool:
    try:
        arguments = parse(value)
    except NotJson:
        return False
    return isinstance(arguments, dict) and not _FORBIDDEN_TEMPLATE_ARGUMENTS & arguments.keys()
