"""Small models lie beside this file; gradients are computed on one thread, as a job does it."""

import torch

torch.set_num_threads(1)
