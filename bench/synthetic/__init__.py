"""Failures of large NCCL jobs, generated with the truth known by construction."""
