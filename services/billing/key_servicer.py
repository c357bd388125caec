"""KeyService, for operators. The composition root uses it."""

from collections.abc import Sequence
from typing import Any

from speedinfer.billing.v1 import account_pb2, key_pb2_grpc
from speedinfer.billing.v1 import key_pb2 as pb

from services.billing import messages, page
from services.billing.clock import Clock
from services.billing.intake import Intake
from services.billing.operations.key import CreateKey, RevokeKey, RotateKey
from services.billing.operations.operation import Operation
from services.billing.reading import Reading
from services.billing.rules import Rules


class KeyServicer(key_pb2_grpc.KeyServiceServicer):
    """See the proto."""

    def __init__(self, intake: Intake, reading: Reading, rules: Rules, clock: Clock) -> None:
        self._intake = intake
        self._reading = reading
        self._rules = rules
        self._clock = clock

    async def CreateKeys(self, request: pb.CreateKeysRequest, context: Any) -> pb.CreateKeysResponse:
        """See the proto."""
        operations = [CreateKey(item, self._rules) for item in request.items]
        return pb.CreateKeysResponse(results=await self._run(operations, request.items))

    async def RevokeKeys(self, request: pb.RevokeKeysRequest, context: Any) -> pb.RevokeKeysResponse:
        """See the proto."""
        operations = [RevokeKey(item, self._rules) for item in request.items]
        return pb.RevokeKeysResponse(results=await self._run(operations, request.items))

    async def RotateKeys(self, request: pb.RotateKeysRequest, context: Any) -> pb.RotateKeysResponse:
        """See the proto."""
        operations = [RotateKey(item, self._rules) for item in request.items]
        return pb.RotateKeysResponse(results=await self._run(operations, request.items))

    async def ListKeys(self, request: pb.ListKeysRequest, context: Any) -> pb.ListKeysResponse:
        """See the proto."""
        account_id, after = request.account_id, page.place(request.page_token)
        at_most = page.size(request.page_size) + 1
        found = await self._reading.ask(lambda reader: reader.keys_of(account_id, after, at_most))
        keys, last = page.cut(found, request.page_size)
        now_ms = self._clock.wall_ms()
        return pb.ListKeysResponse(
            keys=[messages.key(key, now_ms) for _, key in keys], next_page_token=str(last[0]) if last else ""
        )

    async def _run(self, operations: Sequence[Operation], items: Sequence[Any]) -> list[pb.KeyResult]:
        results = await self._intake.run(operations)
        if results is None:
            busy, message = account_pb2.MUTATION_STATUS_BUSY, "billing is busy; try again"
            return [pb.KeyResult(operation_id=item.operation_id, status=busy, message=message) for item in items]
        return results
