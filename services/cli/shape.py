"""JSON forms of what the services answer: names as the contract lists them. Pure; imported by the command's modules only.

Amounts are decimal strings in USD with nine places, instants RFC 3339 in UTC, what is absent is null.
"""

from datetime import UTC
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from speedinfer.billing.v1 import access_pb2, account_pb2, key_pb2, price_pb2, report_pb2
from speedinfer.router.v1 import fleet_pb2, registry_pb2

from services.common.money import format_usd, from_money

# Up to here a double holds every integer.
EXACT_INTEGERS = 2**53


def usd(message: Message, field: str) -> str | None:
    """An amount, or None where it is absent."""
    return format_usd(from_money(getattr(message, field))) if message.HasField(field) else None


def when(message: Message, field: str) -> str | None:
    """An instant, or None where it is absent."""
    return stamp(getattr(message, field)) if message.HasField(field) else None


def stamp(at: Timestamp) -> str:
    """An instant, with milliseconds where it has any."""
    moment = at.ToDatetime(tzinfo=UTC)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")


def count(message: Message, field: str) -> int | None:
    """A number, or None where it is absent."""
    return int(getattr(message, field)) if message.HasField(field) else None


def struct(message: Struct) -> dict[str, Any]:
    """A free object as it was written: a Struct has only doubles, so whole ones become integers again."""
    made: dict[str, Any] = _as_written(json_format.MessageToDict(message))
    return made


def _as_written(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_written(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT_INTEGERS:
        return int(value)
    return value


def _word(enum: Any, value: int, prefix: str) -> str:
    text: str = enum.Name(value)
    return text.removeprefix(prefix).lower()


def account(message: account_pb2.Account) -> dict[str, Any]:
    """An account."""
    return {
        "account_id": message.account_id,
        "name": message.name,
        "balance": format_usd(from_money(message.balance)),
        "held": format_usd(from_money(message.held)),
        "available": format_usd(from_money(message.available)),
        "open_holds": message.open_holds,
        "credit_limit": format_usd(from_money(message.limits.credit_limit)),
        **_limits(message.limits),
        "created_at": when(message, "created_at"),
    }


def _limits(limits: key_pb2.KeyLimits | account_pb2.AccountLimits) -> dict[str, Any]:
    return {
        "rpm": count(limits, "requests_per_minute"),
        "tpm": count(limits, "tokens_per_minute"),
        "concurrency": count(limits, "concurrency"),
        "models": list(limits.models),
        "daily_spend": usd(limits, "daily_spend"),
        "monthly_spend": usd(limits, "monthly_spend"),
        "expires_at": when(limits, "expires_at"),
    }


def key(message: key_pb2.Key) -> dict[str, Any]:
    """A key without its secret."""
    return {
        "key_id": message.key_id,
        "account_id": message.account_id,
        "name": message.name,
        "status": _word(access_pb2.KeyStatus, message.status, "KEY_STATUS_"),
        **_limits(message.limits),
        "created_at": when(message, "created_at"),
        "revoked_at": when(message, "revoked_at"),
        "replaces_key_id": message.replaces_key_id or None,
    }


BOUNDS = tuple(field.name for field in price_pb2.ModelBounds.DESCRIPTOR.fields)


def price(message: price_pb2.PriceVersion) -> dict[str, Any]:
    """A price version; the first tier's prices stand at the top, where most models have no other."""
    tiers = [
        {
            "from_prompt_tokens": tier.from_prompt_tokens,
            "prompt": format_usd(from_money(tier.prompt)),
            "cached_prompt": usd(tier, "cached_prompt"),
            "completion": format_usd(from_money(tier.completion)),
        }
        for tier in message.tiers
    ]
    first = tiers[0] if tiers else {"prompt": None, "cached_prompt": None, "completion": None}
    return {
        "version": message.version,
        "model": message.model,
        "prompt": first["prompt"],
        "cached_prompt": first["cached_prompt"],
        "completion": first["completion"],
        "effective_from": when(message, "effective_from"),
        "account_id": message.account_id or None,
        "tiers": tiers,
        "bounds": {name: count(message.bounds, name) for name in BOUNDS},
        "created_at": when(message, "created_at"),
    }


def entry(message: report_pb2.Entry) -> dict[str, Any]:
    """An account's leg of a transaction."""
    usage = message.usage
    return {
        "entry_id": message.entry_id,
        "transaction_id": message.transaction_id,
        "account_id": message.account_id,
        "request_id": message.request_id or None,
        "kind": _word(report_pb2.EntryKind, message.kind, "ENTRY_KIND_"),
        "amount": format_usd(from_money(message.amount)),
        "balance": usd(message, "balance"),
        "model": message.model or None,
        "usage": {
            "prompt_tokens": count(usage, "prompt_tokens"),
            "cached_tokens": count(usage, "cached_prompt_tokens"),
            "completion_tokens": count(usage, "completion_tokens"),
        }
        if message.HasField("usage")
        else None,
        "key_id": message.key_id or None,
        "price_version": message.price_version or None,
        "worker_id": message.worker_id or None,
        "attempts": message.attempts or None,
        "note": message.note or None,
        "at": when(message, "booked_at"),
    }


def usage(message: report_pb2.GetUsageResponse) -> dict[str, Any]:
    """An account's usage, as `GET /v1/usage` answers it."""
    return {
        "balance": format_usd(from_money(message.balance)),
        "held": format_usd(from_money(message.held)),
        "available": format_usd(from_money(message.available)),
        "currency": "USD",
        "window": {"from": when(message, "from"), "to": when(message, "to")},
        "models": [
            {
                "model": model.model,
                "requests": model.requests,
                "prompt_tokens": model.prompt_tokens,
                "cached_tokens": model.cached_prompt_tokens,
                "completion_tokens": model.completion_tokens,
                "cost": format_usd(from_money(model.cost)),
            }
            for model in message.models
        ],
    }


def worker(message: fleet_pb2.Worker) -> dict[str, Any]:
    """A worker, as `GET /health` shows it."""
    probe = message.last_probe
    return {
        "worker_id": message.worker_id,
        "worker_type": message.worker_type,
        "runtime": message.runtime,
        "transport": message.transport,
        "supported_models": list(message.supported_models),
        "status": _word(fleet_pb2.WorkerStatus, message.status, "WORKER_STATUS_"),
        "circuit": message.circuit or "closed",
        "in_flight": message.in_flight,
        "last_probe": {
            "at": when(probe, "at"),
            "latency_ms": round(probe.latency_ms, 3),
            "error": probe.error or None,
        }
        if message.HasField("last_probe")
        else None,
        "metadata": struct(message.metadata),
    }


def worker_detail(message: registry_pb2.WorkerDetail) -> dict[str, Any]:
    """A worker with what only operators see."""
    return worker(message.worker) | {
        "runtime_endpoint": message.runtime_endpoint,
        "runtime_config": struct(message.runtime_config),
        "detail": message.detail or None,
        "warnings": list(message.warnings),
    }
