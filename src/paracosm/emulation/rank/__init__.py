"""What runs inside the process of a real rank."""
