"""Messages between the processes of the evaluator, and the layout of the buffers they share."""
