"""What all sections of the configuration share."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Refuse what it does not know, and never change once loaded."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
