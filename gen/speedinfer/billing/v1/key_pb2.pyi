import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.type import money_pb2 as _money_pb2
from speedinfer.billing.v1 import access_pb2 as _access_pb2
from speedinfer.billing.v1 import account_pb2 as _account_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Key(_message.Message):
    __slots__ = ("key_id", "account_id", "name", "status", "limits", "created_at", "revoked_at", "replaces_key_id")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    REPLACES_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    account_id: str
    name: str
    status: _access_pb2.KeyStatus
    limits: KeyLimits
    created_at: _timestamp_pb2.Timestamp
    revoked_at: _timestamp_pb2.Timestamp
    replaces_key_id: str
    def __init__(self, key_id: _Optional[str] = ..., account_id: _Optional[str] = ..., name: _Optional[str] = ..., status: _Optional[_Union[_access_pb2.KeyStatus, str]] = ..., limits: _Optional[_Union[KeyLimits, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revoked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replaces_key_id: _Optional[str] = ...) -> None: ...

class KeyLimits(_message.Message):
    __slots__ = ("requests_per_minute", "tokens_per_minute", "concurrency", "models", "expires_at", "daily_spend", "monthly_spend")
    REQUESTS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    DAILY_SPEND_FIELD_NUMBER: _ClassVar[int]
    MONTHLY_SPEND_FIELD_NUMBER: _ClassVar[int]
    requests_per_minute: int
    tokens_per_minute: int
    concurrency: int
    models: _containers.RepeatedScalarFieldContainer[str]
    expires_at: _timestamp_pb2.Timestamp
    daily_spend: _money_pb2.Money
    monthly_spend: _money_pb2.Money
    def __init__(self, requests_per_minute: _Optional[int] = ..., tokens_per_minute: _Optional[int] = ..., concurrency: _Optional[int] = ..., models: _Optional[_Iterable[str]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., daily_spend: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., monthly_spend: _Optional[_Union[_money_pb2.Money, _Mapping]] = ...) -> None: ...

class CreateKeysRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CreateKeyItem]
    def __init__(self, items: _Optional[_Iterable[_Union[CreateKeyItem, _Mapping]]] = ...) -> None: ...

class CreateKeyItem(_message.Message):
    __slots__ = ("operation_id", "account_id", "name", "limits", "key_id", "key_sha256")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_SHA256_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    account_id: str
    name: str
    limits: KeyLimits
    key_id: str
    key_sha256: bytes
    def __init__(self, operation_id: _Optional[str] = ..., account_id: _Optional[str] = ..., name: _Optional[str] = ..., limits: _Optional[_Union[KeyLimits, _Mapping]] = ..., key_id: _Optional[str] = ..., key_sha256: _Optional[bytes] = ...) -> None: ...

class CreateKeysResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[KeyResult]
    def __init__(self, results: _Optional[_Iterable[_Union[KeyResult, _Mapping]]] = ...) -> None: ...

class KeyResult(_message.Message):
    __slots__ = ("operation_id", "status", "field", "message", "key")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    status: _account_pb2.MutationStatus
    field: str
    message: str
    key: Key
    def __init__(self, operation_id: _Optional[str] = ..., status: _Optional[_Union[_account_pb2.MutationStatus, str]] = ..., field: _Optional[str] = ..., message: _Optional[str] = ..., key: _Optional[_Union[Key, _Mapping]] = ...) -> None: ...

class RevokeKeysRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RevokeKeyItem]
    def __init__(self, items: _Optional[_Iterable[_Union[RevokeKeyItem, _Mapping]]] = ...) -> None: ...

class RevokeKeyItem(_message.Message):
    __slots__ = ("operation_id", "key_id")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    key_id: str
    def __init__(self, operation_id: _Optional[str] = ..., key_id: _Optional[str] = ...) -> None: ...

class RevokeKeysResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[KeyResult]
    def __init__(self, results: _Optional[_Iterable[_Union[KeyResult, _Mapping]]] = ...) -> None: ...

class RotateKeysRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RotateKeyItem]
    def __init__(self, items: _Optional[_Iterable[_Union[RotateKeyItem, _Mapping]]] = ...) -> None: ...

class RotateKeyItem(_message.Message):
    __slots__ = ("operation_id", "key_id", "new_key_id", "new_key_sha256", "grace_ms")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_KEY_SHA256_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    key_id: str
    new_key_id: str
    new_key_sha256: bytes
    grace_ms: int
    def __init__(self, operation_id: _Optional[str] = ..., key_id: _Optional[str] = ..., new_key_id: _Optional[str] = ..., new_key_sha256: _Optional[bytes] = ..., grace_ms: _Optional[int] = ...) -> None: ...

class RotateKeysResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[KeyResult]
    def __init__(self, results: _Optional[_Iterable[_Union[KeyResult, _Mapping]]] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ("account_id", "page_size", "page_token")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    page_size: int
    page_token: str
    def __init__(self, account_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("keys", "next_page_token")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[Key]
    next_page_token: str
    def __init__(self, keys: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
