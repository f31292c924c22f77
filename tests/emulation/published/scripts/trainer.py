"""A Trainer of Hugging Face's with a tiny model."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        words = torch.arange(16) % 50
        return {"input_ids": words, "labels": words}


with tempfile.TemporaryDirectory() as folder:
    asked = TrainingArguments(
        folder,
        max_steps=3,
        per_device_train_batch_size=2,
        report_to=[],
        save_strategy="no",
        bf16=True,
    )
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    )
    Trainer(model=model, args=asked, train_dataset=Words()).train()
    print(f"device {asked.device}, {asked.world_size} ranks")
