"""Joins prediction and training: how long, and for how much, until a model has learnt."""
