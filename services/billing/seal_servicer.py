"""SealService, for auditors. The composition root uses it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from speedinfer.billing.v1 import seal_pb2 as pb
from speedinfer.billing.v1 import seal_pb2_grpc

from services.billing import seal_key
from services.billing.reading import Reading
from services.billing.seal import Seal
from services.billing.sealing import Sealing
from services.common.errors import ConfigurationError, NotFound, ServiceError

# How many are read at once; each may have a megabyte.
PAGE = 8


class SealServicer(seal_pb2_grpc.SealServiceServicer):
    """See the proto."""

    def __init__(self, sealing: Sealing, reading: Reading, key_path: Path) -> None:
        self._sealing = sealing
        self._reading = reading
        self._key_path = key_path

    async def SealLedger(self, request: pb.SealLedgerRequest, context: Any) -> pb.SealLedgerResponse:
        """See the proto."""
        # What was made without its statement; an export has that.
        made = await self._sealing.seal()
        return pb.SealLedgerResponse(seals=[pb.Seal(number=one.number, key_id=one.key_id) for one in made])

    async def ExportSeals(self, request: pb.ExportSealsRequest, context: Any) -> AsyncIterator[pb.ExportSealsResponse]:
        """See the proto."""
        after = request.after
        while page := await self._page(after):
            for one in page:
                yield pb.ExportSealsResponse(seal=_message(one))
            after = page[-1].number

    async def GetSealKey(self, request: pb.GetSealKeyRequest, context: Any) -> pb.GetSealKeyResponse:
        """See the proto."""
        if not self._key_path.exists():
            raise NotFound("there is no key yet; it is made with the first seal")
        try:
            key = await asyncio.to_thread(seal_key.load, self._key_path)
        except ConfigurationError as error:
            raise ServiceError(str(error)) from error
        return pb.GetSealKeyResponse(public_key=key.public_pem, key_id=key.key_id)

    async def _page(self, after: int) -> list[Seal]:
        return await self._reading.ask(lambda reader: reader.seals(after, PAGE))


def _message(one: Seal) -> pb.Seal:
    return pb.Seal(number=one.number, statement=one.statement, signature=one.signature, key_id=one.key_id)
