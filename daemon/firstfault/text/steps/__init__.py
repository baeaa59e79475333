"""Read the step and the numbers out of the lines by which trainers report progress."""

from firstfault.text.steps.formats import FORMATS, Example, Format
from firstfault.text.steps.names import MAX_LENGTH, MAX_VALUES, NAMES, number_of, read_values
from firstfault.text.steps.read import BARS, BLOCKS, EVALUATIONS, StepLine, may_hold_step, read_fields, read_member
from firstfault.text.steps.recall import read_step

__all__ = [
    "BARS",
    "BLOCKS",
    "EVALUATIONS",
    "FORMATS",
    "MAX_LENGTH",
    "MAX_VALUES",
    "NAMES",
    "Example",
    "Format",
    "StepLine",
    "may_hold_step",
    "number_of",
    "read_fields",
    "read_member",
    "read_step",
    "read_values",
]
