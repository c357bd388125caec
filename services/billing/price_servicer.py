"""PriceService, for operators. The composition root uses it."""

from typing import Any

from speedinfer.billing.v1 import account_pb2, price_pb2_grpc
from speedinfer.billing.v1 import price_pb2 as pb

from services.billing import messages, page
from services.billing.clock import Clock
from services.billing.intake import Intake
from services.billing.operations.price import SetPrice, SetPriceList
from services.billing.reading import Reading
from services.billing.rules import Rules


class PriceServicer(price_pb2_grpc.PriceServiceServicer):
    """See the proto."""

    def __init__(self, intake: Intake, reading: Reading, rules: Rules, clock: Clock) -> None:
        self._intake = intake
        self._reading = reading
        self._rules = rules
        self._clock = clock

    async def SetPrices(self, request: pb.SetPricesRequest, context: Any) -> pb.SetPricesResponse:
        """See the proto."""
        items = [SetPrice(item, self._rules) for item in request.items]
        if request.all_or_none:
            self._intake.check(items)
            answers = await self._intake.run([SetPriceList(items)])
            results = answers and list(answers[0].results)
        else:
            results = await self._intake.run(items)
        if results is None:
            busy, message = account_pb2.MUTATION_STATUS_BUSY, "billing is busy; try again"
            results = [
                pb.PriceResult(operation_id=item.operation_id, status=busy, message=message) for item in request.items
            ]
        return pb.SetPricesResponse(results=results)

    async def ListPrices(self, request: pb.ListPricesRequest, context: Any) -> pb.ListPricesResponse:
        """See the proto."""
        model, after = request.model, page.place(request.page_token)
        in_effect_at_ms = None if request.include_past else self._clock.wall_ms()
        at_most = page.size(request.page_size) + 1
        found = await self._reading.ask(lambda reader: reader.prices(model, in_effect_at_ms, after, at_most))
        prices, last = page.cut(found, request.page_size)
        return pb.ListPricesResponse(
            prices=[messages.price(price) for _, price in prices], next_page_token=str(last[0]) if last else ""
        )
