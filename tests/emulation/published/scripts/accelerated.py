"""A loop with Hugging Face's accelerate."""

import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="bf16")
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x in loader:
    loss = model(x).mean()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
accelerator.wait_for_everyone()
gathered = accelerator.gather(loss.detach())
print(f"device {accelerator.device}, {len(gathered)} losses")
