"""The OpenAPI description of the public listener. Pure data; `app.py` serves it.

It says what the edge itself checks or adds; the bodies of chat, completions and embeddings are OpenAI's.
"""

from typing import Any

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_USAGE = {
    "type": "object",
    "description": "As the worker reported it, and what was charged for it.",
    "properties": {
        "prompt_tokens": {"type": "integer"},
        "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"},
        "cost": {
            "type": "number",
            "description": "USD with nine decimals; absent if billing had not answered in time.",
        },
    },
}
_LIMIT = {"type": ["integer", "null"], "minimum": 1}
_GENERATION = {
    "model": {"type": "string"},
    "stream": {"type": ["boolean", "null"]},
    "stream_options": {"type": ["object", "null"], "properties": {"include_usage": {"type": "boolean"}}},
    "max_tokens": _LIMIT,
    "n": _LIMIT,
    "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
    "top_p": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    "stop": {"type": ["string", "array", "null"], "items": {"type": "string"}},
}
_PROBLEMS = {
    "400": "Wrong in itself; `param` names the member.",
    "401": "No valid key.",
    "402": "The hold does not fit the credit.",
    "403": "The key may not use the model.",
    "404": "No such model.",
    "408": "The body did not arrive in time.",
    "409": "The Idempotency-Key is in use.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "The worker refused the request.",
    "429": "A limit is reached; see retry-after.",
    "500": "The gateway failed.",
    "502": "The worker failed, answered without usage, or nonsense.",
    "503": "Not now; see retry-after.",
    "504": "A deadline ran out.",
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _problems(*statuses: str) -> dict[str, Any]:
    error = _json({"$ref": "#/components/schemas/Error"})
    return {status: {"description": _PROBLEMS[status], "content": error} for status in statuses}


def _generate(summary: str, own: dict[str, Any], required: list[str], streams: bool) -> dict[str, Any]:
    content = _json({"type": "object", "properties": {"usage": {"$ref": "#/components/schemas/Usage"}}})
    if streams:
        content["text/event-stream"] = {
            "schema": {
                "type": "string",
                "description": "`data: <json>` events; usage in the last one before `data: [DONE]`; a failure is an event "
                "with `error` and no `[DONE]`.",
            }
        }
    properties = (_GENERATION if streams else {"model": {"type": "string"}}) | own
    body = {"type": "object", "required": ["model", *required], "properties": properties, "additionalProperties": True}
    return {
        "post": {
            "summary": summary,
            "security": [{"key": []}],
            "parameters": [
                {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 255}},
                {"name": "X-Client-Request-Id", "in": "header", "schema": {"type": "string", "maxLength": 512}},
            ],
            "requestBody": {"required": True, "content": _json(body)},
            "responses": {"200": {"description": "The answer.", "content": content}, **_problems(*_PROBLEMS)},
        }
    }


def _read(summary: str, *problems: str, secured: bool = True, parameters: list[Any] | None = None) -> dict[str, Any]:
    return {
        "get": {
            "summary": summary,
            "security": [{"key": []}] if secured else [],
            "parameters": parameters or [],
            "responses": {
                "200": {"description": "The answer.", "content": _json({"type": "object"})},
                **_problems(*problems),
            },
        }
    }


def _in_path(name: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}}]


def _in_query(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": "query", "schema": {"type": "string", "format": "date-time"}} for name in names]


def _state(summary: str) -> dict[str, Any]:
    read = _read(summary, secured=False)
    read["get"]["responses"]["503"] = {"description": "It cannot.", "content": _json({"type": "object"})}
    return read


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "SpeedInfer", "version": "1", "description": "An inference gateway with OpenAI's API."},
    "paths": {
        "/v1/chat/completions": _generate(
            "Answer a conversation.",
            {
                "messages": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["role"]}},
                "max_completion_tokens": _LIMIT,
            },
            ["messages"],
            streams=True,
        ),
        "/v1/completions": _generate(
            "Continue a text.", {"prompt": {"type": ["string", "array"]}}, ["prompt"], streams=True
        ),
        "/v1/embeddings": _generate(
            "Embed texts.",
            {"input": {"type": ["string", "array"]}, "encoding_format": {"enum": ["float", "base64", None]}},
            ["input"],
            streams=False,
        ),
        "/v1/models": _read("Models that the key may use.", "401", "503"),
        "/v1/models/{model}": _read(
            "One model; its id may hold slashes.", "401", "403", "404", "503", parameters=_in_path("model")
        ),
        "/v1/usage": _read("The account's balance and usage.", "400", "401", "503", parameters=_in_query("from", "to")),
        "/v1/requests/{request_id}": _read(
            "What one request cost.", "401", "404", "503", parameters=_in_path("request_id")
        ),
        "/health": _state("The workers and their state."),
        "/livez": _read("The process is up.", secured=False),
        "/readyz": _state("Requests can be served here."),
        "/openapi.json": _read("This description.", secured=False),
    },
    "components": {
        "schemas": {"Error": _ERROR, "Usage": _USAGE},
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    },
}
