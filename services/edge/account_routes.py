"""`GET /v1/usage` and `GET /v1/requests/{id}`: what the calling key's own account has used, and what one request cost.

Amounts are decimal text in USD with nine places; nothing here is a float.
"""

from datetime import UTC, datetime
from typing import Any

import grpc
from aiohttp import web
from google.protobuf.timestamp_pb2 import Timestamp
from google.type import money_pb2
from speedinfer.billing.v1.access_pb2 import GetAccountUsageRequest, GetAccountUsageResponse
from speedinfer.billing.v1.reservation_pb2 import Ending, Reservation, ReservationState
from speedinfer.common.v1.operation_pb2 import Operation

from services.common import ids, money
from services.edge import client_headers
from services.edge.admission import Admission
from services.edge.answer_json import answer
from services.edge.arrival import ARRIVAL
from services.edge.billing_client import BillingClient, BillingUnavailable
from services.edge.key_cache import Caller
from services.edge.openai_errors import BILLING_UNAVAILABLE, Refused, invalid, request_not_found


class AccountRoutes:
    """Answers about money, to the account whose money it is."""

    def __init__(self, admission: Admission, billing: BillingClient) -> None:
        self._admission = admission
        self._billing = billing

    async def usage(self, request: web.Request) -> web.Response:
        """The account's figures over `from` (inclusive) to `to` (exclusive); by default this UTC month until now."""
        caller = await self._caller(request)
        message = GetAccountUsageRequest(account_id=caller.account_id)
        for name in ("from", "to"):
            if name in request.query:
                getattr(message, name).CopyFrom(_instant(request.query[name], name))
        try:
            found = await self._billing.account_usage(message)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise Refused(invalid("The window is impossible.", "from")) from None
            raise Refused(BILLING_UNAVAILABLE) from None
        except BillingUnavailable:
            raise Refused(BILLING_UNAVAILABLE) from None
        return answer(_usage_json(found))

    async def request(self, request: web.Request) -> web.Response:
        """One request of the account."""
        caller = await self._caller(request)
        request_id = request.match_info["request_id"]
        if not ids.is_uuid7(request_id):
            raise Refused(request_not_found(request_id))
        try:
            found = await self._billing.request(caller.account_id, request_id)
        except (BillingUnavailable, grpc.aio.AioRpcError):
            raise Refused(BILLING_UNAVAILABLE) from None
        if found is None:
            raise Refused(request_not_found(request_id))
        return answer(_request_json(found))

    async def _caller(self, request: web.Request) -> Caller:
        caller = await self._admission.authorise(client_headers.bearer(request.headers))
        request[ARRIVAL].key_id = caller.key_id
        return caller


def _instant(text: str, name: str) -> Timestamp:
    try:
        instant = datetime.fromisoformat(text)
        stamp = Timestamp()
        stamp.FromDatetime(instant if instant.tzinfo else instant.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise Refused(invalid(f"{name!r} must be a date or an RFC 3339 time.", name)) from None
    return stamp


def _usd(amount: money_pb2.Money) -> str:
    return money.format_usd(money.from_money(amount))


def _usage_json(found: GetAccountUsageResponse) -> dict[str, Any]:
    return {
        "balance": _usd(found.balance),
        "held": _usd(found.held),
        "available": _usd(found.available),
        "currency": money.CURRENCY,
        "window": {"from": getattr(found, "from").ToJsonString(), "to": found.to.ToJsonString()},
        "models": [
            {
                "model": each.model,
                "requests": each.requests,
                "prompt_tokens": each.prompt_tokens,
                "cached_tokens": each.cached_prompt_tokens,
                "completion_tokens": each.completion_tokens,
                "cost": _usd(each.cost),
            }
            for each in found.models
        ],
    }


def _request_json(found: Reservation) -> dict[str, Any]:
    usage = None
    if found.HasField("usage"):
        counts = found.usage
        usage = {
            "prompt_tokens": counts.prompt_tokens,
            "completion_tokens": counts.completion_tokens,
            "total_tokens": counts.prompt_tokens + counts.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": counts.cached_prompt_tokens},
        }
    state = ReservationState.Name(found.state).removeprefix("RESERVATION_STATE_").lower()
    ending = Ending.Name(found.ending).removeprefix("ENDING_").lower()
    return {
        "request_id": found.reservation_id,
        "model": found.model,
        "operation": Operation.Name(found.operation).removeprefix("OPERATION_").lower(),
        # `held`, `settled`, `released`, `expired` or `late`.
        "state": state,
        # How it ended: `completed`, `client_left` or `deadline` if it was charged, else the error's code.
        "outcome": found.cause or None if ending == "unspecified" else ending,
        "usage": usage,
        "hold": _usd(found.hold),
        "cost": _usd(found.charge) if found.HasField("charge") else None,
        "currency": money.CURRENCY,
        "overrun": found.overrun,
        "price_version": found.price_version,
        "attempts": found.attempts,
        "worker_id": found.worker_id or None,
        "key_id": found.key_id,
        "created_at": found.created_at.ToJsonString() if found.HasField("created_at") else None,
        "closed_at": found.closed_at.ToJsonString() if found.HasField("closed_at") else None,
    }
