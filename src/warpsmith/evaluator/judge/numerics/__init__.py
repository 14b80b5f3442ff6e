"""Whether results are right: the fp64 reference, error limits, comparison, and the calibration of tasks."""
