"""What training computes: gradients, local steps, stores, on the engine or over a schedule."""
