"""A user's models without a loss beside them: sequences, and models that compute their own."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import paracosm
from paracosm.errors import InputError
from paracosm.models.build import class_axis, sequence_cross_entropy

WORDS = 5
_GENERATOR = torch.Generator().manual_seed(0)
TOKENS = (
    torch.randint(0, WORDS, (40, 1), generator=_GENERATOR) + torch.arange(7)
) % WORDS  # each word is followed by the next one


@dataclass
class Output:
    """What Hugging Face's models return."""

    loss: torch.Tensor | None
    logits: torch.Tensor


class Tagger(nn.Module):
    """An LSTM with scores (batch, time, words) of the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, WORDS)

    def forward(self, tokens):
        return self.out(self.lstm(self.embed(tokens))[0])


class WithLabels(Tagger):
    """The same, which shifts its labels and computes its loss itself."""

    def forward(self, input_ids, labels=None):
        logits = super().forward(input_ids)
        if labels is None:
            return Output(None, logits)
        return Output(cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), logits)


def tagger():
    return Tagger()


def with_labels():
    return WithLabels()


def tokens():
    return TOKENS[:30, :-1], TOKENS[:30, 1:], TOKENS[30:, :-1], TOKENS[30:, 1:]


def labelled():
    return TOKENS[:30], TOKENS[:30], TOKENS[30:], TOKENS[30:]


def _train(model, data, **options):
    settings = {"workers": 2, "updates": 120, "optimizer": "adam", "lr": 0.05, **options}
    return paracosm.train(model=f"{__file__}:{model}", data=f"{__file__}:{data}", **settings)


def test_a_recurrent_network_learns_a_label_for_each_step_of_a_sequence():
    summary = _train("tagger", "tokens").summary
    assert summary.final_accuracy == 1.0
    assert summary.final_loss < 0.2


def test_a_model_that_takes_labels_is_trained_by_its_own_loss():
    summary = _train("with_labels", "labelled").summary
    assert summary.final_loss < 0.2
    assert summary.final_accuracy is None  # it shifts labels itself


def test_scores_of_sequences_are_along_the_last_axis_or_as_pytorch_has_them():
    scores, targets = torch.randn(3, 7, WORDS), torch.randint(0, WORDS, (3, 7))
    expected = sum(
        cross_entropy(scores[i, t][None], targets[i, t][None]) for i in range(3) for t in range(7)
    )
    for outputs, axis in ((scores, -1), (scores.transpose(1, 2), 1)):
        assert class_axis(outputs, targets) == axis
        torch.testing.assert_close(sequence_cross_entropy(outputs, targets), expected / 21)
    with pytest.raises(InputError, match="along which axis"):
        sequence_cross_entropy(torch.randn(3, 7, 7), targets)


def test_what_a_factory_should_return_is_said_where_outputs_fit_no_default_loss():
    with pytest.raises(InputError, match=r"\(6, 5\) for each example"):
        _train("tagger", "last")
    with pytest.raises(InputError, match=r"returns Output, not a tensor: return"):
        _train("without_loss", "last")


def last():
    return TOKENS[:30, :-1], TOKENS[:30, -1], TOKENS[30:, :-1], TOKENS[30:, -1]


class WithoutLoss(Tagger):
    def forward(self, tokens):
        return Output(None, super().forward(tokens))


def without_loss():
    return WithoutLoss()
