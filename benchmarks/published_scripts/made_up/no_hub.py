"""A hub of models that lists none."""

import torch

torch.hub.list = lambda *names, **options: []
