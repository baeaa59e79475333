"""Turn bytes into observations: scan whole batches, read only the lines around hits."""
