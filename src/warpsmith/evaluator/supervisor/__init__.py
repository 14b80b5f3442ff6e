"""The supervisor's side: parents of workers, judges and their hosts, locks, cached verdicts. No torch, no device."""
