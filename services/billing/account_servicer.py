"""AccountService, for operators. The composition root uses it."""

from collections.abc import Sequence
from typing import Any

from speedinfer.billing.v1 import account_pb2 as pb
from speedinfer.billing.v1 import account_pb2_grpc

from services.billing import messages, page
from services.billing.intake import Intake
from services.billing.operations.account import CreateAccount, PostAdjustment, PostCredit, SetAccountLimits
from services.billing.operations.operation import Operation
from services.billing.reading import Reading
from services.billing.rules import Rules
from services.common import ids
from services.common.errors import NotFound


class AccountServicer(account_pb2_grpc.AccountServiceServicer):
    """See the proto."""

    def __init__(self, intake: Intake, reading: Reading, rules: Rules) -> None:
        self._intake = intake
        self._reading = reading
        self._rules = rules

    async def CreateAccounts(self, request: pb.CreateAccountsRequest, context: Any) -> pb.CreateAccountsResponse:
        """See the proto. Account ids begin with their time, so that they sort by age."""
        operations = [
            CreateAccount(item, self._rules, f"acct_{ids.uuid7().replace('-', '')}") for item in request.items
        ]
        return pb.CreateAccountsResponse(results=await self._run(operations, request.items))

    async def PostCredits(self, request: pb.PostCreditsRequest, context: Any) -> pb.PostCreditsResponse:
        """See the proto."""
        operations = [PostCredit(item, self._rules) for item in request.items]
        return pb.PostCreditsResponse(results=await self._run(operations, request.items))

    async def PostAdjustments(self, request: pb.PostAdjustmentsRequest, context: Any) -> pb.PostAdjustmentsResponse:
        """See the proto."""
        operations = [PostAdjustment(item, self._rules) for item in request.items]
        return pb.PostAdjustmentsResponse(results=await self._run(operations, request.items))

    async def SetAccountLimits(self, request: pb.SetAccountLimitsRequest, context: Any) -> pb.SetAccountLimitsResponse:
        """See the proto."""
        operations = [SetAccountLimits(item, self._rules) for item in request.items]
        return pb.SetAccountLimitsResponse(results=await self._run(operations, request.items))

    async def GetAccount(self, request: pb.GetAccountRequest, context: Any) -> pb.GetAccountResponse:
        """See the proto."""
        account_id = request.account_id
        account = await self._reading.ask(lambda reader: reader.account(account_id))
        if account is None:
            raise NotFound(f"there is no account {account_id}", field="account_id")
        return pb.GetAccountResponse(account=messages.account(account))

    async def ListAccounts(self, request: pb.ListAccountsRequest, context: Any) -> pb.ListAccountsResponse:
        """See the proto."""
        after, at_most = request.page_token, page.size(request.page_size) + 1
        found = await self._reading.ask(lambda reader: reader.accounts(after, at_most))
        accounts, last = page.cut(found, request.page_size)
        return pb.ListAccountsResponse(
            accounts=[messages.account(one) for one in accounts], next_page_token=last.account_id if last else ""
        )

    async def _run(self, operations: Sequence[Operation], items: Sequence[Any]) -> list[pb.AccountResult]:
        results = await self._intake.run(operations)
        if results is None:
            busy, message = pb.MUTATION_STATUS_BUSY, "billing is busy; try again"
            return [pb.AccountResult(operation_id=item.operation_id, status=busy, message=message) for item in items]
        return results
