"""The most that a request can cost, which is set aside before it is dispatched. Pure; anything in billing may import it.

A byte is at least as much text as a token of it (`tokens_per_byte` says otherwise for odd tokenizers), so the bound needs no
tokenizer. It is wide, and safe: with the template's measured allowance no charge exceeds its hold.
"""

from typing import NamedTuple

from speedinfer.billing.v1 import reservation_pb2
from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
)

from services.billing.price import Bounds, PriceVersion, round_up
from services.billing.usage import MAX_COUNT

EMBEDDING_INPUT_TOKENS = 8
# What rate limits take for a token of text.
LIMIT_BYTES_PER_TOKEN = 4
MAX_SEQUENCES = 1024
MAX_IDEMPOTENCY_KEY_CHARS = 255
MAX_MODEL_CHARS = 256


class Bound(NamedTuple):
    """What a request can come to."""

    hold_nanos: int
    # Per choice; None for embeddings.
    output_limit: int | None
    # What it counts against tokens per minute.
    limit_tokens: int


def invalid_field(item: reservation_pb2.ReserveItem) -> str:
    """The first field with an impossible value, or an empty string. Bounds that a model's record decides come later."""
    prompt = item.prompt
    if item.context.request_id not in ("", item.reservation_id):
        return "context.request_id"
    if item.context.remaining_ms < 0:
        return "context.remaining_ms"
    if not item.key_id:
        return "key_id"
    if not 1 <= len(item.model) <= MAX_MODEL_CHARS:
        return "model"
    if item.operation not in (OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING):
        return "operation"
    for name, count in (
        ("text_bytes", prompt.text_bytes),
        ("messages", prompt.messages),
        ("images", prompt.images),
        ("inputs", prompt.inputs),
        ("token_ids", prompt.token_ids),
    ):
        if not 0 <= count <= MAX_COUNT:
            return f"prompt.{name}"
    if item.HasField("output_limit") and item.output_limit < 1:
        return "output_limit"
    if item.sequences > MAX_SEQUENCES:
        return "sequences"
    if item.HasField("counted_prompt_tokens") and not 0 <= item.counted_prompt_tokens <= MAX_COUNT:
        return "counted_prompt_tokens"
    if len(item.idempotency_key) > MAX_IDEMPOTENCY_KEY_CHARS:
        return "idempotency_key"
    return ""


def prompt_bound(item: reservation_pb2.ReserveItem, bounds: Bounds) -> int | None:
    """The most prompt tokens that the request can have; None where it has images and the model's record has no figure."""
    if item.HasField("counted_prompt_tokens"):
        return int(item.counted_prompt_tokens)
    prompt = item.prompt
    if prompt.images and bounds.image_tokens is None:
        return None
    if prompt.has_tools:
        template = bounds.tools_request_tokens + prompt.messages * bounds.tools_message_tokens
    else:
        template = bounds.template_request_tokens + prompt.messages * bounds.template_message_tokens
    text = (prompt.text_bytes + EMBEDDING_INPUT_TOKENS * prompt.inputs) * bounds.tokens_per_byte
    return int(text + prompt.token_ids + template + prompt.images * (bounds.image_tokens or 0))


def output_bound(item: reservation_pb2.ReserveItem, bounds: Bounds) -> int | None:
    """The most tokens that one choice may have; None for embeddings, which have none."""
    if item.operation == OPERATION_EMBEDDING:
        return None
    if item.HasField("output_limit"):
        return min(item.output_limit, bounds.max_output_tokens)
    return bounds.default_output_tokens


def bound(item: reservation_pb2.ReserveItem, price: PriceVersion) -> Bound | None:
    """What the request can come to at that price, at the dearest tier that its prompt can reach; None as prompt_bound."""
    prompt_tokens = prompt_bound(item, price.bounds)
    if prompt_tokens is None:
        return None
    output_limit = output_bound(item, price.bounds)
    completion_tokens = max(item.sequences, 1) * (output_limit or 0)
    dearest = max(
        [
            prompt_tokens * tier.prompt_nanos + completion_tokens * tier.completion_nanos
            for tier in price.tiers
            if tier.from_prompt_tokens <= prompt_tokens or tier is price.tiers[0]
        ]
    )
    return Bound(round_up(dearest), output_limit, _limit_tokens(item) + completion_tokens)


def count_may_help(item: reservation_pb2.ReserveItem, price: PriceVersion, credit_nanos: int) -> bool:
    """Whether a hold that is over the credit could be within it if the prompt's tokens were counted: not where they were, and
    not where a prompt of a single token would be over it as well."""
    if item.HasField("counted_prompt_tokens"):
        return False
    smallest = reservation_pb2.ReserveItem()
    smallest.CopyFrom(item)
    smallest.counted_prompt_tokens = 1
    least = bound(smallest, price)
    return least is not None and least.hold_nanos <= credit_nanos


def _limit_tokens(item: reservation_pb2.ReserveItem) -> int:
    if item.HasField("counted_prompt_tokens"):
        return int(item.counted_prompt_tokens)
    return int(-(-item.prompt.text_bytes // LIMIT_BYTES_PER_TOKEN) + item.prompt.token_ids)
