"""The event log of a run: one append-only SQLite file. `search.run_state` computes the state of a run from it."""
