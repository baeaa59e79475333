"""Simulated jobs whose step lines, and nothing else, tell how they are: healthy months, stalls, stragglers, bad numbers."""
