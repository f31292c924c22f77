"""Throughput of jobs with parameter servers, from the profile of one worker."""
