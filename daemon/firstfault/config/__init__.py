"""The configuration: one YAML file, an environment overlay and a few flags, checked as a whole."""

from firstfault.config.load import Loaded, load
from firstfault.config.models import Config
from firstfault.config.secrets import read_secret
from firstfault.config.show import json_schema, reference, show

__all__ = ["Config", "Loaded", "json_schema", "load", "read_secret", "reference", "show"]
