import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATUS_UNSPECIFIED: _ClassVar[WorkerStatus]
    WORKER_STATUS_HEALTHY: _ClassVar[WorkerStatus]
    WORKER_STATUS_UNHEALTHY: _ClassVar[WorkerStatus]
    WORKER_STATUS_MISCONFIGURED: _ClassVar[WorkerStatus]
    WORKER_STATUS_DRAINING: _ClassVar[WorkerStatus]

class Feature(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FEATURE_UNSPECIFIED: _ClassVar[Feature]
    FEATURE_CHAT: _ClassVar[Feature]
    FEATURE_COMPLETION: _ClassVar[Feature]
    FEATURE_EMBEDDING: _ClassVar[Feature]
    FEATURE_CHOICES: _ClassVar[Feature]
    FEATURE_TOOLS: _ClassVar[Feature]
    FEATURE_LOGPROBS: _ClassVar[Feature]
    FEATURE_TOKEN_IDS: _ClassVar[Feature]
    FEATURE_STRUCTURED_OUTPUT: _ClassVar[Feature]
    FEATURE_IMAGES: _ClassVar[Feature]
    FEATURE_LOGIT_BIAS: _ClassVar[Feature]
    FEATURE_ECHO: _ClassVar[Feature]
    FEATURE_SUFFIX: _ClassVar[Feature]
WORKER_STATUS_UNSPECIFIED: WorkerStatus
WORKER_STATUS_HEALTHY: WorkerStatus
WORKER_STATUS_UNHEALTHY: WorkerStatus
WORKER_STATUS_MISCONFIGURED: WorkerStatus
WORKER_STATUS_DRAINING: WorkerStatus
FEATURE_UNSPECIFIED: Feature
FEATURE_CHAT: Feature
FEATURE_COMPLETION: Feature
FEATURE_EMBEDDING: Feature
FEATURE_CHOICES: Feature
FEATURE_TOOLS: Feature
FEATURE_LOGPROBS: Feature
FEATURE_TOKEN_IDS: Feature
FEATURE_STRUCTURED_OUTPUT: Feature
FEATURE_IMAGES: Feature
FEATURE_LOGIT_BIAS: Feature
FEATURE_ECHO: Feature
FEATURE_SUFFIX: Feature

class Fleet(_message.Message):
    __slots__ = ("router_id", "version", "models", "workers")
    ROUTER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    router_id: str
    version: int
    models: _containers.RepeatedCompositeFieldContainer[Model]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, router_id: _Optional[str] = ..., version: _Optional[int] = ..., models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "created_at", "worker_ids")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    WORKER_IDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    created_at: _timestamp_pb2.Timestamp
    worker_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., worker_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("worker_id", "worker_type", "runtime", "transport", "supported_models", "status", "circuit", "in_flight", "max_concurrency", "last_probe", "metadata", "features")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_TYPE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_MODELS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    LAST_PROBE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    worker_type: str
    runtime: str
    transport: str
    supported_models: _containers.RepeatedScalarFieldContainer[str]
    status: WorkerStatus
    circuit: str
    in_flight: int
    max_concurrency: int
    last_probe: Probe
    metadata: _struct_pb2.Struct
    features: _containers.RepeatedScalarFieldContainer[Feature]
    def __init__(self, worker_id: _Optional[str] = ..., worker_type: _Optional[str] = ..., runtime: _Optional[str] = ..., transport: _Optional[str] = ..., supported_models: _Optional[_Iterable[str]] = ..., status: _Optional[_Union[WorkerStatus, str]] = ..., circuit: _Optional[str] = ..., in_flight: _Optional[int] = ..., max_concurrency: _Optional[int] = ..., last_probe: _Optional[_Union[Probe, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., features: _Optional[_Iterable[_Union[Feature, str]]] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("at", "latency_ms", "error")
    AT_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    latency_ms: float
    error: str
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., latency_ms: _Optional[float] = ..., error: _Optional[str] = ...) -> None: ...
