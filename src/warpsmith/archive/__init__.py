"""The event log of a run: one SQLite file, append-only. What a run knows is a fold over it (`run.ledger`)."""
