import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.type import money_pb2 as _money_pb2
from speedinfer.billing.v1 import reservation_pb2 as _reservation_pb2
from speedinfer.billing.v1 import usage_pb2 as _usage_pb2
from speedinfer.common.v1 import usage_pb2 as _usage_pb2_1
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EntryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENTRY_KIND_UNSPECIFIED: _ClassVar[EntryKind]
    ENTRY_KIND_CREDIT: _ClassVar[EntryKind]
    ENTRY_KIND_CHARGE: _ClassVar[EntryKind]
    ENTRY_KIND_LATE_CHARGE: _ClassVar[EntryKind]
    ENTRY_KIND_REFUND: _ClassVar[EntryKind]
    ENTRY_KIND_ADJUSTMENT: _ClassVar[EntryKind]
    ENTRY_KIND_EXPIRY: _ClassVar[EntryKind]
ENTRY_KIND_UNSPECIFIED: EntryKind
ENTRY_KIND_CREDIT: EntryKind
ENTRY_KIND_CHARGE: EntryKind
ENTRY_KIND_LATE_CHARGE: EntryKind
ENTRY_KIND_REFUND: EntryKind
ENTRY_KIND_ADJUSTMENT: EntryKind
ENTRY_KIND_EXPIRY: EntryKind

class Entry(_message.Message):
    __slots__ = ("entry_id", "transaction_id", "account_id", "kind", "amount", "booked_at", "request_id", "key_id", "model", "price_version", "usage", "worker_id", "attempts", "note", "balance")
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    BOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRICE_VERSION_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    entry_id: str
    transaction_id: str
    account_id: str
    kind: EntryKind
    amount: _money_pb2.Money
    booked_at: _timestamp_pb2.Timestamp
    request_id: str
    key_id: str
    model: str
    price_version: str
    usage: _usage_pb2_1.Usage
    worker_id: str
    attempts: int
    note: str
    balance: _money_pb2.Money
    def __init__(self, entry_id: _Optional[str] = ..., transaction_id: _Optional[str] = ..., account_id: _Optional[str] = ..., kind: _Optional[_Union[EntryKind, str]] = ..., amount: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., booked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., request_id: _Optional[str] = ..., key_id: _Optional[str] = ..., model: _Optional[str] = ..., price_version: _Optional[str] = ..., usage: _Optional[_Union[_usage_pb2_1.Usage, _Mapping]] = ..., worker_id: _Optional[str] = ..., attempts: _Optional[int] = ..., note: _Optional[str] = ..., balance: _Optional[_Union[_money_pb2.Money, _Mapping]] = ...) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ("account_id", "to", "page_size", "page_token")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    to: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, account_id: _Optional[str] = ..., to: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., **kwargs) -> None: ...

class ListEntriesResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListReservationsRequest(_message.Message):
    __slots__ = ("account_id", "states", "page_size", "page_token")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    states: _containers.RepeatedScalarFieldContainer[_reservation_pb2.ReservationState]
    page_size: int
    page_token: str
    def __init__(self, account_id: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_reservation_pb2.ReservationState, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListReservationsResponse(_message.Message):
    __slots__ = ("reservations", "next_page_token")
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    reservations: _containers.RepeatedCompositeFieldContainer[_reservation_pb2.Reservation]
    next_page_token: str
    def __init__(self, reservations: _Optional[_Iterable[_Union[_reservation_pb2.Reservation, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ("account_id", "to")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    to: _timestamp_pb2.Timestamp
    def __init__(self, account_id: _Optional[str] = ..., to: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., **kwargs) -> None: ...

class GetUsageResponse(_message.Message):
    __slots__ = ("balance", "held", "available", "to", "models")
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    balance: _money_pb2.Money
    held: _money_pb2.Money
    available: _money_pb2.Money
    to: _timestamp_pb2.Timestamp
    models: _containers.RepeatedCompositeFieldContainer[_usage_pb2.ModelUsage]
    def __init__(self, balance: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., held: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., available: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., to: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., models: _Optional[_Iterable[_Union[_usage_pb2.ModelUsage, _Mapping]]] = ..., **kwargs) -> None: ...

class VerifyLedgerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VerifyLedgerResponse(_message.Message):
    __slots__ = ("ok", "problems", "accounts", "transactions", "entries", "reservations")
    OK_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    problems: _containers.RepeatedScalarFieldContainer[str]
    accounts: int
    transactions: int
    entries: int
    reservations: int
    def __init__(self, ok: _Optional[bool] = ..., problems: _Optional[_Iterable[str]] = ..., accounts: _Optional[int] = ..., transactions: _Optional[int] = ..., entries: _Optional[int] = ..., reservations: _Optional[int] = ...) -> None: ...
