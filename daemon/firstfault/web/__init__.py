"""The HTTP server: metrics, health, API and console."""
