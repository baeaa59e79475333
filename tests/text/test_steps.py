"""Progress lines give their step and numbers under common names; other lines give nothing, quickly."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.text.steps import read_step

MEGATRON = (
    "iteration      120/    5000 | consumed samples:        30720 | elapsed time per iteration (ms): 834.2 | learning rate: 1.5E-04 |"
    " lm loss: 2.9134E+00 | loss scale: 1.0 | grad norm: 0.412 | number of skipped iterations:   0 |"
)
LINES = [
    (MEGATRON, 120, 5000, {"loss": 2.9134, "step_time": 0.8342, "lr": 1.5e-4, "grad_norm": 0.412, "loss_scale": 1.0, "skipped": 0}),
    (" validation loss at iteration 1000 | lm loss value: 2.801E+00 | lm loss PPL: 1.6E+01 | ", 1000, None, {"val_loss": 2.801}),
    ("samples/sec: 812.1 | iteration      100/  143000 | elapsed time per iteration (ms): 1260.9 | lm_loss: 4.1E+00 |",
     100, 143000, {"loss": 4.1}),
    ("step=10, skipped=2, lr=[1e-05], mom=[(0.9, 0.999)]", 10, None, {"skipped": 2, "lr": 1e-5}),
    ("epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=11.94, CurrSamplesPerSec=12.01, MemAllocated=14.2GB", 10, None, {}),
    ("steps: 120 loss: 3.1402 iter time (s): 2.481 samples/sec: 103.1", 120, None, {"loss": 3.1402, "step_time": 2.481}),
    ("Training epoch 0, iteration 119/999 | lr: 2.9e-05 | global_step: 119 | reduced_train_loss: 6.914 | train_step_timing in s: 4.313",
     119, None, {"loss": 6.914, "step_time": 4.313}),
    ("step: 10  loss:  7.84212  grad_norm:  1.9321  memory: 41.07GiB(51.9%)  tps: 6,912  tflops: 355.10  mfu: 35.91%", 10, None,
     {"loss": 7.84212, "grad_norm": 1.9321, "tokens_per_second": 6912}),
    ("iter 1200: loss 3.2104, time 251.33ms, mfu 38.20%", 1200, None, {"loss": 3.2104}),
    ("step 2000: train loss 3.1120, val loss 3.1284", 2000, None, {"loss": 3.112, "val_loss": 3.1284}),
    ("[batch=120/4800]:", 120, 4800, {}),
    ("[step=120/739328,epoch=0]", 120, 739328, {}),
    ("epoch 001:    120 / 5000 loss=9.812, num_updates=120, lr=1.2e-05, gnorm=2.301, loss_scale=128", 120, None,
     {"loss": 9.812, "grad_norm": 2.301, "loss_scale": 128}),
    ('{"epoch": 1, "loss": "9.812", "num_updates": "120", "gnorm": "2.301"}', 120, None, {"loss": 9.812, "grad_norm": 2.301}),
    ("completed step: 120, seconds: 3.412, TFLOP/s/device: 221.904, loss: 6.214", 120, None, {"loss": 6.214, "step_time": 3.412}),
    ("1|120|Loss: 1.29345:   8%|8         | 120/1500 [02:10<24:51,  1.08s/it]", 120, None, {"loss": 1.29345}),
    ("Step 120 | loss:1.2934 lr:2e-05 grad_norm:0.91 ", 120, None, {"loss": 1.2934, "lr": 2e-5, "grad_norm": 0.91}),
    ("Epoch 1 | iter 480 step 120 | loss train: 6.214, val: n/a | iter time: 251.33 ms (step)",
     120, None, {"loss": 6.214, "step_time": 0.25133}),
    ("iteration: 120 / 1000 | consumed_tokens: 126M | time_per_iteration_ms: 1.26K | lm_loss: 6.21 | lr: 0.0003 |", 120, 1000,
     {"loss": 6.21, "step_time": 1.26}),
    ("Epoch(train)   [1][ 50/100]  lr: 1.0000e-02  eta: 0:10:00  time: 0.5012  data_time: 0.0101  loss: 2.3102", 50, 100,
     {"loss": 2.3102, "data_time": 0.0101}),
    ("step:12 - actor/pg_loss:0.0123 - actor/grad_norm:np.float64(0.8121) - timing_s/step:61.2",
     12, None, {"loss": 0.0123, "grad_norm": 0.8121}),
    ("Epoch 0:  12%|#2        | 12/100 [00:10<01:15,  1.17it/s, v_num=3, train_loss=2.310]", 12, 100, {"loss": 2.31}),
    ("Epoch: [3][410/5004]  Time 0.512 (0.530)  Loss 4.1120 (4.4031)", 410, 5004, {"loss": 4.112}),
    ("step 20/40 | loss nan | grad_norm nan | lr 1.76e-04 | 427 tok/s | 300 ms", 20, 40, {"loss": math.nan, "grad_norm": math.nan}),
    ("iteration 10/ 90 | lm loss: NAN | grad norm: INF |", 10, 90, {"loss": math.nan, "grad_norm": math.inf}),
    ('{"step": 3, "loss": NaN, "lr": 1e-5}', 3, None, {"loss": math.nan, "lr": 1e-5}),
    ("step 1 loss 6.4329", 1, None, {"loss": 6.4329}),
    ("step=5 loss=2.5 step_time=310ms data_time=12 ms fwd_time=900us", 5, None,
     {"step_time": 0.31, "data_time": 0.012, "forward_time": 9e-4}),
    ("step=5 loss=2.5 step_time=0.31s memory=14.2GB", 5, None, {"step_time": 0.31, "memory": 14.2}),
    ("step=5 loss=2.5 memory=14336MB tokens_per_sec=1.2M", 5, None, {"memory": 14.0, "tokens_per_second": 1.2e6}),
    ("step 5 | loss 2.5 | 12,345 tokens/s | 310 ms/step | 71.2 GB", 5, None, {"tokens_per_second": 12345, "step_time": 0.31}),
    ("step: 10  loss:                  nan  grad_norm:     inf  memory: 33.10GiB(41.8%)", 10, None,
     {"loss": math.nan, "grad_norm": math.inf, "memory": 33.1}),
    ('{"step": 3, "loss": "NaN", "memory_mb": 2048, "tokens_per_second": "12,345"}', 3, None,
     {"loss": math.nan, "memory": 2.0, "tokens_per_second": 12345}),
    (" 12%|#2        | 60/500 [01:02<07:31, 61.03s/it, loss=nan]", 60, 500, {"step_time": 61.03, "loss": math.nan}),
    ("step=1/40 loss=6.4353 grad_norm=0.6099 lr=1.00e-03", 1, 40, {"loss": 6.4353, "grad_norm": 0.6099, "lr": 1e-3}),
    ("train 21%|█████▏ | 161543/770000 [29:39:25<397:31:10, 2.35s/ba, loss/train/t", 161543, 770000, {}),
    ("{'loss': 1.8342, 'grad_norm': 0.9134, 'learning_rate': 1.9e-05, 'epoch': 0.12}", None, None, {"loss": 1.8342, "lr": 1.9e-5}),
    ("{'loss': '1.834', 'grad_norm': '0.9134', 'learning_rate': '1.9e-05', 'epoch': '0.12'}",
     None, None, {"loss": 1.834, "grad_norm": 0.9134}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "step", "total", "values"), LINES)
def test_formats(line, step, total, values):
    """Each trainer's line gives the step, how many there are, and the named numbers."""
    found = read_step(line)
    assert found is not None
    assert (found.step, found.total) == (step, total)
    for name, value in values.items():
        assert found.values[name] == pytest.approx(value, nan_ok=True), name


@pytest.mark.parametrize(
    "line",
    [
        "training starts at step 0, 1040 samples", "loading checkpoint from /x at iteration 10", "training done at step 40, exiting",
        "successfully saved checkpoint at iteration 6 to /m", "Unexpected result nan on rank 3 at iteration #3", "    loss.backward()",
        'File "/a/step.py", line 725, in training_step', "RuntimeError: stepping", "", "{", "{'a': 1}", '{"message": "step back"}',
        "nan_to_num was applied", "Epoch 3 done",
    ],
)  # fmt: skip
def test_other_lines(line):
    """Text about steps is no progress."""
    assert read_step(line) is None


def test_bars_of_preparation_are_no_steps():
    """A bar that loads or maps moves on, but not in steps of the training."""
    found = read_step("Loading checkpoint shards:  47%|████▋     | 7/15 [03:24<03:59, 29.97s/it]")
    assert found is not None
    assert (found.format, found.step, found.values) == ("progress", None, {"progress": 7.0})


def test_grad_norm_is_not_read_as_loss_or_nan():
    """Names are matched whole: nothing is read out of the middle of another word."""
    found = read_step("step 5 | loss 1.5 | noloss 7 | xlr 3")
    assert found is not None
    assert found.values == {"loss": 1.5}


PIECES = ["step ", "loss", ": ", "nan", "1,", "%|", "| ", "/", "{", "}", '"', "[", "9" * 30]


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_no_text_breaks_it(text):
    """Any text is read or refused."""
    found = read_step(text)
    assert found is None or found.format


def test_hostile_lines_take_no_time():
    """Lines built to make a pattern work hard are read in moments."""
    begun = time.perf_counter()
    for text in ("1" * 20000 + "%|", "step " * 4000, "a" * 20000 + " 5%|", "loss " * 4000, "step=" + "1," * 9000, " " * 20000 + "loss"):
        read_step(text)
    assert time.perf_counter() - begun < 1.0
