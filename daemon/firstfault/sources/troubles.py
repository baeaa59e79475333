"""Report what fails once per condition, and say when it may be tried again."""

from __future__ import annotations

from dataclasses import dataclass

from firstfault.sources.base import Observer
from firstfault.sources.tail import retry_delay

MAX_TROUBLES = 10_000  # paths remembered as failing; more are tried at every scan


@dataclass(slots=True)
class _Trouble:
    message: str
    failures: int
    retry_at: float


class Troubles:
    """Remember the paths that fail, each with its error and its next attempt."""

    def __init__(self, source: str, observer: Observer) -> None:
        self._source, self._observer = source, observer
        self._by_path: dict[str, _Trouble] = {}

    def failed(self, path: str, message: str, now: float) -> None:
        """Count a failure; tell it only if it is new."""
        trouble = self._by_path.get(path)
        if trouble is None or trouble.message != message:
            self._observer.source_error(self._source, path, message)
            trouble = _Trouble(message, 0, now)
            if len(self._by_path) < MAX_TROUBLES or path in self._by_path:
                self._by_path[path] = trouble
        trouble.failures += 1
        trouble.retry_at = now + retry_delay(trouble.failures)

    def works(self, path: str) -> None:
        """Tell that a path that failed does so no more."""
        if self._by_path.pop(path, None) is not None:
            self._observer.source_recovered(self._source, path)

    def waits(self, path: str, now: float) -> bool:
        """Tell whether a path failed and is not to be tried yet."""
        trouble = self._by_path.get(path)
        return trouble is not None and now < trouble.retry_at

    def drop(self, path: str) -> None:
        """Forget a path that is gone or no longer asked for: it fails no more."""
        self.works(path)

    def paths(self) -> list[str]:
        """Return the paths that fail."""
        return list(self._by_path)

    def messages(self) -> dict[str, str]:
        """Return the error of each failing path; safe to call from another thread."""
        return {path: trouble.message for path, trouble in self._by_path.copy().items()}


def describe(error: OSError) -> str:
    """Say what failed and what to do."""
    reason = error.strerror or str(error)
    advice = _ADVICE.get(type(error), "it is tried again with back-off")
    return f"{reason}: {advice}"


_ADVICE: dict[type[OSError], str] = {
    PermissionError: "give the daemon's user read access; it is tried again with back-off",
    FileNotFoundError: "it is read as soon as it appears",
}
