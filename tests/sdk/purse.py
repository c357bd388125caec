"""Who pays for the scenarios: one account for all, looked at before and after each, which is ten times as quick as a new one.

`with purse.pays(scenario) as key:` asserts at its end what the requests inside cost, and how their reservations ended. After a
test that failed the next one gets a new account, so that nothing is blamed on two.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import grpc
from speedinfer.billing.v1 import account_pb2, account_pb2_grpc, report_pb2, report_pb2_grpc, reservation_pb2

from services.common.money import from_money
from tests.fakes.scenario import Answered, Scenario
from tests.harness.charges import charge_nanos
from tests.harness.stage import CACHED_PRICE, COMPLETION_PRICE, PROMPT_PRICE, Stage
from tests.harness.until import until

# More than any test makes.
NEWEST = 20
ANSWER_WITHIN_S = 30.0


class Purse:
    """`with Purse(stage) as purse:`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._metadata = (("authorization", f"Bearer {stage.product.admin_token}"),)
        self._channel = grpc.insecure_channel(stage.product.address("billing"))
        self._accounts = account_pb2_grpc.AccountServiceStub(self._channel)
        self._reports = report_pb2_grpc.ReportServiceStub(self._channel)
        self._customer = stage.customer()

    def __enter__(self) -> "Purse":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    @contextmanager
    def pays(self, scenario: Scenario, times: int = 1) -> Iterator[str]:
        """A key. AssertionError unless what happens inside costs `times` such answers (nothing for failures)."""
        before = self._settled_nanos()
        [*earlier] = self._newest()
        try:
            yield self._customer.key
            paid = before - self._settled_nanos()
            states = [each.state for each in self._newest() if each not in earlier]
            _assert_paid(scenario, times, paid, states)
        except BaseException:
            self._customer = self._stage.customer()
            raise

    def _settled_nanos(self) -> int:
        """The balance, once nothing is held."""
        account: account_pb2.Account = until(self._unheld, "nothing is held")
        return from_money(account.balance)

    def _unheld(self) -> account_pb2.Account | None:
        request = account_pb2.GetAccountRequest(account_id=self._customer.account_id)
        answer = self._accounts.GetAccount(request, metadata=self._metadata, timeout=ANSWER_WITHIN_S)
        return answer.account if from_money(answer.account.held) == 0 else None

    def _newest(self) -> list[reservation_pb2.Reservation]:
        request = report_pb2.ListReservationsRequest(account_id=self._customer.account_id, page_size=NEWEST)
        answer = self._reports.ListReservations(request, metadata=self._metadata, timeout=ANSWER_WITHIN_S)
        return list(answer.reservations)


def _assert_paid(
    scenario: Scenario, times: int, paid: int, states: list[reservation_pb2.ReservationState.ValueType]
) -> None:
    if isinstance(scenario.outcome, Answered):
        assert paid == times * scenario_nanos(scenario.outcome)
        assert states == [reservation_pb2.RESERVATION_STATE_SETTLED] * times
    else:
        assert paid == 0, f"{scenario.name}: {paid} nano-USD were charged for a failure"
        assert set(states) <= {reservation_pb2.RESERVATION_STATE_RELEASED}


def scenario_nanos(outcome: Answered) -> int:
    """What an answer costs."""
    usage = {
        "prompt_tokens": outcome.prompt,
        "completion_tokens": outcome.completion,
        "prompt_tokens_details": {"cached_tokens": outcome.cached},
    }
    return charge_nanos(usage, PROMPT_PRICE, COMPLETION_PRICE, CACHED_PRICE)
