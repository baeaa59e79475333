"""The table of step-line formats: where each framework puts its step, and lines that prove it.

Order matters: the first format whose hints are all in a line and whose pattern matches reads it, so that a framework's own line comes
before the shapes that many share. The formats of Transformers (a dict without a step) and of JSON records are in `read`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Example:
    """A line and what must be read from it."""

    line: str
    step: float | None = None
    total: float | None = None
    epoch: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Format:
    """Where a format puts its step. Groups: s step, t total, e epoch, d what a bar says it counts."""

    name: str
    title: str  # the program that prints it
    hints: tuple[str, ...]  # texts without which the pattern cannot match
    pattern: str
    examples: tuple[Example, ...]
    bare: bool = False  # it is a step line even without any number that has a name
    also: tuple[tuple[str, str, float], ...] = ()  # numbers of no telling name: pattern, canonical name, factor; before the named ones
    block: bool = False  # its numbers stand on the lines that follow
    evaluates: bool = False  # it tells of an evaluation: its loss is no training loss


_START = r"(?:^|[\s\[({|,'\"])"
_STOP = r"(?:[\s,:|\])}]|$)"
_COUNT = r"\d[\d,]{0,20}(?:\.\d{1,20})?"  # all repeats are bounded, so that no line takes long
_GAP, _SOME = r"\s{0,12}", r"\s{1,12}"
_NUM = r"\d{1,12}(?:\.\d{1,12})?"
_ITERATION = rf"(?:epoch (?P<e>\d+), )?\biteration:?{_SOME}(?P<s>{_COUNT}){_GAP}/{_GAP}(?P<t>{_COUNT})"
_GLOBAL_STEP = rf"global_step['\"]?[=:] ?(?P<s>{_COUNT})"
_UPDATES = rf"num_updates['\"]?[=:] ?['\"]?(?P<s>{_COUNT})"
_STEP = rf"{_START}[Ss]teps?['\"]?{_GAP}[=:]?{_GAP}(?P<s>{_COUNT})(?:{_GAP}/{_GAP}(?P<t>{_COUNT}))?{_STOP}"
_ITER = rf"{_START}iter(?:ation)?['\"]?{_GAP}[=:]?{_GAP}(?P<s>{_COUNT})(?:{_GAP}/{_GAP}(?P<t>{_COUNT}))?{_STOP}"
_BAR = (
    r"(?:Epoch (?P<e>\d+):[\s:]*)?(?P<d>[^%|\r\n]{0,80}?)\s{0,12}\d{1,3}%\|[^|]{0,200}\|"
    r" (?P<s>\d[\d.]*[kMG]?)/(?P<t>\d[\d.]*[kMG]?) \["
)
_RATES = (
    (rf", {{1,4}}({_NUM})s/(?:it|step|ba|batch)", "step_time", 1.0),
    (rf", {{1,4}}({_NUM})(?:it|step|ba|batch)/s", "steps_per_second", 1.0),
)
# numbers that stand before their unit, and the norm of llm.c
_UNNAMED = (
    (rf"({_COUNT})[ ]?tok(?:ens)?/s", "tokens_per_second", 1.0),
    (rf"({_COUNT})[ ]?samples/s", "samples_per_second", 1.0),
    (rf"\| {{1,4}}({_COUNT})[ ]?ms\b", "step_time", 0.001),
    (rf"({_NUM})[ ]?s/(?:step|it)", "step_time", 1.0),
    (r"\| {1,4}norm:? {1,4}(\d{1,12}(?:\.\d{1,12})?|nan|inf)", "grad_norm", 1.0),
)
_ENDLESS = r"(?:Epoch (?P<e>\d+):[\s:]*)?(?P<d>[^%|\r\n]{0,80}?)"

FORMATS: tuple[Format, ...] = (
    Format(
        "megatron",
        "Megatron-LM",
        ("consumed samples:", "iteration"),
        _ITERATION,
        (
            Example(
                " [2026-01-02 03:04:05.678901] iteration     1200/  500000 | consumed samples:       307200 |"
                " elapsed time per iteration (ms): 1834.2 | throughput per GPU (TFLOP/s/GPU): 412.7 | learning rate: 1.500000E-04 |"
                " global batch size:   256 | lm loss: 2.913402E+00 | loss scale: 1.0 | grad norm: 0.412 |"
                " number of skipped iterations:   0 | number of nan iterations:   0 |",
                1200,
                500000,
                None,
                {"loss": 2.913402, "step_time": 1.8342, "tflops": 412.7, "lr": 1.5e-4, "grad_norm": 0.412, "loss_scale": 1.0, "skipped": 0},
            ),
        ),
        True,
    ),
    Format(
        "megatron-valid",
        "Megatron-LM",
        ("validation", "loss at iteration"),
        rf"validation\S* loss at (?:\S+ )?iteration (?P<s>{_COUNT})",
        (
            Example(
                " validation loss at iteration 1000 | lm loss value: 2.801234E+00 | lm loss PPL: 1.646494E+01 | ",
                1000,
                values={"val_loss": 2.801234},
            ),
        ),
        evaluates=True,
    ),
    Format(
        "gpt-neox",
        "GPT-NeoX",
        ("samples/sec:", "iteration", "elapsed time per iteration"),
        _ITERATION,
        (
            Example(
                " samples/sec: 812.114 | iteration      100/  143000 | elapsed time per iteration (ms): 1260.9 | learning rate: 6.000E-05 |"
                " approx flops per GPU: 118.2TFLOPS | lm_loss: 4.102331E+00 | loss scale: 65536.0 |"
                " number of skipped iterations:   0 | number of nan iterations:   0 |",
                100,
                143000,
                values={"loss": 4.102331, "step_time": 1.2609, "samples_per_second": 812.114, "tflops": 118.2, "loss_scale": 65536},
            ),
        ),
        True,
    ),
    Format(
        "deepspeed",
        "DeepSpeed",
        ("step=", "skipped=", "lr=["),
        _STEP,
        (
            Example(
                "[2026-01-02 03:04:05,678] [INFO] [logging.py:128:log_dist] [Rank 0] step=10, skipped=2, lr=[1e-05], mom=[(0.9, 0.999)]",
                10,
                values={"skipped": 2, "lr": 1e-5},
            ),
        ),
        True,
    ),
    Format(
        "deepspeed-throughput",
        "DeepSpeed",
        ("RunningAvgSamplesPerSec", "global_step="),
        _GLOBAL_STEP,
        (
            Example(
                "[2026-01-02 03:04:05,679] [INFO] [timer.py:264:stop] epoch=0/micro_step=40/global_step=10,"
                " RunningAvgSamplesPerSec=11.94, CurrSamplesPerSec=12.01, MemAllocated=14.2GB, MaxMemAllocated=61.7GB",
                10,
                None,
                0,
                {"samples_per_second": 12.01, "memory": 14.2, "memory_peak": 61.7},
            ),
        ),
        True,
    ),
    Format(
        "deepspeed-pipeline",
        "DeepSpeed",
        ("steps: ", "iter time (s)"),
        rf"steps: (?P<s>{_COUNT}) ",
        (
            Example(
                "steps: 120 loss: 3.1402 iter time (s): 2.481 samples/sec: 103.192",
                120,
                values={"loss": 3.1402, "step_time": 2.481, "samples_per_second": 103.192},
            ),
        ),
    ),
    Format(
        "nemo-bar",
        "NeMo 1",
        ("%|", "global_step="),
        rf"(?:Epoch (?P<e>\d+):)?.{{0,400}}?{_GLOBAL_STEP}",
        (
            Example(
                "Epoch 0: :   1%|          | 12/1000 [01:12<1:39:20, 0.166it/s, v_num=, reduced_train_loss=8.420, global_step=11.00,"
                " consumed_samples=3072.0, train_step_timing in s=5.980]",
                11,
                None,
                0,
                {"loss": 8.42, "step_time": 5.98},
            ),
        ),
    ),
    Format(
        "nemo",
        "NeMo 2",
        ("Training epoch", "global_step: "),
        rf"Training epoch (?P<e>\d+), .{{0,400}}?{_GLOBAL_STEP}",
        (
            Example(
                "Training epoch 0, iteration 119/999 | lr: 2.989e-05 | global_batch_size: 512 | global_step: 119 |"
                " reduced_train_loss: 6.914 | train_step_timing in s: 4.313 | consumed_samples: 61440",
                119,
                None,
                0,
                {"loss": 6.914, "step_time": 4.313, "lr": 2.989e-5},
            ),
        ),
    ),
    Format(
        "global-step",
        "a trainer of one's own",
        ("global_step",),
        _GLOBAL_STEP,
        (Example("epoch 1 global_step=77 loss=2.5", 77, None, 1, {"loss": 2.5}),),
    ),
    Format(
        "fairseq",
        "fairseq",
        ("num_updates", "epoch "),
        rf"epoch (?P<e>\d+).{{0,600}}?{_UPDATES}",
        (
            Example(
                "2026-01-02 03:04:05 | INFO | train_inner | epoch 001:    120 / 5000 loss=9.812, ppl=898.9, wps=51234, ups=0.78,"
                " wpb=65536, bsz=128, num_updates=120, lr=1.2e-05, gnorm=2.301, loss_scale=128, train_wall=154, gb_free=12.4, wall=180",
                120,
                None,
                1,
                {"loss": 9.812, "grad_norm": 2.301, "loss_scale": 128, "tokens_per_second": 51234, "steps_per_second": 0.78},
            ),
        ),
    ),
    Format(
        "num-updates",
        "a trainer of one's own",
        ("num_updates",),
        _UPDATES,
        (Example("num_updates: 12 loss: 1.5", 12, values={"loss": 1.5}),),
    ),
    Format(
        "nanotron",
        "nanotron",
        ("iteration: ", "consumed_tokens: "),
        _ITERATION,
        (
            Example(
                "01/02/2026 03:04:05 [INFO|DP=0|PP=0|TP=0|node-a]: iteration: 120 / 1000 | consumed_tokens: 126M |"
                " time_per_iteration_ms: 1.26K | tokens_per_sec: 832K | tokens_per_sec_per_gpu: 13K | global_batch_size: 1.05M |"
                " lm_loss: 6.21 | lr: 0.0003 | model_tflops_per_gpu: 412 | eta: 0:18:29",
                120,
                1000,
                None,
                {"loss": 6.21, "step_time": 1.26, "tokens_per_second": 832000, "tflops": 412, "lr": 0.0003},
            ),
        ),
        True,
    ),
    Format(
        "iteration",
        "Megatron-LM's relatives",
        ("iteration",),
        _ITERATION,
        (Example("iteration 10/ 90 | lm loss: 2.5 | grad norm: 1.5 |", 10, 90, None, {"loss": 2.5, "grad_norm": 1.5}),),
        True,
    ),
    Format(
        "litgpt",
        "LitGPT",
        (" step ", "Epoch ", "iter "),
        rf"Epoch (?P<e>\d+) \| iter \d+ step (?P<s>{_COUNT}) \|",
        (
            Example(
                "Epoch 1 | iter 480 step 120 | loss train: 6.214, val: n/a | iter time: 251.33 ms (step) remaining time: 5:04:05",
                120,
                None,
                1,
                {"loss": 6.214, "step_time": 0.25133},
            ),
        ),
    ),
    Format(
        "composer",
        "Composer",
        ("=", "]:"),
        rf"^\[(?:epoch=(?P<e>\d+)\]\[)?(?:batch|ba|tok|ep|sp|token|sample)=(?P<s>{_COUNT})(?:/(?P<t>{_COUNT}))?\]",
        (
            Example("[batch=120/4800]:", 120, 4800),
            Example("[epoch=1][batch=3/40]:", 3, 40, 1),
        ),
        True,
        block=True,
    ),
    Format(
        "olmo",
        "OLMo",
        ("[step=",),
        rf"\[step=(?P<s>{_COUNT})/(?P<t>[\d,?]+)(?:,epoch=(?P<e>\d+))?",
        (
            Example("[step=120/739328,epoch=0]", 120, 739328, 0),
            Example("[step=1,120/739,328,epoch=1,eta=2 days, 3:04:05]", 1120, 739328, 1),
        ),
        True,
        block=True,
    ),
    Format(
        "torchtune-bar",
        "torchtune",
        ("|Loss:",),
        rf"(?P<e>\d+)\|(?P<s>{_COUNT})\|Loss: ",
        (
            Example(
                "1|120|Loss: 1.2934582233428955:   8%|8         | 120/1500 [02:10<24:51,  1.08s/it]",
                120,
                None,
                1,
                {"loss": 1.2934582, "step_time": 1.08},
            ),
        ),
        also=_RATES,
    ),
    Format(
        "torchtune",
        "torchtune",
        ("Step ", " | loss:"),
        rf"^Step (?P<s>{_COUNT}) \|",
        (
            Example(
                "Step 120 | loss:1.2934 lr:2e-05 tokens_per_second_per_gpu:812.14 peak_memory_active:41.2 grad_norm:0.91 ",
                120,
                values={"loss": 1.2934, "lr": 2e-5, "tokens_per_second": 812.14, "memory_peak": 41.2, "grad_norm": 0.91},
            ),
        ),
    ),
    Format(
        "mmengine",
        "OpenMMLab mmengine",
        ("(train)",),
        rf"(?:Epoch|Iter)\(train\){_SOME}(?:\[{_GAP}(?P<e>\d+)\])?\[{_GAP}(?P<s>{_COUNT})/(?P<t>{_COUNT})\]",
        (
            Example(
                "2026/01/02 03:04:05 - mmengine - INFO - Epoch(train)   [1][ 50/100]  lr: 1.0000e-02  eta: 0:10:00  time: 0.5012"
                "  data_time: 0.0101  memory: 12034  grad_norm: 1.2011  loss: 2.3102",
                50,
                100,
                1,
                {"loss": 2.3102, "step_time": 0.5012, "data_time": 0.0101, "grad_norm": 1.2011, "memory": 12034 / 1024},
            ),
        ),
        True,
        also=((rf"\btime: ({_NUM})", "step_time", 1.0), (rf"\bmemory: ({_NUM})", "memory", 1 / 1024)),
    ),
    Format(
        "imagenet",
        "PyTorch's ImageNet example",
        ("Epoch: [",),
        rf"Epoch: \[(?P<e>\d+)\]{_GAP}\[{_GAP}(?P<s>{_COUNT})/(?P<t>{_COUNT})\]",
        (
            Example(
                "Epoch: [3][ 410/5004]\tTime  0.512 ( 0.530)\tData  0.010 ( 0.022)\tLoss 4.1120e+00 (4.4031e+00)",
                410,
                5004,
                3,
                {"loss": 4.112, "step_time": 0.512, "data_time": 0.01},
            ),
        ),
        True,
        also=((rf"\bTime {{1,4}}({_NUM})", "step_time", 1.0), (rf"\bData {{1,4}}({_NUM})", "data_time", 1.0)),
    ),
    Format(
        "fairseq-epoch",
        "fairseq",
        ("train_inner",),
        rf"epoch (?P<e>\d+):{_SOME}(?P<s>{_COUNT}) / (?P<t>{_COUNT}) ",
        (Example("| INFO | train_inner | epoch 002:    120 / 5000 loss=9.812, ppl=898.9", 120, 5000, 2, {"loss": 9.812}),),
    ),
    Format(
        "maxtext",
        "MaxText",
        ("completed step",),
        rf"completed step: (?P<s>{_COUNT})",
        (
            Example(
                "completed step: 120, seconds: 3.412, TFLOP/s/device: 221.904, Tokens/s/device: 4801.332, total_weights: 2097152,"
                " loss: 6.214",
                120,
                values={"loss": 6.214, "step_time": 3.412, "tflops": 221.904, "tokens_per_second": 4801.332},
            ),
        ),
        True,
    ),
    Format(
        "torchtitan",
        "torchtitan",
        ("step: ", "memory: "),
        _STEP,
        (
            Example(
                "[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - step: 10  loss:  7.84212  grad_norm:  1.9321"
                "  memory: 41.07GiB(51.9%)  tps: 6,912  tflops: 355.10  mfu: 35.91%",
                10,
                values={"loss": 7.84212, "grad_norm": 1.9321, "memory": 41.07, "tokens_per_second": 6912, "tflops": 355.1},
            ),
        ),
    ),
    Format(
        "verl",
        "verl",
        ("step:", " - "),
        rf"\bstep:(?P<s>{_COUNT}) - ",
        (
            Example(
                "(TaskRunner pid=4242) step:12 - actor/pg_loss:0.0123 - actor/grad_norm:np.float64(0.8121) - critic/rewards/mean:0.41 -"
                " perf/throughput:1032.2 - timing_s/step:61.2",
                12,
                values={"loss": 0.0123, "grad_norm": 0.8121, "tokens_per_second": 1032.2, "step_time": 61.2},
            ),
        ),
    ),
    Format(
        "nanogpt",
        "nanoGPT",
        ("iter ", "ms, mfu"),
        rf"iter (?P<s>{_COUNT}): ",
        (Example("iter 1200: loss 3.2104, time 251.33ms, mfu 38.20%", 1200, values={"loss": 3.2104, "step_time": 0.25133}),),
        also=((rf"time ({_NUM})ms", "step_time", 0.001),),
    ),
    Format(
        "nanogpt-eval",
        "nanoGPT",
        ("train loss", "val loss"),
        rf"\bstep (?P<s>{_COUNT}): train loss",
        (Example("step 2000: train loss 3.1120, val loss 3.1284", 2000, values={"loss": 3.112, "val_loss": 3.1284}),),
    ),
    Format(
        "generic",
        "key=value and key: value lines of any trainer, logfmt included",
        ("tep",),
        _STEP,
        (
            Example(
                "step=1/40 loss=6.4353 grad_norm=0.6099 lr=1.00e-03 step_time=0.31",
                1,
                40,
                values={"loss": 6.4353, "grad_norm": 0.6099, "lr": 1e-3, "step_time": 0.31},
            ),
            Example("level=info msg=train step=7 loss=2.5 data_time=0.01", 7, values={"loss": 2.5, "data_time": 0.01}),
            Example("step 1 loss 6.4329", 1, values={"loss": 6.4329}),
            Example(
                "step   12/19560 | loss 9.123456 (+nanz)| norm 12.3456 (+nanz)| lr 1.20e-05 | 1234.56 ms | 58.1% bf16 MFU | 424,242 tok/s",
                12,
                19560,
                values={"loss": 9.123456, "grad_norm": 12.3456, "lr": 1.2e-5, "step_time": 1.23456, "tokens_per_second": 424242},
            ),
            Example(
                "step   12 | loss: 6.1234 | lr 1.0000e-04 | norm: 1.2345 | dt: 338.44ms | tok/sec: 1,549,000.78",
                12,
                values={"loss": 6.1234, "lr": 1e-4, "grad_norm": 1.2345, "step_time": 0.33844, "tokens_per_second": 1549000.78},
            ),
            Example(
                "step=5 loss=2.5 iter_time=310ms mem=14230MiB tokens_per_sec=1.2M",
                5,
                values={"loss": 2.5, "step_time": 0.31, "memory": 14230 / 1024, "tokens_per_second": 1.2e6},
            ),
        ),
        also=_UNNAMED,
    ),
    Format(
        "generic",
        "the same with iter",
        ("iter",),
        _ITER,
        (
            Example("iter: 12 loss: 2.5", 12, values={"loss": 2.5}),
            Example(
                "[01/02 03:04:05 d2.utils.events]:  iter: 19  total_loss: 2.3 data_time: 0.0100  max_mem: 5120M",
                19,
                values={"loss": 2.3, "data_time": 0.01, "memory_peak": 5},
            ),
        ),
        also=_UNNAMED,
    ),
    Format(
        "lightning",
        "Lightning",
        ("%|", "v_num="),
        _BAR,
        (
            Example(
                "Epoch 0:  12%|#2        | 12/100 [00:10<01:15,  1.17it/s, v_num=3, train_loss=2.310]",
                12,
                100,
                0,
                {"loss": 2.31, "steps_per_second": 1.17},
            ),
        ),
        True,
        _RATES,
    ),
    Format(
        "tqdm",
        "tqdm bars, those of diffusers and accelerate included",
        ("%|",),
        _BAR,
        (
            Example(
                "Steps:   1%|1         | 12/1000 [00:10<14:01,  1.17it/s, lr=1e-5, step_loss=0.123]",
                12,
                1000,
                values={"loss": 0.123, "lr": 1e-5, "steps_per_second": 1.17},
            ),
            Example("  8%|8         | 120/1500 [02:10<24:51,  1.08s/it, loss=1.29]", 120, 1500, values={"loss": 1.29, "step_time": 1.08}),
        ),
        True,
        _RATES,
    ),
    Format(
        "lightning-endless",
        "Lightning, of a loader whose length is unknown",
        ("/? [",),
        rf"{_ENDLESS}\|[^|]{{0,200}}\| (?P<s>{_COUNT})/\? \[",
        (
            Example(
                "Epoch 0: |          | 12/? [00:10<00:00,  1.17it/s, v_num=3, train_loss=2.310]",
                12,
                None,
                0,
                {"loss": 2.31, "steps_per_second": 1.17},
            ),
        ),
        True,
        _RATES,
    ),
    Format(
        "tqdm-endless",
        "tqdm, of a loader whose length is unknown",
        ("it [",),
        rf"{_ENDLESS}\b(?P<s>\d{{1,12}})it \[\d",
        (Example("Train: 12it [00:10,  1.17it/s, loss=2.5]", 12, values={"loss": 2.5, "steps_per_second": 1.17}),),
        True,
        _RATES,
    ),
    Format(
        "rich-bar",
        "bars of rich, as Lightning draws them",
        ("━", "it/s"),
        rf"(?:Epoch (?P<e>\d+)(?:/\d+)?)?[^━]{{0,80}}━[━╸╺ ]{{0,200}}\s{{0,12}}(?P<s>{_COUNT})/(?P<t>{_COUNT})\b",
        (
            Example(
                "Epoch 0/9  ━━━━━━━━╸━━━━━━━ 57/938 0:00:02 • 0:00:25 35.34it/s v_num: 0.000 train_loss: 0.512",
                57,
                938,
                0,
                {"loss": 0.512, "steps_per_second": 35.34},
            ),
        ),
        True,
        ((rf" ({_NUM})it/s", "steps_per_second", 1.0),),
    ),
)
