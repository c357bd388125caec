import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.type import money_pb2 as _money_pb2
from speedinfer.common.v1 import context_pb2 as _context_pb2
from speedinfer.common.v1 import operation_pb2 as _operation_pb2
from speedinfer.common.v1 import usage_pb2 as _usage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReservationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESERVATION_STATE_UNSPECIFIED: _ClassVar[ReservationState]
    RESERVATION_STATE_HELD: _ClassVar[ReservationState]
    RESERVATION_STATE_SETTLED: _ClassVar[ReservationState]
    RESERVATION_STATE_RELEASED: _ClassVar[ReservationState]
    RESERVATION_STATE_EXPIRED: _ClassVar[ReservationState]
    RESERVATION_STATE_LATE: _ClassVar[ReservationState]

class Ending(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENDING_UNSPECIFIED: _ClassVar[Ending]
    ENDING_COMPLETED: _ClassVar[Ending]
    ENDING_CLIENT_LEFT: _ClassVar[Ending]
    ENDING_DEADLINE: _ClassVar[Ending]

class RefusalReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_REASON_UNSPECIFIED: _ClassVar[RefusalReason]
    REFUSAL_REASON_INVALID: _ClassVar[RefusalReason]
    REFUSAL_REASON_ID_EXPIRED: _ClassVar[RefusalReason]
    REFUSAL_REASON_CONFLICT: _ClassVar[RefusalReason]
    REFUSAL_REASON_INVALID_KEY: _ClassVar[RefusalReason]
    REFUSAL_REASON_ACCOUNT_CLOSED: _ClassVar[RefusalReason]
    REFUSAL_REASON_MODEL_NOT_ALLOWED: _ClassVar[RefusalReason]
    REFUSAL_REASON_MODEL_NOT_PRICED: _ClassVar[RefusalReason]
    REFUSAL_REASON_DUPLICATE_REQUEST: _ClassVar[RefusalReason]
    REFUSAL_REASON_LIMIT: _ClassVar[RefusalReason]
    REFUSAL_REASON_HOLDS_IN_FLIGHT: _ClassVar[RefusalReason]
    REFUSAL_REASON_INSUFFICIENT_CREDIT: _ClassVar[RefusalReason]
    REFUSAL_REASON_BUSY: _ClassVar[RefusalReason]

class RenewStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RENEW_STATUS_UNSPECIFIED: _ClassVar[RenewStatus]
    RENEW_STATUS_RENEWED: _ClassVar[RenewStatus]
    RENEW_STATUS_AT_HARD_END: _ClassVar[RenewStatus]
    RENEW_STATUS_CLOSED: _ClassVar[RenewStatus]
    RENEW_STATUS_UNKNOWN: _ClassVar[RenewStatus]

class SettleStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SETTLE_STATUS_UNSPECIFIED: _ClassVar[SettleStatus]
    SETTLE_STATUS_SETTLED: _ClassVar[SettleStatus]
    SETTLE_STATUS_LATE: _ClassVar[SettleStatus]
    SETTLE_STATUS_CONFLICT: _ClassVar[SettleStatus]
    SETTLE_STATUS_UNKNOWN: _ClassVar[SettleStatus]
    SETTLE_STATUS_INVALID: _ClassVar[SettleStatus]
    SETTLE_STATUS_ID_EXPIRED: _ClassVar[SettleStatus]
    SETTLE_STATUS_BUSY: _ClassVar[SettleStatus]

class ReleaseStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RELEASE_STATUS_UNSPECIFIED: _ClassVar[ReleaseStatus]
    RELEASE_STATUS_RELEASED: _ClassVar[ReleaseStatus]
    RELEASE_STATUS_EXPIRED: _ClassVar[ReleaseStatus]
    RELEASE_STATUS_CONFLICT: _ClassVar[ReleaseStatus]
    RELEASE_STATUS_ID_EXPIRED: _ClassVar[ReleaseStatus]
    RELEASE_STATUS_BUSY: _ClassVar[ReleaseStatus]
    RELEASE_STATUS_INVALID: _ClassVar[ReleaseStatus]
RESERVATION_STATE_UNSPECIFIED: ReservationState
RESERVATION_STATE_HELD: ReservationState
RESERVATION_STATE_SETTLED: ReservationState
RESERVATION_STATE_RELEASED: ReservationState
RESERVATION_STATE_EXPIRED: ReservationState
RESERVATION_STATE_LATE: ReservationState
ENDING_UNSPECIFIED: Ending
ENDING_COMPLETED: Ending
ENDING_CLIENT_LEFT: Ending
ENDING_DEADLINE: Ending
REFUSAL_REASON_UNSPECIFIED: RefusalReason
REFUSAL_REASON_INVALID: RefusalReason
REFUSAL_REASON_ID_EXPIRED: RefusalReason
REFUSAL_REASON_CONFLICT: RefusalReason
REFUSAL_REASON_INVALID_KEY: RefusalReason
REFUSAL_REASON_ACCOUNT_CLOSED: RefusalReason
REFUSAL_REASON_MODEL_NOT_ALLOWED: RefusalReason
REFUSAL_REASON_MODEL_NOT_PRICED: RefusalReason
REFUSAL_REASON_DUPLICATE_REQUEST: RefusalReason
REFUSAL_REASON_LIMIT: RefusalReason
REFUSAL_REASON_HOLDS_IN_FLIGHT: RefusalReason
REFUSAL_REASON_INSUFFICIENT_CREDIT: RefusalReason
REFUSAL_REASON_BUSY: RefusalReason
RENEW_STATUS_UNSPECIFIED: RenewStatus
RENEW_STATUS_RENEWED: RenewStatus
RENEW_STATUS_AT_HARD_END: RenewStatus
RENEW_STATUS_CLOSED: RenewStatus
RENEW_STATUS_UNKNOWN: RenewStatus
SETTLE_STATUS_UNSPECIFIED: SettleStatus
SETTLE_STATUS_SETTLED: SettleStatus
SETTLE_STATUS_LATE: SettleStatus
SETTLE_STATUS_CONFLICT: SettleStatus
SETTLE_STATUS_UNKNOWN: SettleStatus
SETTLE_STATUS_INVALID: SettleStatus
SETTLE_STATUS_ID_EXPIRED: SettleStatus
SETTLE_STATUS_BUSY: SettleStatus
RELEASE_STATUS_UNSPECIFIED: ReleaseStatus
RELEASE_STATUS_RELEASED: ReleaseStatus
RELEASE_STATUS_EXPIRED: ReleaseStatus
RELEASE_STATUS_CONFLICT: ReleaseStatus
RELEASE_STATUS_ID_EXPIRED: ReleaseStatus
RELEASE_STATUS_BUSY: ReleaseStatus
RELEASE_STATUS_INVALID: ReleaseStatus

class ReserveRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ReserveItem]
    def __init__(self, items: _Optional[_Iterable[_Union[ReserveItem, _Mapping]]] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ReserveResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ReserveResult, _Mapping]]] = ...) -> None: ...

class ReserveItem(_message.Message):
    __slots__ = ("context", "reservation_id", "key_id", "model", "operation", "prompt", "output_limit", "sequences", "counted_prompt_tokens", "idempotency_key")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LIMIT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    COUNTED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    context: _context_pb2.RequestContext
    reservation_id: str
    key_id: str
    model: str
    operation: _operation_pb2.Operation
    prompt: PromptSize
    output_limit: int
    sequences: int
    counted_prompt_tokens: int
    idempotency_key: str
    def __init__(self, context: _Optional[_Union[_context_pb2.RequestContext, _Mapping]] = ..., reservation_id: _Optional[str] = ..., key_id: _Optional[str] = ..., model: _Optional[str] = ..., operation: _Optional[_Union[_operation_pb2.Operation, str]] = ..., prompt: _Optional[_Union[PromptSize, _Mapping]] = ..., output_limit: _Optional[int] = ..., sequences: _Optional[int] = ..., counted_prompt_tokens: _Optional[int] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class PromptSize(_message.Message):
    __slots__ = ("text_bytes", "messages", "has_tools", "images", "inputs", "token_ids")
    TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HAS_TOOLS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    text_bytes: int
    messages: int
    has_tools: bool
    images: int
    inputs: int
    token_ids: int
    def __init__(self, text_bytes: _Optional[int] = ..., messages: _Optional[int] = ..., has_tools: _Optional[bool] = ..., images: _Optional[int] = ..., inputs: _Optional[int] = ..., token_ids: _Optional[int] = ...) -> None: ...

class ReserveResult(_message.Message):
    __slots__ = ("reservation_id", "reservation", "refusal", "limits")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    reservation: Reservation
    refusal: Refusal
    limits: LimitState
    def __init__(self, reservation_id: _Optional[str] = ..., reservation: _Optional[_Union[Reservation, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., limits: _Optional[_Union[LimitState, _Mapping]] = ...) -> None: ...

class Reservation(_message.Message):
    __slots__ = ("reservation_id", "account_id", "key_id", "model", "state", "hold", "output_limit", "price_version", "lease_ms", "charge", "usage", "created_at", "closed_at", "worker_id", "attempts", "ending", "overrun", "operation")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LIMIT_FIELD_NUMBER: _ClassVar[int]
    PRICE_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CHARGE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CLOSED_AT_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    OVERRUN_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    account_id: str
    key_id: str
    model: str
    state: ReservationState
    hold: _money_pb2.Money
    output_limit: int
    price_version: str
    lease_ms: int
    charge: _money_pb2.Money
    usage: _usage_pb2.Usage
    created_at: _timestamp_pb2.Timestamp
    closed_at: _timestamp_pb2.Timestamp
    worker_id: str
    attempts: int
    ending: Ending
    overrun: bool
    operation: _operation_pb2.Operation
    def __init__(self, reservation_id: _Optional[str] = ..., account_id: _Optional[str] = ..., key_id: _Optional[str] = ..., model: _Optional[str] = ..., state: _Optional[_Union[ReservationState, str]] = ..., hold: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., output_limit: _Optional[int] = ..., price_version: _Optional[str] = ..., lease_ms: _Optional[int] = ..., charge: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., closed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., worker_id: _Optional[str] = ..., attempts: _Optional[int] = ..., ending: _Optional[_Union[Ending, str]] = ..., overrun: _Optional[bool] = ..., operation: _Optional[_Union[_operation_pb2.Operation, str]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "message", "field", "hold", "available", "retry_after_ms", "other_request_id", "other_charged", "limit")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    OTHER_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OTHER_CHARGED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    reason: RefusalReason
    message: str
    field: str
    hold: _money_pb2.Money
    available: _money_pb2.Money
    retry_after_ms: int
    other_request_id: str
    other_charged: bool
    limit: str
    def __init__(self, reason: _Optional[_Union[RefusalReason, str]] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., hold: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., available: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., retry_after_ms: _Optional[int] = ..., other_request_id: _Optional[str] = ..., other_charged: _Optional[bool] = ..., limit: _Optional[str] = ...) -> None: ...

class LimitState(_message.Message):
    __slots__ = ("requests_limit", "requests_remaining", "tokens_limit", "tokens_remaining", "reset_ms")
    REQUESTS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_REMAINING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_REMAINING_FIELD_NUMBER: _ClassVar[int]
    RESET_MS_FIELD_NUMBER: _ClassVar[int]
    requests_limit: int
    requests_remaining: int
    tokens_limit: int
    tokens_remaining: int
    reset_ms: int
    def __init__(self, requests_limit: _Optional[int] = ..., requests_remaining: _Optional[int] = ..., tokens_limit: _Optional[int] = ..., tokens_remaining: _Optional[int] = ..., reset_ms: _Optional[int] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RenewItem]
    def __init__(self, items: _Optional[_Iterable[_Union[RenewItem, _Mapping]]] = ...) -> None: ...

class RenewItem(_message.Message):
    __slots__ = ("reservation_id",)
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    def __init__(self, reservation_id: _Optional[str] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RenewResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RenewResult, _Mapping]]] = ...) -> None: ...

class RenewResult(_message.Message):
    __slots__ = ("reservation_id", "status", "lease_ms")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    status: RenewStatus
    lease_ms: int
    def __init__(self, reservation_id: _Optional[str] = ..., status: _Optional[_Union[RenewStatus, str]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SettleItem]
    def __init__(self, items: _Optional[_Iterable[_Union[SettleItem, _Mapping]]] = ...) -> None: ...

class SettleItem(_message.Message):
    __slots__ = ("context", "reservation_id", "usage", "worker_id", "attempts", "ending")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    context: _context_pb2.RequestContext
    reservation_id: str
    usage: _usage_pb2.Usage
    worker_id: str
    attempts: int
    ending: Ending
    def __init__(self, context: _Optional[_Union[_context_pb2.RequestContext, _Mapping]] = ..., reservation_id: _Optional[str] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ..., worker_id: _Optional[str] = ..., attempts: _Optional[int] = ..., ending: _Optional[_Union[Ending, str]] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SettleResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SettleResult, _Mapping]]] = ...) -> None: ...

class SettleResult(_message.Message):
    __slots__ = ("reservation_id", "status", "reservation", "balance", "field")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    status: SettleStatus
    reservation: Reservation
    balance: _money_pb2.Money
    field: str
    def __init__(self, reservation_id: _Optional[str] = ..., status: _Optional[_Union[SettleStatus, str]] = ..., reservation: _Optional[_Union[Reservation, _Mapping]] = ..., balance: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., field: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ReleaseItem]
    def __init__(self, items: _Optional[_Iterable[_Union[ReleaseItem, _Mapping]]] = ...) -> None: ...

class ReleaseItem(_message.Message):
    __slots__ = ("context", "reservation_id", "cause")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    context: _context_pb2.RequestContext
    reservation_id: str
    cause: str
    def __init__(self, context: _Optional[_Union[_context_pb2.RequestContext, _Mapping]] = ..., reservation_id: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ReleaseResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ReleaseResult, _Mapping]]] = ...) -> None: ...

class ReleaseResult(_message.Message):
    __slots__ = ("reservation_id", "status")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    status: ReleaseStatus
    def __init__(self, reservation_id: _Optional[str] = ..., status: _Optional[_Union[ReleaseStatus, str]] = ...) -> None: ...
