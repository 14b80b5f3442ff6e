"""The judge: one trusted process per task and device, from the buffers it owns to the time it measures."""
