from google.protobuf import struct_pb2 as _struct_pb2
from speedinfer.router.v1 import fleet_pb2 as _fleet_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterWorkerRequest(_message.Message):
    __slots__ = ("worker_id", "worker_type", "runtime", "runtime_endpoint", "supported_models", "runtime_config", "runtime_metadata")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_TYPE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_MODELS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_CONFIG_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_METADATA_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    worker_type: str
    runtime: str
    runtime_endpoint: str
    supported_models: _containers.RepeatedScalarFieldContainer[str]
    runtime_config: _struct_pb2.Struct
    runtime_metadata: _struct_pb2.Struct
    def __init__(self, worker_id: _Optional[str] = ..., worker_type: _Optional[str] = ..., runtime: _Optional[str] = ..., runtime_endpoint: _Optional[str] = ..., supported_models: _Optional[_Iterable[str]] = ..., runtime_config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., runtime_metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class RegisterWorkerResponse(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: WorkerDetail
    def __init__(self, worker: _Optional[_Union[WorkerDetail, _Mapping]] = ...) -> None: ...

class CheckWorkerRequest(_message.Message):
    __slots__ = ("registration",)
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    registration: RegisterWorkerRequest
    def __init__(self, registration: _Optional[_Union[RegisterWorkerRequest, _Mapping]] = ...) -> None: ...

class CheckWorkerResponse(_message.Message):
    __slots__ = ("worker", "findings")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    worker: WorkerDetail
    findings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker: _Optional[_Union[WorkerDetail, _Mapping]] = ..., findings: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkerDetail(_message.Message):
    __slots__ = ("worker", "runtime_endpoint", "runtime_config", "detail", "warnings")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_CONFIG_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    worker: _fleet_pb2.Worker
    runtime_endpoint: str
    runtime_config: _struct_pb2.Struct
    detail: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker: _Optional[_Union[_fleet_pb2.Worker, _Mapping]] = ..., runtime_endpoint: _Optional[str] = ..., runtime_config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., detail: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerDetail]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerDetail, _Mapping]]] = ...) -> None: ...

class GetWorkerRequest(_message.Message):
    __slots__ = ("worker_id",)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ...) -> None: ...

class GetWorkerResponse(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: WorkerDetail
    def __init__(self, worker: _Optional[_Union[WorkerDetail, _Mapping]] = ...) -> None: ...

class DrainWorkerRequest(_message.Message):
    __slots__ = ("worker_id", "wait_ms")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    wait_ms: int
    def __init__(self, worker_id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class DrainWorkerResponse(_message.Message):
    __slots__ = ("in_flight", "drained")
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    in_flight: int
    drained: bool
    def __init__(self, in_flight: _Optional[int] = ..., drained: _Optional[bool] = ...) -> None: ...

class RemoveWorkerRequest(_message.Message):
    __slots__ = ("worker_id",)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ...) -> None: ...

class RemoveWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
