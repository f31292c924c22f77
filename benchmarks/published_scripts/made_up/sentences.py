"""Pairs of sentences, a tokenizer, a small BERT and a metric, where a script would fetch them."""

import datasets
import evaluate
import torch
import transformers

COUNT = 2048  # pairs: two batches of 16 for each of 64 ranks


def pairs(*names, **options):  # type: ignore[no-untyped-def]
    rows = {"sentence1": ["a b c"] * COUNT, "sentence2": ["a c b"] * COUNT}
    rows |= {"label": [0, 1] * (COUNT // 2), "idx": list(range(COUNT))}
    part = datasets.Dataset.from_dict(rows)
    return datasets.DatasetDict(train=part, validation=part)


class Words:
    def __call__(self, first, second=None, **options):  # type: ignore[no-untyped-def]
        return {"input_ids": [[1, 2, 3, 4]] * len(first), "attention_mask": [[1] * 4] * len(first)}

    def pad(self, rows, **options):  # type: ignore[no-untyped-def]
        columns = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
        return transformers.BatchEncoding(columns)


class Metric:
    def add_batch(self, **options):  # type: ignore[no-untyped-def]
        """Keep nothing."""

    def compute(self):  # type: ignore[no-untyped-def]
        return {}


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL = transformers.BertConfig(vocab_size=64, intermediate_size=64, **SIZES)
transformers.AutoTokenizer.from_pretrained = lambda *names, **options: Words()
transformers.AutoModelForSequenceClassification.from_pretrained = lambda *names, **options: (
    transformers.BertForSequenceClassification(SMALL)
)
datasets.load_dataset = pairs
evaluate.load = lambda *names: Metric()
