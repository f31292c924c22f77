"""A Trainer of Lightning's, on all GPUs that there are."""

import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="gpu",
    devices="auto",
    strategy="ddp",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4))
print(f"{trainer.world_size} ranks")
