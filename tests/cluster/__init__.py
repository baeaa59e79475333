"""The chart before a real API server."""
