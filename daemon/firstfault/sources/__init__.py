"""Sources hand over bytes of streams with their positions: followed files, saved logs."""
