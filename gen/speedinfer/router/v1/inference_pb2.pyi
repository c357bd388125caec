from speedinfer.common.v1 import context_pb2 as _context_pb2
from speedinfer.common.v1 import operation_pb2 as _operation_pb2
from speedinfer.router.v1 import fleet_pb2 as _fleet_pb2
from speedinfer.router.v1 import frame_pb2 as _frame_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerateRequest(_message.Message):
    __slots__ = ("item",)
    ITEM_FIELD_NUMBER: _ClassVar[int]
    item: GenerateItem
    def __init__(self, item: _Optional[_Union[GenerateItem, _Mapping]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("frame",)
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: _frame_pb2.Frame
    def __init__(self, frame: _Optional[_Union[_frame_pb2.Frame, _Mapping]] = ...) -> None: ...

class GenerateItem(_message.Message):
    __slots__ = ("context", "model", "operation", "stream", "members", "output_limit", "output_limit_is_ours", "choices", "requirements")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LIMIT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LIMIT_IS_OURS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    context: _context_pb2.RequestContext
    model: str
    operation: _operation_pb2.Operation
    stream: bool
    members: _containers.RepeatedCompositeFieldContainer[Member]
    output_limit: int
    output_limit_is_ours: bool
    choices: int
    requirements: _containers.RepeatedCompositeFieldContainer[Requirement]
    def __init__(self, context: _Optional[_Union[_context_pb2.RequestContext, _Mapping]] = ..., model: _Optional[str] = ..., operation: _Optional[_Union[_operation_pb2.Operation, str]] = ..., stream: _Optional[bool] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., output_limit: _Optional[int] = ..., output_limit_is_ours: _Optional[bool] = ..., choices: _Optional[int] = ..., requirements: _Optional[_Iterable[_Union[Requirement, _Mapping]]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    json: bytes
    def __init__(self, name: _Optional[str] = ..., json: _Optional[bytes] = ...) -> None: ...

class Requirement(_message.Message):
    __slots__ = ("feature", "param")
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    feature: _fleet_pb2.Feature
    param: str
    def __init__(self, feature: _Optional[_Union[_fleet_pb2.Feature, str]] = ..., param: _Optional[str] = ...) -> None: ...

class GetFleetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetFleetResponse(_message.Message):
    __slots__ = ("fleet",)
    FLEET_FIELD_NUMBER: _ClassVar[int]
    fleet: _fleet_pb2.Fleet
    def __init__(self, fleet: _Optional[_Union[_fleet_pb2.Fleet, _Mapping]] = ...) -> None: ...

class WatchFleetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchFleetResponse(_message.Message):
    __slots__ = ("fleet",)
    FLEET_FIELD_NUMBER: _ClassVar[int]
    fleet: _fleet_pb2.Fleet
    def __init__(self, fleet: _Optional[_Union[_fleet_pb2.Fleet, _Mapping]] = ...) -> None: ...
