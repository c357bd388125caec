"""Operators' mutations of accounts: open, credit, adjust, limit. Pure."""

from google.protobuf.message import Message
from speedinfer.billing.v1 import account_pb2 as pb

from services.billing import ledger, messages
from services.billing.books import Books
from services.billing.content import storable
from services.billing.ledger import Account, Kind
from services.billing.operations.allowance import amount, read_account_limits
from services.billing.operations.mutation import Mutation, Refused, invalid, not_found
from services.billing.rules import Rules
from services.billing.store.port import Names
from services.common.visible_text import is_name

MAX_NAME_CHARS = 200
MAX_NOTE_CHARS = 1_000


class CreateAccount(Mutation):
    """One item of CreateAccountsRequest. `account_id` is made by the caller and counts only the first time."""

    kind = "create_account"
    answer_type = pb.AccountResult

    def __init__(self, item: pb.CreateAccountItem, rules: Rules, account_id: str) -> None:
        super().__init__(item, rules)
        self._account_id = account_id

    def needs(self) -> Names:
        """See Mutation."""
        return Names()

    def perform(self, books: Books) -> Message:
        """See Mutation."""
        if not self.item.name.strip() or len(self.item.name) > MAX_NAME_CHARS or not is_name(self.item.name):
            raise invalid("name", f"a name of 1 to {MAX_NAME_CHARS} characters that can be seen is expected")
        credit_nanos = amount(self.item.credit, "credit")
        if credit_nanos < 0:
            raise invalid("credit", "credit cannot be negative")
        account = Account(self._account_id, self.item.name, books.now_ms)
        account.limits, account.credit_limit_nanos = read_account_limits(self.item.limits, account)
        books.add_account(account)
        entry_id = ""
        if credit_nanos:
            entry_id = _post(books, self.item.operation_id, account, Kind.CREDIT, credit_nanos, "opening credit")
        return self.done(account=messages.account(account), entry_id=entry_id)


class PostCredit(Mutation):
    """One item of PostCreditsRequest."""

    kind = "post_credit"
    answer_type = pb.AccountResult

    def needs(self) -> Names:
        """See Mutation."""
        return Names(accounts={self.item.account_id})

    def perform(self, books: Books) -> Message:
        """See Mutation."""
        account = existing(books, self.item.account_id)
        nanos = amount(self.item.amount, "amount")
        if nanos <= 0:
            raise invalid("amount", "a credit is more than zero; `adjust` takes money away")
        note = _text(self.item.note, "note")
        entry_id = _post(books, self.item.operation_id, account, Kind.CREDIT, nanos, note)
        return self.done(account=messages.account(account), entry_id=entry_id)


class PostAdjustment(Mutation):
    """One item of PostAdjustmentsRequest."""

    kind = "post_adjustment"
    answer_type = pb.AccountResult

    def needs(self) -> Names:
        """See Mutation."""
        requests = {self.item.request_id} if self.item.request_id else set()
        return Names(accounts={self.item.account_id}, reservations=requests)

    def perform(self, books: Books) -> Message:
        """See Mutation."""
        account = existing(books, self.item.account_id)
        nanos = amount(self.item.amount, "amount")
        if nanos == 0:
            raise invalid("amount", "an adjustment of nothing")
        if not self.item.reason.strip():
            raise invalid("reason", "an adjustment needs a reason")
        reason = _text(self.item.reason, "reason")
        if self.item.request_id:
            corrected = books.reservation(self.item.request_id)
            if corrected is None or corrected.account_id != account.account_id:
                raise not_found("request_id", "the account has no such request")
        if nanos < 0 and -nanos > account.available_nanos:
            raise Refused(
                pb.MUTATION_STATUS_INSUFFICIENT_CREDIT, "amount", "the amount is more than the account has available"
            )
        entry_id = _post(books, self.item.operation_id, account, Kind.ADJUSTMENT, nanos, reason, self.item.request_id)
        return self.done(account=messages.account(account), entry_id=entry_id)


class SetAccountLimits(Mutation):
    """One item of SetAccountLimitsRequest. Open holds stay, and so does what was counted."""

    kind = "set_account_limits"
    answer_type = pb.AccountResult

    def needs(self) -> Names:
        """See Mutation."""
        return Names(accounts={self.item.account_id})

    def perform(self, books: Books) -> Message:
        """See Mutation."""
        account = existing(books, self.item.account_id)
        if not self.item.limits.ListFields() and not self.item.remove:
            raise invalid("limits", "no limit is named")
        limits = read_account_limits(self.item.limits, account, self.item.remove)
        account.limits, account.credit_limit_nanos = limits
        books.limit_account(account)
        return self.done(account=messages.account(account))


def existing(books: Books, account_id: str) -> Account:
    """A customer's account, or Refused."""
    account = books.account(account_id)
    if account is None:
        raise not_found("account_id", f"there is no account {account_id}")
    return account


def _text(text: str, field: str) -> str:
    if len(text) > MAX_NOTE_CHARS:
        raise invalid(field, f"at most {MAX_NOTE_CHARS} characters are kept")
    return storable(text)


def _post(
    books: Books, operation_id: str, account: Account, kind: Kind, nanos: int, note: str, request_id: str = ""
) -> str:
    if not ledger.fits(account.balance_nanos, nanos):
        raise invalid("amount", "the balance would be out of range")
    transaction = ledger.transfer(
        kind, account.account_id, nanos, operation_id=operation_id, note=note, request_id=request_id
    )
    return messages.entry_id(books.post(transaction))
