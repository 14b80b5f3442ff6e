"""The supervisor: fork servers, the connection to judges, locks, cached evaluations. No torch, no device state."""
