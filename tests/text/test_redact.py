"""Credentials are covered with their kind, length and a short hash; evidence that merely looks like one survives."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.text.redact import _redacted, redact

A = "AbCdEf0123456789"
SECRETS = [
    ("key AKIA" + "ABCDEFGHIJKLMNOP used", "AKIAABCDEFGHIJKLMNOP"),
    ("aws_secret_access_key = " + "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEYab", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEYab"),
    ("using AIza" + "B" * 35, "AIza" + "B" * 35),
    ("token ya29." + "c" * 40, "ya29." + "c" * 40),
    ("DefaultEndpointsProtocol=https;AccountKey=" + "d" * 86 + "==;", "d" * 86 + "=="),
    ("HF_TOKEN is hf_" + "e" * 34, "hf_" + "e" * 34),
    ("git clone with ghp_" + "f" * 36, "ghp_" + "f" * 36),
    ("github_pat_" + "g" * 40, "github_pat_" + "g" * 40),
    ("glpat-" + "h" * 20, "glpat-" + "h" * 20),
    ("wandb: login key 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567"),
    ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567"),
    ("xoxb-" + "123456789012-abcdefghijkl", "xoxb-123456789012-abcdefghijkl"),
    ("https://hooks.slack.com/services/T00000000/B00000000/" + "x" * 24, "T00000000/B00000000/" + "x" * 24),
    ("OPENAI sk-proj-" + A * 3, "sk-proj-" + A * 3),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ." + "s" * 43, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ." + "s" * 43),
    ("redis://user:hunter22@redis-1:6379/0", "hunter22"),
    ("pip install --index-url https://bob:pa55word@pypi.example/simple", "pa55word"),
    ("git+https://" + A * 2 + "@github.com/org/repo", A * 2),
    ("Authorization: Bearer " + A * 2, A * 2),
    ("'Authorization': 'Basic dXNlcjpwYXNzd29yZA=='", "dXNlcjpwYXNzd29yZA=="),
    ("password=correct-horse", "correct-horse"),
    ('{"db_password": "s3cr3t!"}', "s3cr3t!"),
    ("export MY_SECRET=topsecretvalue", "topsecretvalue"),
    ("api_key: '" + A + "'", A),
    ("auth_token=" + A, A),
    ("--token abcdef123456", "abcdef123456"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
]

LOOK_ALIKES = [
    "commit 76543210fedcba9876543210fedcba9876543210",
    "run id 8c6c3c16-495f-40e7-b27c-f948b9f73a43",
    "comm 0x55d0a9b8c7e0 rank 3 nranks 16 cudaDev 3 busId 4e000 commId 0x8f2b3c4d5e6f7081 - Init START",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout + 0x1d2 (0x733a88610af9 in /opt/lib/libtorch_cuda.so)",
    "GPU-34581e9f-117e-91e1-fddf-83dd33fcd09b",
    "Connection closed by peer [10.60.0.11]:1702",
    "https://pytorch.org/docs/stable/elastic/errors.html",
    "tcp://10.0.0.1:29500", "s3://bucket/path/key=1/part-0.parquet",
    "num_tokens=4096 tok/s=512 tokens: 8192 max_tokens=2048", "pad_token=<pad> eos_token: </s> bos_token=hello_world",
    "KeyError: 'input_ids'", "key: value", "Missing key(s) in state_dict: \"blocks.2.ln1.weight\"",
    "token: None", "use_auth_token=True", "password required", "secret=$MY_SECRET", "hf_hub_download failed", "task-sk-1 done",
    "TCPStore key: default_pg/0//cuda//0", "NCCL_DEBUG=INFO", "private_key=/etc/ssl/key.pem", "tokenizer=meta/llama",
    "monkey=banana-split-1", "Rank 3 has secretion",
]  # fmt: skip


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_are_covered(text, secret):
    """Every usual kind of credential disappears, is counted, and leaves its length and a hash."""
    covered, count = redact(text)
    assert secret not in covered
    assert count >= 1
    assert "characters, #" in covered


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_look_alikes_survive(text):
    """Hashes, ids, addresses, paths, switches and counts of tokens are evidence and stay."""
    assert redact(text) == (text, 0)


def test_equal_secrets_have_equal_hashes():
    """Two covered secrets can be compared without being known."""
    first, _ = redact("password=correct-horse")
    second, _ = redact("db.password: correct-horse")
    assert first.split("#")[1] == second.split("#")[1].rstrip()
    assert "14 characters" not in first
    assert "13 characters" in first


def test_covering_twice_changes_nothing():
    """What is covered stays covered as it is."""
    once, _ = redact("Authorization: Bearer " + A * 2 + " password=correct-horse")
    assert redact(once) == (once, 0)


@given(st.text(max_size=300))
def test_no_text_breaks_it(text):
    """Any text comes back, covered or not."""
    covered, count = redact(text)
    assert isinstance(covered, str)
    assert (count == 0) == (covered == text)


def test_hostile_texts_take_no_time():
    """Texts built to make a pattern work hard are read in moments."""
    begun = time.perf_counter()
    for text in ("password=" * 9000, "a_" * 40000 + "password=x1", "eyJ" * 20000, "aws" * 20000, "://" * 20000, "https://" + "a" * 90000):
        redact(text)
    assert time.perf_counter() - begun < 2.0


@pytest.mark.parametrize(
    "text", [text for text, secret in SECRETS if secret.startswith(("ghp_", "github_pat_", "glpat-", "nvapi-", "AKIA"))]
)
def test_a_secret_that_is_cut_off_at_the_end_of_a_line_is_covered(text: str) -> None:
    """A line may be read while it is written; half of a token is half of a secret."""
    secret = next(secret for other, secret in SECRETS if other == text)
    half = text[: text.index(secret) + 3 * len(secret) // 4]
    shown, count = redact(half)
    assert count == 1
    assert secret[: len(secret) // 2] not in shown


@given(
    st.lists(
        st.sampled_from([text for text, _ in SECRETS] + LOOK_ALIKES + [secret for _, secret in SECRETS])
        | st.text(alphabet="Aasgh_.:/-=01 \u212ae", max_size=30),
        max_size=3,
    ).map(" ".join),
    st.integers(0, 80),
)
def test_one_look_for_suspects_changes_nothing(text, cut):
    """What is passed over at the first look holds nothing that the patterns would find, wherever the text is cut off."""
    for one in (text, text[:cut], text.upper(), text.swapcase()):
        assert redact(one) == _redacted(one)
