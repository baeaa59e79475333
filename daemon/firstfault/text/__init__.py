"""Bytes and lines: what stands in a log, before any rule looks at it."""
