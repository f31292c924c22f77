"""Jobs on a cluster: from a timed replica to iteration time, parts of every rank and scaling."""
