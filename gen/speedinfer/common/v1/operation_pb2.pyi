from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[Operation]
    OPERATION_CHAT_COMPLETION: _ClassVar[Operation]
    OPERATION_COMPLETION: _ClassVar[Operation]
    OPERATION_EMBEDDING: _ClassVar[Operation]
OPERATION_UNSPECIFIED: Operation
OPERATION_CHAT_COMPLETION: Operation
OPERATION_COMPLETION: Operation
OPERATION_EMBEDDING: Operation
