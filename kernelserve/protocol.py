"""Every struct that crosses the socket between a client and the engine.

Structs are positional on the wire: the order of the fields *is* the protocol. Only append, always with a default;
a receiver of an older minor fills in what is missing. Anything else raises PROTOCOL_VERSION.

    client                                  engine
      | -- HELLO ClientHello ------------->  |   first message of each client
      | <- EngineStatus(phase) ...           |   while the model loads
      | <- EngineReady | EngineFailure       |
      | -- ADD EngineCoreRequest --------->  |
      | -- ABORT [request ids] ----------->  |
      | -- UTILITY UtilityRequest -------->  |   ping, stats, reset_prefix_cache, ...
      | <- EngineCoreOutputs                 |   at most one per step, and one for images that must be sent again
      | -- BYE --------------------------->  |
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import msgspec

from kernelserve.config import EngineConfig, Lifetime
from kernelserve.sampling_params import SamplingParams
from kernelserve.step_record import (
    EncoderInput,
    KVCacheMap,
    Positional,
    PrefixCacheStats,
    QueuedRequest,
    Refusal,
    SchedulerStats,
    StepRecord,
)
from kernelserve.wire import WireArray

__all__ = [
    "PROTOCOL_VERSION",
    "ClientHello",
    "EncoderInput",
    "EngineCoreEvent",
    "EngineCoreEventType",
    "EngineCoreOutput",
    "EngineCoreOutputs",
    "EngineCoreRequest",
    "EngineDead",
    "EngineFailure",
    "EngineMessage",
    "EngineReady",
    "EngineStatus",
    "FinishReason",
    "KVCacheMap",
    "LaunchSpec",
    "LogprobsLists",
    "MultiModalFeatureSpec",
    "PlaceholderRange",
    "PrefillStats",
    "PrefixCacheStats",
    "QueuedRequest",
    "Refusal",
    "RequestType",
    "SchedulerStats",
    "SharedArrays",
    "StepRecord",
    "UtilityOutput",
    "UtilityReply",
    "UtilityRequest",
]

PROTOCOL_VERSION = 1


class RequestType(bytes, Enum):
    """First frame of every message from a client."""

    HELLO = b"\x00"
    ADD = b"\x01"
    ABORT = b"\x02"
    UTILITY = b"\x03"
    BYE = b"\x04"


class FinishReason(IntEnum):
    """Why a request ended. The lower-case names are what callers see."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


class EngineCoreEventType(IntEnum):
    """What happened to a request inside the engine."""

    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


class EngineCoreEvent(Positional):
    """`timestamp` is the engine's monotonic clock in seconds; comparable only with others of the same engine."""

    type: EngineCoreEventType
    timestamp: float


class PlaceholderRange(Positional):
    """Token positions [offset, offset + length) of a prompt that belong to one image."""

    offset: int
    length: int
    is_embed: bytes | None = None
    """One byte (0 or 1) a position: does it take an embedding of the encoder? None: all of them do."""

    @property
    def num_embeds(self) -> int:
        """How many embeddings the encoder gives for this image; below `length` when there is a mask."""
        return self.length if self.is_embed is None else self.is_embed.count(1)


class SharedArrays(Positional):
    """Where the arrays of an image lie in memory that the client shares; only with mm_processor_cache_type='shm'."""

    fd: int
    """Descriptor of the segment in the client process."""
    secret: bytes
    """What the segment begins with."""
    offset: int
    """Of the slot, which begins with its generation."""
    generation: int
    """Another number there: the slot was overwritten."""
    arrays: dict[str, tuple[str, list[int], int]]
    """Name -> dtype, shape, offset."""


class MultiModalFeatureSpec(Positional):
    """One image of a prompt, as its model's processor made it, and where it goes."""

    modality: str
    """So far always "image"."""
    mm_hash: str
    """Hex digest of everything that changes the features: equal hashes, equal embeddings."""
    position: PlaceholderRange
    data: dict[str, WireArray] | None = None
    """The model's keyword arguments, exactly as its processor gives them when it is called with this image alone: the
    leading dimension is kept, so those of several images are joined along axis 0 (Idefics3: axis 1, its tiles).
    None: the engine has them already, or they are in `shared`."""
    shared: SharedArrays | None = None
    """Put into `data` by the engine's input thread."""


class EngineCoreRequest(Positional):
    """One request as the engine needs it. Raises nothing: the InputProcessor has checked everything."""

    request_id: str
    """Internal id: the caller's id and a random suffix."""
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    arrival_time: float
    """Wall clock of the client, seconds since the epoch."""
    client_index: int = 0
    priority: int = 0
    """Lower runs earlier; only the `priority` policy looks at it."""
    cache_salt: str | None = None
    """Prefix-cache blocks are shared only between equal salts."""
    external_req_id: str | None = None
    """The caller's own id."""
    mm_features: list[MultiModalFeatureSpec] = msgspec.field(default_factory=list)
    """The images of the prompt, by offset; their ranges do not overlap."""


class LogprobsLists(Positional):
    """Log-probabilities of n positions. Column 0 is the sampled (or prompt) token, then the top-k, best first.

    token_ids: int32 [n, k + 1]; logprobs: float32 [n, k + 1]; ranks: int32 [n], 1 = most probable.
    """

    token_ids: WireArray
    logprobs: WireArray
    ranks: WireArray


class PrefillStats(Positional):
    """Sent once, with the first output of a request."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_image_tokens: int = 0
    """Prompt tokens that take an embedding of an image."""
    num_encoded_images: int = 0
    """Images that went through the encoder for this request."""
    num_encoder_hits: int = 0
    """Images that had been encoded before. Those that lie in a cached prefix are in neither count."""
    encode_time: float = 0.0
    """Seconds that the encoder took in the steps in which it encoded images of this request."""


class EngineCoreOutput(Positional):
    """What one step brought to one request: tokens, or its end, or both."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: LogprobsLists | None = None
    new_prompt_logprobs: LogprobsLists | None = None
    """Positions 1..n-1 of the prompt, once, when the prompt is complete."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token id, or the message of an error."""
    events: list[EngineCoreEvent] = msgspec.field(default_factory=list)
    prefill_stats: PrefillStats | None = None

    @property
    def finished(self) -> bool:
        """Whether this is the last output of the request."""
        return self.finish_reason is not None


class UtilityRequest(Positional):
    """Calls a named method of the engine: see `EngineCore` for the list. Arguments are plain msgpack values."""

    call_id: int
    method: str
    args: list[Any] = msgspec.field(default_factory=list)


class UtilityOutput(Positional):
    """The answer to a UtilityRequest; `failure` is the text of the exception if it failed."""

    call_id: int
    result: Any = None
    failure: str | None = None


class LaunchSpec(msgspec.Struct, kw_only=True):
    """The first message that an engine process reads from its standard input; after it stdin is only the lifeline."""

    protocol_version: int
    engine_id: str
    name: str
    token: str
    """Secret that each client must show."""
    run_dir: str
    """0700 directory that holds the engine's socket `in.sock`; the engine removes it at its end."""
    config: EngineConfig
    lifetime: Lifetime = "kernel"
    linger_s: float = 600.0
    """`linger`: how long to wait for a new client after the last one is gone."""
    idle_unload_s: float | None = None
    """End the engine after so many seconds without a request; None: never."""
    owner_pid: int = 0
    fake_model: bool = False
    """Run with a fake model runner: for measuring and testing the engine without a model."""
    log_path: str = ""


class ClientHello(msgspec.Struct, kw_only=True):
    """Introduces a client. A map on the wire, so that any two versions can tell each other apart."""

    protocol_version: int
    token: str
    output_address: str
    """ipc address where the client has bound its PULL socket."""
    pid: int
    pid_start_time: float = 0.0
    """Start of the process in clock ticks, so that a reused pid is not taken for the client; 0: unknown."""


class EngineStatus(msgspec.Struct, array_like=True, tag="status"):
    """Progress while the engine starts."""

    phase: str
    seconds: float
    """Since the engine process began."""
    done: float | None = None
    """Share of the phase that is done, if known."""
    tokenizer_dir: str = ""
    """Folder of the model's tokenizer, once it is known: it can be loaded while the engine goes on."""


class EngineReady(msgspec.Struct, array_like=True, tag="ready", kw_only=True):
    """The engine takes requests now. Everything that a client needs to know about the model."""

    protocol_version: int
    engine_id: str
    version: str
    pid: int
    client_index: int
    config: EngineConfig
    """As asked for, with dtype, device and max_model_len resolved."""
    model_type: str
    max_model_len: int
    vocab_size: int
    """Rows of the output head: ids from here on cannot be sampled."""
    block_size: int
    num_gpu_blocks: int
    kv_cache_bytes: int
    weight_bytes: int
    tokenizer_dir: str
    """Folder with tokenizer.json, tokenizer_config.json and, if the model has one, chat_template.jinja."""
    eos_token_ids: list[int]
    """From the generation config, the model config and the tokenizer; the first is the primary one."""
    generation_defaults: dict[str, Any] = {}
    """temperature, top_p, top_k, ... that the model's generation config recommends."""
    load_seconds: dict[str, float] = {}
    """Phase -> seconds."""
    log_path: str = ""
    mm_processor_dir: str = ""
    """Folder with the image processor's settings (preprocessor_config.json, processor_config.json) beside config.json;
    empty: the model takes no images."""
    image_token_id: int | None = None
    """The id that stands for one embedding of an image in a prompt."""
    max_image_embeds: int = 0
    """Most embeddings that one image may have: what the encoder cache and one encoder step hold."""
    max_images_per_prompt: int = 0
    """0: no limit but the length of the prompt."""
    mm_cache_bytes: int = 0
    """Size of the engine's cache of processed images, mirrored by the client; 0: images are always sent."""
    image_side: int = 0
    """Longer side in pixels above which a picture of up to 2:1 tells the model no more; 0: not known, or no images."""
    torch_reason: str = ""
    """Why the layers run in torch although our faster kernels were wanted; empty: nothing prevented those."""

    def describe(self) -> str:
        """Say what runs, where, and with how much memory, in one line."""
        tokens = (self.num_gpu_blocks - 1) * self.block_size
        slow = f"; the layers run in torch: {self.torch_reason}" if self.torch_reason else ""
        return (
            f"kernelserve: {self.config.model} ({self.config.dtype}, {self.config.device}), "
            f"weights {_megabytes(self.weight_bytes)}, "
            f"KV cache {tokens:,} tokens in {_megabytes(self.kv_cache_bytes)}, "
            f"context {self.max_model_len:,}, started in {sum(self.load_seconds.values()):.1f} s{slow}"
        )


class EngineFailure(msgspec.Struct, array_like=True, tag="failure", kw_only=True):
    """The engine could not start, or refuses this client. `code` is a key of `errors.START_ERRORS`."""

    code: str
    phase: str
    message: str
    """One line that can be read alone."""
    traceback: str = ""


class EngineDead(msgspec.Struct, array_like=True, tag="dead"):
    """The last message of an engine that fails."""

    message: str
    traceback: str = ""
    code: str = ""
    """`unloaded`: it ended because it was idle; empty: anything else."""


class EngineCoreOutputs(msgspec.Struct, array_like=True, tag="outputs", gc=False):
    """Everything of one step that concerns one client."""

    outputs: list[EngineCoreOutput] = []
    scheduler_stats: SchedulerStats | None = None
    step_record: StepRecord | None = None
    timestamp: float = 0.0
    """The engine's monotonic clock."""
    missing_images: list[str] = []
    """Requests that were not taken because an image came without its data: send them again, with all data."""


class UtilityReply(msgspec.Struct, array_like=True, tag="utility"):
    """Carries the answer to one utility call."""

    output: UtilityOutput


EngineMessage = (
    EngineStatus | EngineReady | EngineFailure | EngineDead | EngineCoreOutputs | UtilityReply
)
"""Whatever an engine sends to a client."""


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"
