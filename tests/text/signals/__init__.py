"""Tests of the signal readers."""
