import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.type import money_pb2 as _money_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MutationStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MUTATION_STATUS_UNSPECIFIED: _ClassVar[MutationStatus]
    MUTATION_STATUS_DONE: _ClassVar[MutationStatus]
    MUTATION_STATUS_CONFLICT: _ClassVar[MutationStatus]
    MUTATION_STATUS_INVALID: _ClassVar[MutationStatus]
    MUTATION_STATUS_NOT_FOUND: _ClassVar[MutationStatus]
    MUTATION_STATUS_ID_EXPIRED: _ClassVar[MutationStatus]
    MUTATION_STATUS_BUSY: _ClassVar[MutationStatus]
    MUTATION_STATUS_INSUFFICIENT_CREDIT: _ClassVar[MutationStatus]
MUTATION_STATUS_UNSPECIFIED: MutationStatus
MUTATION_STATUS_DONE: MutationStatus
MUTATION_STATUS_CONFLICT: MutationStatus
MUTATION_STATUS_INVALID: MutationStatus
MUTATION_STATUS_NOT_FOUND: MutationStatus
MUTATION_STATUS_ID_EXPIRED: MutationStatus
MUTATION_STATUS_BUSY: MutationStatus
MUTATION_STATUS_INSUFFICIENT_CREDIT: MutationStatus

class Account(_message.Message):
    __slots__ = ("account_id", "name", "balance", "held", "available", "created_at", "open_holds")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    OPEN_HOLDS_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    name: str
    balance: _money_pb2.Money
    held: _money_pb2.Money
    available: _money_pb2.Money
    created_at: _timestamp_pb2.Timestamp
    open_holds: int
    def __init__(self, account_id: _Optional[str] = ..., name: _Optional[str] = ..., balance: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., held: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., available: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., open_holds: _Optional[int] = ...) -> None: ...

class CreateAccountsRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CreateAccountItem]
    def __init__(self, items: _Optional[_Iterable[_Union[CreateAccountItem, _Mapping]]] = ...) -> None: ...

class CreateAccountItem(_message.Message):
    __slots__ = ("operation_id", "name", "credit")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    name: str
    credit: _money_pb2.Money
    def __init__(self, operation_id: _Optional[str] = ..., name: _Optional[str] = ..., credit: _Optional[_Union[_money_pb2.Money, _Mapping]] = ...) -> None: ...

class CreateAccountsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AccountResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AccountResult, _Mapping]]] = ...) -> None: ...

class AccountResult(_message.Message):
    __slots__ = ("operation_id", "status", "field", "message", "account", "entry_id")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    status: MutationStatus
    field: str
    message: str
    account: Account
    entry_id: str
    def __init__(self, operation_id: _Optional[str] = ..., status: _Optional[_Union[MutationStatus, str]] = ..., field: _Optional[str] = ..., message: _Optional[str] = ..., account: _Optional[_Union[Account, _Mapping]] = ..., entry_id: _Optional[str] = ...) -> None: ...

class PostCreditsRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CreditItem]
    def __init__(self, items: _Optional[_Iterable[_Union[CreditItem, _Mapping]]] = ...) -> None: ...

class CreditItem(_message.Message):
    __slots__ = ("operation_id", "account_id", "amount", "note")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    account_id: str
    amount: _money_pb2.Money
    note: str
    def __init__(self, operation_id: _Optional[str] = ..., account_id: _Optional[str] = ..., amount: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class PostCreditsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AccountResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AccountResult, _Mapping]]] = ...) -> None: ...

class PostAdjustmentsRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[AdjustmentItem]
    def __init__(self, items: _Optional[_Iterable[_Union[AdjustmentItem, _Mapping]]] = ...) -> None: ...

class AdjustmentItem(_message.Message):
    __slots__ = ("operation_id", "account_id", "amount", "reason", "request_id")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    account_id: str
    amount: _money_pb2.Money
    reason: str
    request_id: str
    def __init__(self, operation_id: _Optional[str] = ..., account_id: _Optional[str] = ..., amount: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class PostAdjustmentsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AccountResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AccountResult, _Mapping]]] = ...) -> None: ...

class GetAccountRequest(_message.Message):
    __slots__ = ("account_id",)
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    def __init__(self, account_id: _Optional[str] = ...) -> None: ...

class GetAccountResponse(_message.Message):
    __slots__ = ("account",)
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    account: Account
    def __init__(self, account: _Optional[_Union[Account, _Mapping]] = ...) -> None: ...

class ListAccountsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAccountsResponse(_message.Message):
    __slots__ = ("accounts", "next_page_token")
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    accounts: _containers.RepeatedCompositeFieldContainer[Account]
    next_page_token: str
    def __init__(self, accounts: _Optional[_Iterable[_Union[Account, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
