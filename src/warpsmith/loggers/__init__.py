"""Sends the progress of a run to the trackers that teams look at: MLflow, Weights & Biases, TensorBoard."""
