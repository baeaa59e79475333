"""What a healthy run says: finished, checkpoints, settings, versions, layout; and advice that is no failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from firstfault.text.linear import Pattern
from firstfault.text.signals.base import Groups, Reading, Signal
from firstfault.text.signals.parts import given, numbers, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

    Read = Callable[[Groups, ReadLine], Iterable[Reading]]

_STEP = Pattern(r"(?i)\b(?:global[_ ]?steps?|steps?|iteration|iter)\W{0,4}(\d+)")


# "evaluation starts when training is done", "training complete: 40%"
_NOT_YET = Pattern(r"(?i)\b(?:not|until|when|once|if|before|will|unless)\b[^\n]{0,40}\b(?:training|exhausted|group)|\d%")


def _finished(what: str) -> Read:
    def read(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
        if _NOT_YET.search(line.message):
            return
        step = _STEP.search(line.message)
        yield Reading("finished", values=given(what=what, step=int(step.group(1)) if step else None))

    return read


def _checkpoint(what: str) -> Read:
    def read(groups: Groups, line: ReadLine) -> Iterable[Reading]:
        step = _STEP.search(line.message)
        number = whole(groups.get("step")) or (int(step.group(1)) if step else None)
        yield Reading("checkpoint", values=given(what=what, path=(groups.get("path") or "").rstrip(".") or None, step=number))

    return read


def _checkpoint_failed(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # every rank prints the list; it names those whose part failed
    yield Reading("checkpoint", values={"what": "failed", "ranks": numbers(groups["ranks"] or "")})


def _setting(name: str, value: str | None = None) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("setting", values=given(name=name, value=value if value is not None else groups.get("value")))

    return read


_ADVISED = Pattern(r"(?i)\b(?:with|passing|set|setting|try|use|using|enable|by) (?:NCCL|TORCH|CUDA|GLOO|PYTHON)[A-Z0-9_]*=")


def _named_setting(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    if _ADVISED.search(line.message):  # "run with NCCL_DEBUG=INFO for details" says that it is not set
        return
    yield Reading("setting", values=given(name=groups["name"], value=(groups["value"] or "")[:80]))


def _version(name: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("version", values=given(name=name, value=groups["value"]))

    return read


def _nccl_version(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    nccl, _, cuda = (groups["value"] or "").partition("+cuda")
    yield Reading("version", values={"name": "nccl", "value": nccl})
    if cuda:
        yield Reading("version", values={"name": "cuda", "value": cuda})


def _cuda_driver(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    number = int(groups["value"] or 0)
    yield Reading("version", values={"name": "cuda-driver", "value": f"{number // 1000}.{number % 1000 // 10}"})


def _layout(name: str, value: str | None = None) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("layout", values=given(name=name, value=value if value is not None else groups.get("value")))

    return read


_PARALLEL = Pattern(
    r"\b(world|data-parallel|context-parallel|expert-parallel|tensor-model-parallel|pipeline-model-parallel)[ -]size: (\d+)"
)


def _megatron_layout(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    for found in _PARALLEL.finditer(line.message):
        name, value = found.groups()
        if name == "world":
            yield Reading("world-size", values={"n": int(value)})
        else:
            yield Reading("layout", values={"name": name.replace("-model", "").replace("-", "_"), "value": value})


def _library(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("version", values=given(name=groups["name"], value=groups["value"]))


def _argument(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("layout", values=given(name=(groups["name"] or "").replace("_model", "").removesuffix("_size"), value=groups["value"]))


def _mesh(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    for dimension in (groups["mesh"] or "").split(","):
        name, _, size = dimension.strip().partition("=")
        if size.isdecimal():
            yield Reading("layout", values={"name": f"mesh_{name.strip()}", "value": size})


def _note(what: str) -> Read:
    def read(_groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("note", values={"what": what})

    return read


_PATH = r"(?P<path>/[^\s'\",;)]+|\w+://[^\s'\",;)]+)"

FINISHED = (
    Signal(
        "finished-training",
        r"(?i)\btraining (?:is |has |run )?(?:done|complete|completed|finished|ended)\b",
        _finished("training"),
    ),
    Signal("finished-fit", r"\bfit finished\b|`?Trainer\.fit`? stopped: `?max_(?:steps|epochs)", _finished("training")),
    Signal("finished-runtime", r"'train_runtime': '?[\d.]+", _finished("training")),
    Signal("finished-megatron", r"exiting program at iteration \d+|\[after training is done\]", _finished("training")),
    Signal(
        "finished-data",
        r"(?i)\b(?:data ?(?:set|loader|iterator| iterator| loader)?s?|input|iterator) (?:is |was )?exhausted\b",
        _finished("data"),
    ),
    Signal(
        "finished-group",
        r"(?i)\b(?:process group (?:has been )?destroyed|(?:destroying|destroyed) (?:the )?process group|calling destroy_process_group)",
        _finished("process-group"),
    ),
)

CHECKPOINTS = (
    Signal(
        "checkpoint-saved-megatron",
        r"successfully saved checkpoint (?:from|at) iteration +(?P<step>\d+) to +" + _PATH,
        _checkpoint("save-done"),
    ),
    Signal(
        "checkpoint-loaded-megatron",
        r"successfully loaded checkpoint from +" + _PATH + r"[^\n]* at iteration +(?P<step>\d+)",
        _checkpoint("load-done"),
    ),
    Signal("checkpoint-saving-megatron", r"\bsaving checkpoint at iteration +(?P<step>\d+) to +" + _PATH, _checkpoint("save-start")),
    Signal("checkpoint-loading-megatron", r"\bloading checkpoint from +" + _PATH, _checkpoint("load-start")),
    Signal("checkpoint-saving-trainer", r"Saving (?:model )?checkpoint(?:-(?P<step>\d+)| to +" + _PATH + r")", _checkpoint("save-start")),
    Signal("checkpoint-saving-state", r"Saving current state to +" + _PATH, _checkpoint("save-start")),
    Signal("checkpoint-saving-fsdp", r"Saving FSDP (?:model|optimizer)", _checkpoint("save-start")),
    Signal("checkpoint-saved-fsdp", r"FSDP (?:[Mm]odel|[Oo]ptimizer) saved to", _checkpoint("save-done")),
    Signal("checkpoint-saved-deepspeed", r"\[Torch\] Saved " + _PATH, _checkpoint("save-done")),
    Signal("checkpoint-saving-deepspeed", r"\[Torch\] Saving " + _PATH, _checkpoint("save-start")),
    Signal("checkpoint-saving-titan", r"Saving (?:the|a full) checkpoint", _checkpoint("save-start")),
    Signal("checkpoint-saved-titan", r"Finished saving the checkpoint", _checkpoint("save-done")),
    Signal("checkpoint-loading-titan", r"Loading the checkpoint", _checkpoint("load-start")),
    Signal("checkpoint-loaded-titan", r"Finished loading the checkpoint", _checkpoint("load-done")),
    Signal("checkpoint-resuming", r"Resuming from (?:latest|checkpoint)?:? ?" + _PATH, _checkpoint("load-start")),
    Signal(
        "checkpoint-restoring", r"Restor(?:ing|ed) (?:all )?states from the checkpoint (?:path )?at " + _PATH, _checkpoint("load-start")
    ),
    Signal("checkpoint-failed", r"CheckpointException ranks:dict_keys\(\[(?P<ranks>[\d, ]*)\]\)", _checkpoint_failed),
    Signal("checkpoint-shards", r"Loading checkpoint shards: ", _checkpoint("load-start"), "first"),
)

_FIRST = "first"

CONTEXT = (
    Signal(
        "recorder-off",
        r"Stack trace of the failed collective not found, potentially because FlightRecorder is disabled",
        _setting("flight_recorder", "off"),
        _FIRST,
    ),
    Signal("recorder-dump", r"dumping nccl trace to (?P<value>\S+)", _setting("flight_recorder_dump"), _FIRST),
    Signal("recorder-done", r"Finished flight recorder successfully", _setting("flight_recorder", "on"), _FIRST),
    Signal("no-traceback", r"To enable traceback see: https?://", _setting("error_file", "none"), _FIRST),
    Signal("nccl-setting", r"(?P<name>NCCL_[A-Z0-9_]+) set by environment to (?P<value>[^\n]+)", _named_setting, _FIRST),
    Signal(
        "setting",
        r"\b(?P<name>NCCL_DEBUG|TORCH_NCCL_TRACE_BUFFER_SIZE|TORCH_FR_BUFFER_SIZE|TORCH_NCCL_ASYNC_ERROR_HANDLING|TORCH_NCCL_DUMP_ON_TIMEOUT"
        r"|TORCH_DISTRIBUTED_DEBUG|CUDA_LAUNCH_BLOCKING|NCCL_SOCKET_IFNAME|GLOO_SOCKET_IFNAME|NCCL_IB_DISABLE|NCCL_P2P_DISABLE|PYTHONUNBUFFERED)"
        r"['\"]?(?:=|: )['\"]?(?P<value>[\w.,:^=-]+)",
        _named_setting,
        _FIRST,
    ),
    Signal("nccl-version", r"NCCL version (?P<value>\d[\w.+]*)", _nccl_version, _FIRST),
    Signal("cuda-driver", r"cudaDriverVersion (?P<value>\d+)", _cuda_driver, _FIRST),
    Signal(
        "torch-version",
        r"(?i)\b(?:py)?torch(?:[ _.]version)?['\"]?(?:[ :=.]{1,60}['\"]?|==)v?(?P<value>\d+\.\d+\.\d+[\w.+]*)",
        _version("torch"),
        _FIRST,
    ),
    Signal("deepspeed-version", r"DeepSpeed info: version=(?P<value>[\w.+]+)", _version("deepspeed"), _FIRST),
    Signal(
        "library-version",
        r"\b(?P<name>transformers|accelerate|lightning|megatron-core|vllm|datasets|flash-attn|peft|trl)`?[ _]version['\"`]?(?:: |=)['\"]?"
        r"(?P<value>\d+\.\d+[\w.+]*)",
        _library,
        _FIRST,
    ),
    Signal(
        "library-pinned",
        r"\b(?P<name>transformers|accelerate|lightning|megatron-core|datasets|flash-attn)==v?(?P<value>\d+\.\d+[\w.+]*)",
        _library,
        _FIRST,
    ),
    Signal("driver-version", r"NVIDIA UNIX [\w ]*?Kernel Module[\w ]*? +(?P<value>\d+\.\d+[.\d]*)", _version("driver"), _FIRST),
    Signal("jax-version", r"(?i)\bjax(?:lib)? version:? (?P<value>\d+\.\d+[\w.+]*)", _version("jax"), _FIRST),
    Signal(
        "layout-fsdp",
        r"FullyShardedDataParallel|torch/distributed/fsdp/|FSDP firing post-backward|Saving FSDP model",
        _layout("fsdp", "on"),
        _FIRST,
    ),
    Signal("layout-zero", r"(?i)\bzero[_ ](?:optimization)?\W{0,6}_?stage\W{1,6}(?P<value>[0-3])\b", _layout("zero_stage"), _FIRST),
    Signal("layout-megatron", r"using world size: \d+, data-parallel[ -]size: ", _megatron_layout, _FIRST),
    Signal("layout-megatron-tp", r"initialized tensor model parallel with size (?P<value>\d+)", _layout("tensor_parallel"), _FIRST),
    Signal("layout-megatron-pp", r"initialized pipeline model parallel with size (?P<value>\d+)", _layout("pipeline_parallel"), _FIRST),
    Signal(
        "layout-arguments",
        r"\b(?P<name>tensor_model_parallel_size|pipeline_model_parallel_size|context_parallel_size|expert_model_parallel_size)"
        r" \.{3,120} (?P<value>\d+)",
        _argument,
        _FIRST,
    ),
    Signal("layout-half", r"\b(?P<value>bf16|fp16|fp8)(?:=True\b| \.{3,120} True\b)", _layout("precision"), _FIRST),
    Signal("layout-mesh", r"DeviceMesh\(\((?P<mesh>[^)]*)\)", _mesh, _FIRST),
    Signal("layout-pipeline", r"torch/distributed/pipelining/", _layout("pipeline_parallel", "on"), _FIRST),
    Signal("layout-distributed", r"Distributed environment: (?P<value>[\w]+)  ?Backend:", _layout("distributed"), _FIRST),
    Signal(
        "layout-precision",
        r"(?i)\bmixed[_ ]precision(?: type)?['\"]?(?:=|: ?)['\"]?(?P<value>bf16|fp16|fp8|no)\b",
        _layout("precision"),
        _FIRST,
    ),
    Signal("layout-amp", r"Using (?:native )?(?P<value>16bit|bfloat16|16-bit)[\w ]*Automatic Mixed Precision", _layout("amp"), _FIRST),
    Signal("layout-backend", r"\bbackend['\"]?(?: |=|: ?)['\"]?(?P<value>nccl|gloo|mpi|hccl|xccl|ucc)\b", _layout("backend"), _FIRST),
)

# Text that speaks of failures without being one: advice under an error, retries, boiler-plate guesses, noise at exit
NOTES = (
    Signal("note-async", r"CUDA kernel errors might be asynchronously reported at some other API call", _note("advice")),
    Signal("note-blocking", r"For debugging consider passing CUDA_LAUNCH_BLOCKING=1|Compile with `TORCH_USE_CUDA_DSA`", _note("advice")),
    Signal("note-nccl-hint", r"HINT: In many cases this error occurs when", _note("advice")),
    Signal("note-ray-guess", r"There are some potential root causes\. \(1\) The process is killed by SIGKILL", _note("advice")),
    Signal(
        "note-retry",
        r"(?i)\bretrying (?:in|after) [\d.]+ ?(?:ms|s|sec|seconds)\b|\battempt #?\d+ ?(?:/|of) ?\d+\)?:? [^\n]*(?:retry|fail)",
        _note("retry"),
        "thin",
    ),
    Signal("note-connect-retry", r"Call to connect returned [^\n]*, retrying", _note("retry")),
    Signal(
        "note-handled",
        r"(?i)\bthis is not an error\b|falling back to|\(handled\)|will (?:be )?(?:skip(?:ped)?|ignored?) and continu",
        _note("handled"),
    ),
    Signal("note-unstuck", r"This thread is unstuck waiting for", _note("recovered")),
    Signal("note-no-checkpoint", r"could not find (?:a checkpoint|the metadata file)", _note("handled")),
    Signal("note-ib-table", r"GID table changed", _note("noise")),
    Signal("note-error-file", r"no error file defined for parent, to copy child error file", _note("noise")),
    Signal(
        "note-not-destroyed",
        r"destroy_process_group\(\) was not called before program exit|process group has NOT been destroyed",
        _note("noise"),
    ),
    Signal("note-leaked", r"resource_tracker: There appear to be \d+ leaked", _note("noise")),
    Signal("note-peermem", r"nvidia-peermem [^\n]*detected invalid context", _note("noise")),
    Signal("note-jax-preemption", r"Failed to retrieve preemption notice from coordination service", _note("noise")),
    Signal(
        "note-nccl-plugin",
        r"Failed to find ncclCollNetPlugin|Plugin: Could not find: |NET/Plugin[^\n]*cannot open shared object file",
        _note("noise"),
    ),
)

SIGNALS = FINISHED + CHECKPOINTS + CONTEXT + NOTES
