"""Pages that people and programs read: terminal, report, html; plain functions on a diagnosis."""
