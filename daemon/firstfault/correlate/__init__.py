"""Turn observations into incidents: who failed first, who only followed, or which fact is missing."""
