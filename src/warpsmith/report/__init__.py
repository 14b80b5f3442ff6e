"""What people look at after a run: pictures and tables, from plain data. Decides and measures nothing."""
