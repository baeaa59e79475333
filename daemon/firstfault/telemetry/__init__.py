"""What the daemon says of itself: one function a happening, which writes the structured event and moves the counter."""

from firstfault.telemetry.logs import configure_logging
from firstfault.telemetry.telemetry import Telemetry

__all__ = ["Telemetry", "configure_logging"]
