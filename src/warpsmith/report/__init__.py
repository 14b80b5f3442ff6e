"""Reports of runs and benches: pages, pictures and tables."""
