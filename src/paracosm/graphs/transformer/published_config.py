"""The sizes of a transformer from the `config.json` that Hugging Face publishes beside its weights.

Kinds that differ from `Transformer` in nothing but norms of queries and keys, or biases of queries,
keys and values, are read; those are left out, some 0.01 % of the parameters. All others are
refused by name. The names of keys are those of `transformers`, `models/*/configuration_*.py`.
"""

from collections.abc import Mapping
from os.path import isdir, isfile, join  # which no name makes fail
from pathlib import Path
from typing import Any

from paracosm.data_files import read_json
from paracosm.errors import InputError
from paracosm.graphs.transformer.architecture import ARCHITECTURES, Transformer, architecture

NAME = "config.json"
LONGEST = 8192  # positions that are taken for the tokens of an example without being asked

_DECODER = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "vocabulary": "vocab_size",
}
_GPT2 = {
    "layers": "n_layer",
    "width": "n_embd",
    "heads": "n_head",
    "vocabulary": "vocab_size",
}
_LLAMA: Mapping[str, Any] = {
    "gated": True,
    "rotary": True,
    "rms": True,
    "bias": False,
    "recipe": "compiled",
}
_MIXTURES: Mapping[str, Mapping[str, str]] = {
    "mixtral": {"experts": "num_local_experts"},
    "olmoe": {"experts": "num_experts"},
    "qwen2_moe": {"experts": "num_experts", "inner": "moe_intermediate_size"},
    "qwen3_moe": {"experts": "num_experts", "inner": "moe_intermediate_size"},
    "deepseek_v2": {"experts": "n_routed_experts", "inner": "moe_intermediate_size"},
    "deepseek_v3": {"experts": "n_routed_experts", "inner": "moe_intermediate_size"},
}
_DENSE = ("llama", "mistral", "qwen2", "qwen3", "phi3")
_OLDER: Mapping[str, tuple[Mapping[str, str], Mapping[str, Any]]] = {
    "gpt2": (_GPT2, {"tied": True}),
    "opt": ({**_DECODER, "inner": "ffn_dim"}, {"tied": True, "fused_qkv": False}),
    "gpt_neox": (_DECODER, {"tied": False, "rotary": True}),
    "bert": (_DECODER, {"tied": True, "causal": False, "scored": 0.15, "fused_qkv": False}),
}
KINDS = (*_DENSE, *_MIXTURES, *_OLDER)


def is_transformer(name: str) -> bool:
    """Return whether it names a transformer by its sizes: one of `ARCHITECTURES`, a file of JSON,
    or a folder that has a `config.json`."""
    return name in ARCHITECTURES or name.endswith(".json") or isfile(join(name, NAME))


def find_transformer(name: str, sequence: int | None = None) -> Transformer:
    """Return the transformer of such a name, with examples of so many tokens.

    Raises:
        InputError: as `architecture` and `read_published_config`.
    """
    if name in ARCHITECTURES or not is_transformer(name):
        return architecture(name, sequence)
    return read_published_config(name, sequence)


def read_published_config(name: str, sequence: int | None = None) -> Transformer:
    """Return the model of a `config.json`, or of the folder that has one, on so many tokens.

    Without `sequence` an example has as many tokens as the model has positions.

    Raises:
        InputError: a file that cannot be read, or lacks a size; a model of a kind that is not
            among `KINDS`, or parts of which no graph is written; a number of tokens that is not
            given where the file has more than `LONGEST` positions, or beyond its table of
            positions or its sliding window.
    """
    path = Path(name, NAME) if isdir(name) else Path(name)
    config = _Config(path, read_json(path, "configuration of a model"))
    kind = config.of("model_type", str)
    if kind not in KINDS:
        raise InputError(
            f'{path}: model_type "{kind}" is none of {", ".join(KINDS)}; paracosm emulate '
            "--hardware runs a script with any model"
        )
    if kind in _OLDER:
        keys, fixed = _OLDER[kind]
        sizes = {**fixed, "recipe": "compiled"}
    else:
        keys, sizes = {**_DECODER, **_MIXTURES.get(kind, {})}, dict(_LLAMA)
        sizes |= {"fused_qkv": kind == "phi3", "tied": config.flag("tie_word_embeddings", False)}
        sizes |= _attention(config, kind)
    sizes |= {field: config.of(key, int) for field, key in keys.items()}
    if kind == "gpt2":
        sizes["inner"] = config.of("n_inner", int, 0)
    if kind == "opt" and config.of("word_embed_proj_dim", int, sizes["width"]) != sizes["width"]:
        raise InputError(f"{path}: embeddings of another width (word_embed_proj_dim) are not known")
    if kind in _MIXTURES:
        sizes |= _experts(config, kind)
    return Transformer(**sizes, sequence=_sequence(config, kind, sequence))


class _Config:
    """The content of a file, with messages that name it."""

    def __init__(self, path: Path, content: Any) -> None:
        if not isinstance(content, dict):
            raise InputError(f"{path}: a list or a value, and no configuration of a model")
        self.path = path
        self.content = content

    def of(self, key: str, kind: type, otherwise: Any = None) -> Any:
        value = self.content.get(key)
        if value is None and otherwise is not None:
            return otherwise
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            wanted = {int: "a whole number", str: "a name"}[kind]
            shown = "is not there" if value is None else f"is {value!r:.40}"
            raise InputError(f"{self.path}: {key} {shown}: the {NAME} of a model has {wanted}")
        return value

    def flag(self, key: str, otherwise: bool) -> bool:
        value = self.content.get(key, otherwise)
        if not isinstance(value, bool):
            raise InputError(f"{self.path}: {key} must be true or false, not {value!r:.40}")
        return value


def _attention(config: _Config, kind: str) -> dict[str, int]:
    heads, width = config.of("num_attention_heads", int), config.of("hidden_size", int)
    if kind not in ("deepseek_v2", "deepseek_v3"):
        head = config.of("head_dim", int, 0)
        return {
            "kv_heads": config.of("num_key_value_heads", int, heads),
            "head": head if head * heads != width else 0,
        }
    head = config.of("v_head_dim", int)
    if config.of("qk_nope_head_dim", int) != head:
        raise InputError(
            f"{config.path}: heads whose keys (qk_nope_head_dim) and values (v_head_dim) differ in "
            "width are not known"
        )
    return {
        "head": head,
        "latent": config.of("kv_lora_rank", int),
        "query_latent": config.of("q_lora_rank", int, 0),
        "rotary_head": config.of("qk_rope_head_dim", int),
        "predictions": config.of("num_nextn_predict_layers", int, 0),
    }


def _experts(config: _Config, kind: str) -> dict[str, int]:
    sizes = {"active": config.of("num_experts_per_tok", int)}
    if kind.startswith("deepseek"):
        if config.of("moe_layer_freq", int, 1) != 1:
            raise InputError(f"{config.path}: moe_layer_freq other than 1 is not known")
        dense = config.of("first_k_dense_replace", int, 0)
        sizes |= {"shared": config.of("n_shared_experts", int, 0), "dense_layers": dense}
        return sizes | ({"dense_inner": config.of("intermediate_size", int)} if dense else {})
    if config.content.get("mlp_only_layers"):
        raise InputError(f"{config.path}: mlp_only_layers are not known")
    every = config.of("decoder_sparse_step", int, 1)
    if every > 1:
        sizes |= {"experts_every": every, "dense_inner": config.of("intermediate_size", int)}
    shared = config.of("shared_expert_intermediate_size", int, 0)
    if shared:
        one = config.of("moe_intermediate_size", int)
        if shared % one:
            raise InputError(
                f"{config.path}: a shared expert of {shared:,} is not a multiple of experts of "
                f"{one:,}: it is not known"
            )
        sizes["shared"] = shared // one
    return sizes


def _sequence(config: _Config, kind: str, wanted: int | None) -> int:
    positions: int = config.of("n_positions" if kind == "gpt2" else "max_position_embeddings", int)
    if wanted is None and positions > LONGEST:
        raise InputError(
            f"{config.path}: {positions:,} positions, which few train on: give the tokens of an "
            f"example, such as --shape {LONGEST}"
        )
    sequence = positions if wanted is None else wanted
    if sequence > positions and kind in ("gpt2", "opt", "bert"):  # whose positions are a table
        raise InputError(
            f"shape: {sequence:,} tokens, and {config.path} has {positions:,} positions"
        )
    window = config.of("sliding_window", int, sequence)
    if window < sequence and config.flag("use_sliding_window", True):
        raise InputError(
            f"shape: {sequence:,} tokens, and those of {config.path} attend to {window:,} before "
            f"them (sliding_window), which is not known: --shape {window}"
        )
    return sequence
