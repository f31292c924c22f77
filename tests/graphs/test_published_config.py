"""A `config.json` gives the sizes that papers print, or is refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.graphs.transformer.architecture import ARCHITECTURES
from paracosm.graphs.transformer.published_config import find_transformer, read_published_config

# The keys that sizes stand in, of the published files.
PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "published_configs.json").read_text()
)
LLAMA = PUBLISHED["llama-8b"]


def written(tmp_path: Path, config: Any) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_give_the_sizes_of_the_papers(name: str, tmp_path: Path) -> None:
    expected = ARCHITECTURES[name]
    if name == "bert-large":  # whose queries, keys and values are three products
        expected = replace(expected, fused_qkv=False)
    assert find_transformer(written(tmp_path, PUBLISHED[name]), expected.sequence) == expected


def test_a_folder_with_the_file_names_it_too(tmp_path: Path) -> None:
    written(tmp_path, LLAMA)
    assert find_transformer(str(tmp_path)) == ARCHITECTURES["llama-8b"]


def test_parameters_are_those_that_are_counted(tmp_path: Path) -> None:
    """Of Mistral Nemo, 12,247,782,400: 2 tables, and 40 layers of 272,640,000 with their norms."""
    config = {**LLAMA, "model_type": "mistral", "hidden_size": 5120, "num_hidden_layers": 40}
    config |= {"head_dim": 128, "vocab_size": 131072}
    attention = 5120 * 128 * (32 + 8 + 8) + 32 * 128 * 5120
    layer = attention + 3 * 5120 * 14336 + 2 * 5120
    expected = 2 * 131072 * 5120 + 40 * layer + 5120
    assert expected == 12_247_782_400
    assert find_transformer(written(tmp_path, config)).parameters == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba"}, 'model_type "mamba" is none of llama, mistral'),
        ({"model_type": None}, "model_type is not there"),
        ({"hidden_size": "4096"}, "hidden_size is '4096': .* a whole number"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false"),
        ({"max_position_embeddings": 131072}, "131,072 positions.*--shape 8192"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding_window.*--shape 4096"),
        ({"model_type": "olmoe"}, "num_experts is not there"),
        ({"num_attention_heads": 7}, "heads"),
    ],
)
def test_what_is_not_known_is_one_line(
    changes: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, LLAMA | changes)
    with pytest.raises(InputError, match=words):
        find_transformer(path)
    command = ["predict", "--model", path, "--hardware", "h100-sxm", "--workers", "2"]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("paracosm: ")


KEYS = sorted({key for config in PUBLISHED.values() for key in config})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10_000) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(PUBLISHED)), st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_file_is_a_transformer_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: dict[str, Any]
) -> None:
    path = written(tmp_path_factory.getbasetemp(), PUBLISHED[name] | changes)
    try:
        transformer = read_published_config(path, 512)
    except InputError:
        return
    assert transformer.parameters > 0


def test_a_strategy_is_searched_for_a_model_of_one_s_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, {**LLAMA, "num_hidden_layers": 4})
    command = ["predict", "--model", path, "--hardware", "h100-sxm", "--workers", "8"]
    assert main([*command, "--strategy", "auto", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["iteration_time"] > 0
