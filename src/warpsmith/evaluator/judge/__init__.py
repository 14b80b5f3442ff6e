"""The trusted process that owns buffers, references and clocks, and decides about each candidate."""
