"""Tokens for litgpt, as `--data Tokens` asks for them."""

import litgpt.data
import torch


class Tokens(litgpt.data.DataModule):  # type: ignore[misc]  # not installed here
    def connect(self, tokenizer=None, batch_size=1, max_seq_length=None):  # type: ignore[no-untyped-def]
        self.batch_size, self.length = batch_size, max_seq_length + 1

    def train_dataloader(self):  # type: ignore[no-untyped-def]
        rows = torch.randint(0, 64, (4096, self.length))
        return torch.utils.data.DataLoader(rows, self.batch_size)

    val_dataloader = train_dataloader


Tokens.__module__ = "litgpt.data"
litgpt.data.Tokens = Tokens
