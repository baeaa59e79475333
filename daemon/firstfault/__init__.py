"""firstfault: name the rank that failed first."""

__version__ = "0.1.0"
