"""What is remembered across restarts: one SQLite file with positions, events, incidents and what people said of them."""

from firstfault.store.database import CorruptError, Store, Transaction
from firstfault.store.folder import Beacon, read_beacon, state_dir
from firstfault.store.records import Ack, ChangeRecord, Feedback, Fix, IncidentFilter, IncidentRecord, Letter, Position

__all__ = [
    "Ack",
    "Beacon",
    "ChangeRecord",
    "CorruptError",
    "Feedback",
    "Fix",
    "IncidentFilter",
    "IncidentRecord",
    "Letter",
    "Position",
    "Store",
    "Transaction",
    "read_beacon",
    "state_dir",
]
