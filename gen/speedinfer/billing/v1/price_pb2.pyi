import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.type import money_pb2 as _money_pb2
from speedinfer.billing.v1 import account_pb2 as _account_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PriceVersion(_message.Message):
    __slots__ = ("version", "model", "effective_from", "tiers", "bounds", "account_id", "created_at")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_FROM_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    version: str
    model: str
    effective_from: _timestamp_pb2.Timestamp
    tiers: _containers.RepeatedCompositeFieldContainer[PriceTier]
    bounds: ModelBounds
    account_id: str
    created_at: _timestamp_pb2.Timestamp
    def __init__(self, version: _Optional[str] = ..., model: _Optional[str] = ..., effective_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tiers: _Optional[_Iterable[_Union[PriceTier, _Mapping]]] = ..., bounds: _Optional[_Union[ModelBounds, _Mapping]] = ..., account_id: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PriceTier(_message.Message):
    __slots__ = ("from_prompt_tokens", "prompt", "cached_prompt", "completion")
    FROM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    from_prompt_tokens: int
    prompt: _money_pb2.Money
    cached_prompt: _money_pb2.Money
    completion: _money_pb2.Money
    def __init__(self, from_prompt_tokens: _Optional[int] = ..., prompt: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., cached_prompt: _Optional[_Union[_money_pb2.Money, _Mapping]] = ..., completion: _Optional[_Union[_money_pb2.Money, _Mapping]] = ...) -> None: ...

class ModelBounds(_message.Message):
    __slots__ = ("max_output_tokens", "default_output_tokens", "tokens_per_byte", "template_request_tokens", "template_message_tokens", "tools_request_tokens", "tools_message_tokens", "image_tokens")
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_BYTE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_REQUEST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_MESSAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_REQUEST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_MESSAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    max_output_tokens: int
    default_output_tokens: int
    tokens_per_byte: int
    template_request_tokens: int
    template_message_tokens: int
    tools_request_tokens: int
    tools_message_tokens: int
    image_tokens: int
    def __init__(self, max_output_tokens: _Optional[int] = ..., default_output_tokens: _Optional[int] = ..., tokens_per_byte: _Optional[int] = ..., template_request_tokens: _Optional[int] = ..., template_message_tokens: _Optional[int] = ..., tools_request_tokens: _Optional[int] = ..., tools_message_tokens: _Optional[int] = ..., image_tokens: _Optional[int] = ...) -> None: ...

class SetPricesRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SetPriceItem]
    def __init__(self, items: _Optional[_Iterable[_Union[SetPriceItem, _Mapping]]] = ...) -> None: ...

class SetPriceItem(_message.Message):
    __slots__ = ("operation_id", "model", "effective_from", "tiers", "bounds", "account_id")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_FROM_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    model: str
    effective_from: _timestamp_pb2.Timestamp
    tiers: _containers.RepeatedCompositeFieldContainer[PriceTier]
    bounds: ModelBounds
    account_id: str
    def __init__(self, operation_id: _Optional[str] = ..., model: _Optional[str] = ..., effective_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tiers: _Optional[_Iterable[_Union[PriceTier, _Mapping]]] = ..., bounds: _Optional[_Union[ModelBounds, _Mapping]] = ..., account_id: _Optional[str] = ...) -> None: ...

class SetPricesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PriceResult]
    def __init__(self, results: _Optional[_Iterable[_Union[PriceResult, _Mapping]]] = ...) -> None: ...

class PriceResult(_message.Message):
    __slots__ = ("operation_id", "status", "field", "message", "price")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    status: _account_pb2.MutationStatus
    field: str
    message: str
    price: PriceVersion
    def __init__(self, operation_id: _Optional[str] = ..., status: _Optional[_Union[_account_pb2.MutationStatus, str]] = ..., field: _Optional[str] = ..., message: _Optional[str] = ..., price: _Optional[_Union[PriceVersion, _Mapping]] = ...) -> None: ...

class ListPricesRequest(_message.Message):
    __slots__ = ("model", "include_past", "page_size", "page_token")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PAST_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    model: str
    include_past: bool
    page_size: int
    page_token: str
    def __init__(self, model: _Optional[str] = ..., include_past: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPricesResponse(_message.Message):
    __slots__ = ("prices", "next_page_token")
    PRICES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    prices: _containers.RepeatedCompositeFieldContainer[PriceVersion]
    next_page_token: str
    def __init__(self, prices: _Optional[_Iterable[_Union[PriceVersion, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
