"""One rank is real, all others are emulated: an unmodified training script in any world."""
