"""Jobs with parameter servers in virtual time, compiled."""
