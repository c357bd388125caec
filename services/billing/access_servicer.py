"""AccessService: what the edge asks on behalf of a key. The composition root uses it."""

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from speedinfer.billing.v1 import access_pb2 as pb
from speedinfer.billing.v1 import access_pb2_grpc

from services.billing import limits, messages
from services.billing.clock import Clock
from services.billing.intake import Intake
from services.billing.key import Key, Status
from services.billing.ledger import Account
from services.billing.reading import Reading
from services.billing.store.port import Reader
from services.common.errors import NotFound
from services.common.money import to_money

# Compared with where there is no such key, so that both refusals take the same steps.
_NO_HASH = bytes(32)


class AccessServicer(access_pb2_grpc.AccessServiceServicer):
    """See the proto."""

    def __init__(self, reading: Reading, intake: Intake, clock: Clock) -> None:
        self._reading = reading
        self._intake = intake
        self._clock = clock

    async def AuthorizeKeys(self, request: pb.AuthorizeKeysRequest, context: Any) -> pb.AuthorizeKeysResponse:
        """See the proto."""
        self._intake.check(request.items)
        wanted = [item.key_id for item in request.items]
        keys, accounts = await self._reading.ask(lambda reader: _with_accounts(reader, wanted))
        now_ms = self._clock.wall_ms()
        return pb.AuthorizeKeysResponse(results=[_judge(item, keys, accounts, now_ms) for item in request.items])

    async def GetAccountUsage(self, request: pb.GetAccountUsageRequest, context: Any) -> pb.GetAccountUsageResponse:
        """See the proto."""
        now_ms = self._clock.wall_ms()
        since_ms, until_ms = messages.window(request, now_ms + 1, limits.month_start(now_ms))
        account_id = request.account_id
        account, sums = await self._reading.ask(
            lambda reader: (reader.account(account_id), reader.usage(account_id, since_ms, until_ms))
        )
        if account is None:
            raise NotFound("there is no such account", field="account_id")
        response = pb.GetAccountUsageResponse(
            balance=to_money(account.balance_nanos),
            held=to_money(account.held_nanos),
            available=to_money(account.available_nanos),
            to=messages.timestamp(until_ms),
            models=[messages.model_usage(one) for one in sums],
        )
        getattr(response, "from").CopyFrom(messages.timestamp(since_ms))
        return response

    async def GetRequest(self, request: pb.GetRequestRequest, context: Any) -> pb.GetRequestResponse:
        """See the proto. A reservation's id is its request's."""
        request_id = request.request_id
        found = await self._reading.ask(lambda reader: reader.reservation(request_id))
        if found is None or found.account_id is None or found.account_id != request.account_id:
            raise NotFound("the account has no such request", field="request_id")
        return pb.GetRequestResponse(reservation=messages.reservation(found))


def _with_accounts(reader: Reader, key_ids: Sequence[str]) -> tuple[Mapping[str, Key], Mapping[str, Account]]:
    keys = reader.keys(key_ids)
    return keys, reader.accounts_of(sorted({key.account_id for key in keys.values()}))


def _judge(
    item: pb.PresentedKey, keys: Mapping[str, Key], accounts: Mapping[str, Account], now_ms: int
) -> pb.Authorization:
    key = keys.get(item.key_id)
    same = hmac.compare_digest(item.key_sha256, key.sha256 if key else _NO_HASH)
    status = key.status(now_ms) if key and same else Status.UNKNOWN
    if key and status is Status.ACTIVE and accounts[key.account_id].limits.ended(now_ms):
        status = Status.EXPIRED
    answer = pb.Authorization(key_id=item.key_id, status=int(status))  # type: ignore[arg-type]
    if key and status is Status.ACTIVE:
        answer.account_id = key.account_id
        answer.models.extend(limits.shared_models(key.limits, accounts[key.account_id].limits))
    return answer
