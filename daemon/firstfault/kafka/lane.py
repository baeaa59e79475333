"""Put one stream together from records, and read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from firstfault.detect.detector import Detector
from firstfault.detect.scanner import AnyScanner
from firstfault.kafka.places import ENVELOPE_PRECISION, Places
from firstfault.kafka.records import ConsumerRecord
from firstfault.model import FAULT_ROLES, Event, Findings, JobKey, Observation, Progress, Stream
from firstfault.rules.catalogue import RuleSet
from firstfault.store.codec import from_plain, to_plain

ENOUGH_BYTES = 32 * 1024  # that wait before they are read, where the scan saw nothing in them
MAX_PIECES = 1 << 20  # bytes of one line that a runtime cut
_VERSION = 1


class Lane:
    """The lines of one speaker or key in one partition, in their order.

    Records wait until a scan over all lanes saw something in them, or there are many. Cutting a stream into other batches gives the same
    observations, so that this changes nothing but the cost.
    """

    __slots__ = (
        *(
            "cut_bytes",
            "detector",
            "fault_at",
            "fresh",
            "heard_at",
            "marks",
            "moved",
            "name",
            "next",
            "places",
            "scanned",
            "size",
        ),
        *("quieted", "size", "stamps", "stream", "summed_at", "texts", "unsaved", "_pieces"),
    )

    def __init__(self, name: str, stream: Stream, rules: RuleSet, scanner: AnyScanner) -> None:
        self.name, self.stream = name, stream
        self.detector = Detector(stream, rules, scanner)
        self.places = Places()
        self.detector.date_by(self.places.record)
        self.texts: list[bytes] = []  # that wait
        self.marks: list[int] = []  # their places
        self.stamps: list[Any] = []  # when they were written, as the envelope has it
        self.scanned = 0  # of the waiting ones, how many were scanned
        self.size = 0  # bytes that wait
        self.fresh = True  # nothing came in this round
        self.next = 0  # offset behind the last record taken
        self.moved = self.unsaved = False
        self.quieted = True  # what is open was told of
        self.heard_at = self.summed_at = self.fault_at = float("-inf")
        self.cut_bytes = 0
        self._pieces: dict[str, tuple[list[bytes], int, Any]] = {}

    @property
    def job(self) -> JobKey | None:
        return self.detector.job

    @property
    def hot(self) -> bool:
        """Tell whether the next line matters whatever it is."""
        return self.detector.unfinished

    @property
    def cut(self) -> bool:
        """Tell whether a line's rest is to come."""
        return bool(self._pieces)

    def timed(self) -> None:
        """Know that the collector says when it read each line."""
        self.places.precision = ENVELOPE_PRECISION

    def piece(self, channel: str, text: bytes, mark: int, stamp: Any, more: bool) -> bool:
        """Take a piece of a line that a runtime cut; the line waits from its last piece on. False where it is no piece."""
        known = self._pieces.get(channel)
        if known is None and not more:
            return False
        texts, first, at = known or ([], mark, stamp)
        if sum(map(len, texts)) + len(text) <= MAX_PIECES:
            texts.append(text)
        else:
            self.cut_bytes += len(text)
        if more:
            self._pieces[channel] = (texts, first, at)
            return True
        self._pieces.pop(channel, None)
        self.texts.append(b"".join(texts))
        self.marks.append(first)
        self.stamps.append(at)
        return True

    def read(self) -> list[Observation]:
        """Read what waits."""
        if not self.texts:
            return []
        data = b"\n".join([*self.texts, b""])
        base = self.detector.end
        sizes = np.fromiter(map(len, self.texts), np.int64, len(self.texts))
        starts = np.cumsum(sizes + 1) - sizes - 1 + base
        self.places.add(starts.tobytes(), self.marks, self.stamps)
        self.texts, self.marks, self.stamps, self.scanned, self.size = [], [], [], 0, 0
        return self._fed(data, base)

    def read_lines(self, data: bytes, records: Sequence[ConsumerRecord]) -> list[Observation]:
        """Read records of one whole line each, of which `data` holds the lines with their ends; nothing may wait before them."""
        base = self.detector.end
        self.places.add_lines(base, data, records)
        return self._fed(data, base)

    def _fed(self, data: bytes, base: int) -> list[Observation]:
        self.moved = self.unsaved = True
        found = self._placed(self.detector.feed(data, base))
        self.places.forget(self.detector.kept_from, self.detector.retold)  # not before: what was found may lie further back
        return found

    def quiet(self) -> Findings:
        """Say what an open statement shows so far, since nothing followed it for a while."""
        if not self.detector.unfinished:
            return Findings()
        return Findings(tuple(self._placed(self.detector.flush_partial())), partial=self.places.place(self.detector.end - 1))

    def progress(self, whole: bool = False) -> tuple[Progress, ...]:
        """Say what each speaker was last seen doing."""
        self.moved = False
        return tuple(self.places.words(one) for one in self.detector.progress(whole))

    def close(self) -> list[Observation]:
        """Read what is open: nothing more will come."""
        for channel, (_, mark, stamp) in list(self._pieces.items()):
            self.piece(channel, b"", mark, stamp, False)
        return [*self.read(), *self._placed(self.detector.close())]

    def _placed(self, found: list[Observation]) -> list[Observation]:
        if any(isinstance(one, Event) and one.role in FAULT_ROLES for one in found):
            self.fault_at = self.heard_at
        return [self.places.placed(one) for one in found]

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON values; read what waits first."""
        return {
            "version": _VERSION,
            "name": self.name,
            "stream": to_plain(self.stream),
            "next": self.next,
            "detector": self.detector.snapshot(),
            "places": self.places.snapshot(),
            "pieces": [
                [channel, [text.decode("latin-1") for text in texts], mark, at] for channel, (texts, mark, at) in self._pieces.items()
            ],
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any], rules: RuleSet, scanner: AnyScanner) -> Lane:
        """Return a lane that goes on from a snapshot; ValueError or KeyError where it cannot be read."""
        if saved["version"] != _VERSION:
            raise ValueError(f"a reader's state of version {saved['version']!r} cannot be read; this is version {_VERSION}")
        lane = cls(saved["name"], from_plain(Stream, saved["stream"]), rules, scanner)
        lane.detector.restore(saved["detector"])
        lane.places.restore(saved["places"])
        lane.detector.date_by(lane.places.record)
        lane.next = saved["next"]
        lane.moved, lane.quieted = True, False
        lane._pieces = {channel: ([text.encode("latin-1") for text in texts], mark, at) for channel, texts, mark, at in saved["pieces"]}
        return lane
