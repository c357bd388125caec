import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.type import money_pb2 as _money_pb2
from speedinfer.billing.v1 import reservation_pb2 as _reservation_pb2
from speedinfer.billing.v1 import usage_pb2 as _usage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeyStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEY_STATUS_UNSPECIFIED: _ClassVar[KeyStatus]
    KEY_STATUS_ACTIVE: _ClassVar[KeyStatus]
    KEY_STATUS_UNKNOWN: _ClassVar[KeyStatus]
    KEY_STATUS_REVOKED: _ClassVar[KeyStatus]
    KEY_STATUS_EXPIRED: _ClassVar[KeyStatus]
KEY_STATUS_UNSPECIFIED: KeyStatus
KEY_STATUS_ACTIVE: KeyStatus
KEY_STATUS_UNKNOWN: KeyStatus
KEY_STATUS_REVOKED: KeyStatus
KEY_STATUS_EXPIRED: KeyStatus

class AuthorizeKeysRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[PresentedKey]
    def __init__(self, items: _Optional[_Iterable[_Union[PresentedKey, _Mapping]]] = ...) -> None: ...

class PresentedKey(_message.Message):
    __slots__ = ("key_id", "key_sha256")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_SHA256_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    key_sha256: bytes
    def __init__(self, key_id: _Optional[str] = ..., key_sha256: _Optional[bytes] = ...) -> None: ...

class AuthorizeKeysResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Authorization]
    def __init__(self, results: _Optional[_Iterable[_Union[Authorization, _Mapping]]] = ...) -> None: ...

class Authorization(_message.Message):
    __slots__ = ("key_id", "status", "account_id", "models")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    status: KeyStatus
    account_id: str
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key_id: _Optional[str] = ..., status: _Optional[_Union[KeyStatus, str]] = ..., account_id: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ...) -> None: ...

class GetAccountUsageRequest(_message.Message):
    __slots__ = ("account_id", "to")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    to: _timestamp_pb2.Timestamp
    def __init__(self, account_id: _Optional[str] = ..., to: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., **kwargs) -> None: ...

class GetAccountUsageResponse(_message.Message):
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

class GetRequestRequest(_message.Message):
    __slots__ = ("account_id", "request_id")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    request_id: str
    def __init__(self, account_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class GetRequestResponse(_message.Message):
    __slots__ = ("reservation",)
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    reservation: _reservation_pb2.Reservation
    def __init__(self, reservation: _Optional[_Union[_reservation_pb2.Reservation, _Mapping]] = ...) -> None: ...
