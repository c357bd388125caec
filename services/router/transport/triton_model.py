"""What a loaded Triton model declares, and the plan for talking to it: which tensor means what.

From the model's metadata and config (the JSON of Triton's own endpoints) and the registration to a `TensorPlan`, or to
`Problems` that name what is wrong and list what the model declares instead. An explicit name wins; else the first declared
of the names in stock models counts. Nothing undeclared is ever planned. Pure; imported by the Triton transport.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.router.transport.triton_config import SUFFIX, TritonConfig
from services.router.transport.triton_params import TABLE, Parameter, further

INTEGERS = frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"})
FLOATS = frozenset({"FP16", "FP32", "FP64"})
TEXT = frozenset({"BYTES"})
FLAGS = frozenset({"BOOL"})
# Data types of which a value can be sent at all.
USABLE = INTEGERS | FLOATS | TEXT | FLAGS
_KINDS = {"number": FLOATS, "integer": INTEGERS, "words": TEXT, "any": USABLE}

STOCK_PROMPT_TOKENS = "num_input_tokens"
STOCK_COMPLETION_TOKENS = "num_output_tokens"
# Where a model says itself why it ended; NVIDIA's LLM-API model does.
FINISH_REASON = "finish_reason"
STOP_REASON = "stop_reason"
OVERLAY = "deploy/triton/"

# What the gateway itself fills: role -> tensor names in stock models, and the usable types.
MAX_TOKENS = "max_tokens"
STREAM = "stream"
EXCLUDE_INPUT = "exclude_input_in_output"
RETURN_COUNTS = ("return_num_input_tokens", "return_num_output_tokens")
RETURN_REASONS = ("return_finish_reason", "return_stop_reason")
END_ID = "end_id"
PAD_ID = "pad_id"
_OWN: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    MAX_TOKENS: (("max_tokens", "sampling_param_max_tokens"), INTEGERS),
    STREAM: (("stream", "streaming"), FLAGS),
    EXCLUDE_INPUT: (("exclude_input_in_output", "sampling_param_exclude_input_from_output"), FLAGS),
    RETURN_COUNTS[0]: ((RETURN_COUNTS[0],), FLAGS),
    RETURN_COUNTS[1]: ((RETURN_COUNTS[1],), FLAGS),
    RETURN_REASONS[0]: ((RETURN_REASONS[0],), FLAGS),
    RETURN_REASONS[1]: ((RETURN_REASONS[1],), FLAGS),
    END_ID: (("end_id",), INTEGERS),
    PAD_ID: (("pad_id",), INTEGERS),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A declared tensor. `dims` are without the batch dimension; -1 is any length."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    batched: bool
    optional: bool = True

    def shape(self, count: int) -> tuple[int, ...] | None:
        """The shape for so many elements of one request, or None if they do not fit."""
        dims, left = list(self.dims), count
        for index, size in enumerate(dims):
            if size == -1:
                # The first open dimension takes them all.
                dims[index], left = left, 1
        length = 1
        for size in dims:
            length *= size
        if length != count:
            return None
        return (1, *dims) if self.batched else tuple(dims)


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """How to talk to one loaded model."""

    model: str
    version: str
    decoupled: bool
    # Takes the prompt.
    text: Tensor
    # Roles that the gateway fills itself -> tensor.
    own: Mapping[str, Tensor]
    # Parameters of the request, each with its tensor.
    parameters: tuple[tuple[Parameter, Tensor], ...]
    text_output: str
    prompt_tokens_output: str
    completion_tokens_output: str
    # True: each response counts its own tokens; False: the last one counts all. None: to be found out by a probe.
    usage_sums: bool | None
    cumulative_text: bool
    # The model puts a BOS before the prompt, so that a rendered one would be doubled.
    adds_bos: bool
    # Found by the check: an answer that is not a stream starts with the prompt, and counts its tokens.
    echoes_prompt: bool = False
    counts_prompt: bool = False
    # Outputs that say why the answer ended, of those in stock models; empty where the model declares none.
    finish_reason_output: str = ""
    stop_reason_output: str = ""

    @property
    def demands_limit(self) -> bool:
        """No request can go without an output limit."""
        limit = self.own.get(MAX_TOKENS)
        return limit is not None and not limit.optional

    @property
    def outputs(self) -> tuple[str, ...]:
        """What is asked of the model; naming a further one may not even be possible (FP16 logits over HTTP)."""
        reasons = (name for name in (self.finish_reason_output, self.stop_reason_output) if name)
        return self.text_output, self.prompt_tokens_output, self.completion_tokens_output, *reasons


@dataclass(frozen=True, slots=True)
class Problems:
    """Why a registration does not fit the model: one sentence each."""

    sentences: tuple[str, ...]


def steps(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The models behind an ensemble, whose parameters tell about its text."""
    scheduling = config.get("ensemble_scheduling")
    listed = scheduling.get("step") if isinstance(scheduling, dict) else None
    names = [step.get("model_name") for step in listed or [] if isinstance(step, dict)]
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def resolve(
    model: str,
    settings: TritonConfig,
    metadata: Mapping[str, Any],
    config: Mapping[str, Any],
    step_configs: Sequence[Mapping[str, Any]] = (),
) -> TensorPlan | Problems:
    """The plan for `model`, or all that is wrong with it."""
    return _Resolver(model, settings, metadata, config).plan(step_configs)


class _Resolver:
    """Collects problems while it looks tensors up."""

    def __init__(
        self, model: str, settings: TritonConfig, metadata: Mapping[str, Any], config: Mapping[str, Any]
    ) -> None:
        self._model, self._settings, self._config = model, settings, config
        batched = _integer(config.get("max_batch_size")) > 0
        optional = {
            str(entry.get("name")): bool(entry.get("optional"))
            for entry in config.get("input") or ()
            if isinstance(entry, dict)
        }
        self.inputs = _tensors(metadata.get("inputs"), batched, optional)
        self.outputs = _tensors(metadata.get("outputs"), batched, {})
        self.problems: list[str] = []
        # Tensors that a problem is about already.
        self._blamed: set[str] = set()

    def plan(self, step_configs: Sequence[Mapping[str, Any]]) -> TensorPlan | Problems:
        settings = self._settings
        text = self._input("input_name", settings.input_name, ("text_input",), TEXT, needed=True)
        own = self._own()
        parameters = self._parameters()
        text_output = self._output("output_name", settings.output_name, "text_output", TEXT)
        counts = self._counts()
        taken = Counter(
            [*([text.name] if text else []), *(t.name for t in own.values()), *(t.name for _, t in parameters)]
        )
        self.problems += [
            f"input '{name}' of model '{self._model}' is named for {times} parameters; each needs a tensor of its own"
            for name, times in taken.items()
            if times > 1
        ]
        filled = {text.name if text else "", *(t.name for t in own.values())}
        filled |= {t.name for parameter, t in parameters if t.optional or parameter.neutral is not None}
        for tensor in self.inputs.values():
            if not tensor.optional and tensor.name not in filled | self._blamed:
                self.problems.append(self._unfilled(tensor))
        if self.problems or text is None:
            return Problems(tuple(self.problems))
        transaction = self._config.get("model_transaction_policy")
        everything = (self._config, *step_configs)
        accumulates = any(_flag(config, "accumulate_tokens") for config in everything)
        llmapi = any(name.startswith("sampling_param_") for name in self.inputs)
        adds_no_bos = any(_flag(config, "add_special_tokens") is False for config in everything)
        sums = {"sum": True, "last": False, "auto": True if counts[1] == STOCK_COMPLETION_TOKENS else None}
        return TensorPlan(
            model=self._model,
            version=settings.model_version,
            decoupled=isinstance(transaction, dict) and bool(transaction.get("decoupled")),
            text=text,
            own=own,
            parameters=parameters,
            text_output=text_output,
            prompt_tokens_output=counts[0],
            completion_tokens_output=counts[1],
            usage_sums=sums[settings.usage_mode],
            cumulative_text=(accumulates or llmapi) if settings.text_mode == "auto" else settings.text_mode != "delta",
            adds_bos=not adds_no_bos,
            finish_reason_output=self._reason(FINISH_REASON),
            stop_reason_output=self._reason(STOP_REASON),
        )

    def _own(self) -> dict[str, Tensor]:
        own: dict[str, Tensor] = {}
        for role, (names, types) in _OWN.items():
            explicit = self._settings.further_inputs.get(role)
            if role == MAX_TOKENS:
                explicit = self._settings.max_tokens_input_name
            tensor = self._input(f"{role}{SUFFIX}", explicit, names, types, needed=role == MAX_TOKENS)
            if tensor is not None and getattr(self._settings, role, 0) is not None:
                own[role] = tensor
        return own

    def _parameters(self) -> tuple[tuple[Parameter, Tensor], ...]:
        named = {key: name for key, name in self._settings.further_inputs.items() if key not in _OWN}
        found: list[tuple[Parameter, Tensor]] = []
        for row in TABLE:
            keys = [key for key in (row.name, *row.fields) if key in named]
            explicit = [named.pop(key) for key in dict.fromkeys(keys)]
            setting = f"{keys[0] if keys else row.name}{SUFFIX}"
            tensor = self._input(setting, explicit[0] if explicit else None, row.tensors, _KINDS[row.kind])
            if tensor is not None:
                found.append((row, tensor))
        for key, name in named.items():
            tensor = self._input(f"{key}{SUFFIX}", name, (), USABLE)
            if tensor is not None:
                found.append((further(key, name), tensor))
        return tuple(found)

    def _input(
        self, setting: str, explicit: str | None, names: Sequence[str], types: frozenset[str], *, needed: bool = False
    ) -> Tensor | None:
        """The tensor that is meant, if it is declared and usable; what is wrong goes into `problems`."""
        name = explicit or next((name for name in names if name in self.inputs), None)
        if name is None:
            if needed:
                wanted = " or ".join(f"'{one}'" for one in names)
                self.problems.append(
                    f"input {wanted} is not declared by model '{self._model}'; it declares {_list(self.inputs)}; "
                    f"'{setting}' names another"
                )
            return None
        tensor = self.inputs.get(name)
        if tensor is None:
            self.problems.append(
                f"input '{name}' is not declared by model '{self._model}'; it declares {_list(self.inputs)}"
            )
            return None
        # One found by its stock name that cannot be used is as good as not declared, unless the model demands it.
        if self._unusable("input", tensor, types, tell=bool(explicit) or needed or not tensor.optional):
            return None
        return tensor

    def _output(self, setting: str, explicit: str | None, default: str, types: frozenset[str]) -> str:
        name = explicit or default
        tensor = self.outputs.get(name)
        if tensor is not None:
            self._unusable("output", tensor, types, tell=True)
        else:
            hint = "" if explicit else f"; '{setting}' names another"
            self.problems.append(
                f"output '{name}' is not declared by model '{self._model}'; it declares {_list(self.outputs)}{hint}"
            )
        return name

    def _reason(self, name: str) -> str:
        """The output of this name, if it is declared and a text."""
        tensor = self.outputs.get(name)
        return name if tensor is not None and not self._unusable("output", tensor, TEXT, tell=False) else ""

    def _counts(self) -> tuple[str, str]:
        prompt, completion = self._settings.prompt_tokens_output_name, self._settings.completion_tokens_output_name
        stock = (STOCK_PROMPT_TOKENS, STOCK_COMPLETION_TOKENS)
        if prompt is None and completion is None and not any(name in self.outputs for name in stock):
            self.problems.append(
                f"model '{self._model}' declares no token counts, so it cannot be billed as it is; it declares "
                f"{_list(self.outputs)}; the overlay in {OVERLAY} adds '{stock[0]}' and '{stock[1]}', and other outputs "
                "are named by 'prompt_tokens_output_name' and 'completion_tokens_output_name'"
            )
            return stock
        return (
            self._output("prompt_tokens_output_name", prompt, stock[0], INTEGERS),
            self._output("completion_tokens_output_name", completion, stock[1], INTEGERS),
        )

    def _unusable(self, side: str, tensor: Tensor, types: frozenset[str], *, tell: bool) -> bool:
        """Whether type or shape rule the tensor out. One element (of any number, for lists) must fit."""
        problem = ""
        if tensor.datatype not in types:
            problem = f"has type {tensor.datatype}; usable types are {', '.join(sorted(types))}"
        elif tensor.shape(1) is None:
            problem = f"has shape {_shape(tensor)}; one element a request must fit"
        if problem and tell:
            self._blamed.add(tensor.name)
            self.problems.append(f"{side} '{tensor.name}' of model '{self._model}' {problem}")
        return bool(problem)

    def _unfilled(self, tensor: Tensor) -> str:
        hint = f"set '{tensor.name}'" if tensor.name in (END_ID, PAD_ID) else "make it optional in the model's config"
        return f"input '{tensor.name}' is demanded by model '{self._model}' and nothing fills it; {hint}"


def _tensors(listed: Any, batched: bool, optional: Mapping[str, bool]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for entry in listed or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        shape = tuple(_integer(size) for size in entry.get("shape") or ())
        name = entry["name"]
        dims = shape[1:] if batched else shape
        # An input that the config does not list cannot be known to be optional.
        found[name] = Tensor(name, str(entry.get("datatype")), dims, batched, optional.get(name, False))
    return found


def _integer(value: Any) -> int:
    # 64-bit integers are strings in the JSON form of protobuf.
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _flag(config: Mapping[str, Any], name: str) -> bool | None:
    """A parameter of a model's config, which Triton keeps as text."""
    parameters = config.get("parameters")
    entry = parameters.get(name) if isinstance(parameters, dict) else None
    text = str(entry.get("string_value", "") if isinstance(entry, dict) else "").strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    return False if text in ("false", "0", "no", "off") else None


def _list(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(tensors) or "none"


def _shape(tensor: Tensor) -> str:
    dims = (-1, *tensor.dims) if tensor.batched else tensor.dims
    return f"[{','.join(str(size) for size in dims)}]"
