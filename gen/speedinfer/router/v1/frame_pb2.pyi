from speedinfer.common.v1 import usage_pb2 as _usage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FailureReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_REASON_UNSPECIFIED: _ClassVar[FailureReason]
    FAILURE_REASON_MODEL_NOT_FOUND: _ClassVar[FailureReason]
    FAILURE_REASON_NO_WORKER: _ClassVar[FailureReason]
    FAILURE_REASON_OVERLOADED: _ClassVar[FailureReason]
    FAILURE_REASON_UNSUPPORTED: _ClassVar[FailureReason]
    FAILURE_REASON_REJECTED: _ClassVar[FailureReason]
    FAILURE_REASON_UPSTREAM: _ClassVar[FailureReason]
    FAILURE_REASON_USAGE_MISSING: _ClassVar[FailureReason]
    FAILURE_REASON_INVALID_RESPONSE: _ClassVar[FailureReason]
    FAILURE_REASON_TIMEOUT: _ClassVar[FailureReason]
    FAILURE_REASON_DRAINING: _ClassVar[FailureReason]
    FAILURE_REASON_ANSWER_TOO_LARGE: _ClassVar[FailureReason]
FAILURE_REASON_UNSPECIFIED: FailureReason
FAILURE_REASON_MODEL_NOT_FOUND: FailureReason
FAILURE_REASON_NO_WORKER: FailureReason
FAILURE_REASON_OVERLOADED: FailureReason
FAILURE_REASON_UNSUPPORTED: FailureReason
FAILURE_REASON_REJECTED: FailureReason
FAILURE_REASON_UPSTREAM: FailureReason
FAILURE_REASON_USAGE_MISSING: FailureReason
FAILURE_REASON_INVALID_RESPONSE: FailureReason
FAILURE_REASON_TIMEOUT: FailureReason
FAILURE_REASON_DRAINING: FailureReason
FAILURE_REASON_ANSWER_TOO_LARGE: FailureReason

class Frame(_message.Message):
    __slots__ = ("accepted", "data", "usage", "end", "failure")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    accepted: Accepted
    data: Data
    usage: UsageSoFar
    end: End
    failure: Failure
    def __init__(self, accepted: _Optional[_Union[Accepted, _Mapping]] = ..., data: _Optional[_Union[Data, _Mapping]] = ..., usage: _Optional[_Union[UsageSoFar, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("worker_id", "attempt", "transport", "ignored_fields")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELDS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    attempt: int
    transport: str
    ignored_fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker_id: _Optional[str] = ..., attempt: _Optional[int] = ..., transport: _Optional[str] = ..., ignored_fields: _Optional[_Iterable[str]] = ...) -> None: ...

class Data(_message.Message):
    __slots__ = ("payloads", "has_content")
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    HAS_CONTENT_FIELD_NUMBER: _ClassVar[int]
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    has_content: bool
    def __init__(self, payloads: _Optional[_Iterable[bytes]] = ..., has_content: _Optional[bool] = ...) -> None: ...

class UsageSoFar(_message.Message):
    __slots__ = ("usage",)
    USAGE_FIELD_NUMBER: _ClassVar[int]
    usage: _usage_pb2.Usage
    def __init__(self, usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("usage", "usage_frame")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FRAME_FIELD_NUMBER: _ClassVar[int]
    usage: _usage_pb2.Usage
    usage_frame: bytes
    def __init__(self, usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ..., usage_frame: _Optional[bytes] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("reason", "message", "param", "worker_id", "attempts", "retry_after_ms", "http_status", "deadline", "code")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    reason: FailureReason
    message: str
    param: str
    worker_id: str
    attempts: int
    retry_after_ms: int
    http_status: int
    deadline: str
    code: str
    def __init__(self, reason: _Optional[_Union[FailureReason, str]] = ..., message: _Optional[str] = ..., param: _Optional[str] = ..., worker_id: _Optional[str] = ..., attempts: _Optional[int] = ..., retry_after_ms: _Optional[int] = ..., http_status: _Optional[int] = ..., deadline: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...
