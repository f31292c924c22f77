"""The compiled simulation of workers and parameter servers: plain arrays in, plain arrays out."""
