"""How a stage runs: torch's set-up, random streams, versions, progress."""
