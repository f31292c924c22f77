"""Time and cost to a target: prediction and training combined."""
