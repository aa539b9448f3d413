"""Turning a GPT-2 shaped causal model into a masked one: vocabulary and weights it begins with; trains nothing.

The blocks of GPT-2 and of RoBERTa with pre-layer-norm do the same arithmetic, so the weights carry over; what is new
is sight to the right, the mask, a normalised sum of embeddings and a prediction head, which begins close to identity.
"""

import json

import torch
from tokenizers import Tokenizer, models
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast, RobertaPreLayerNormForMaskedLM

from paclab.errors import InputError
from paclab.pretraining import masked

SMALL = 0.1  # of the identity in the head: GELU is linear there, and its layer norm restores the scale


def vocabulary(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The causal model's byte pairs behind RoBERTa's special tokens, its single special token (id 0) left out."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    shift = len(masked.TOKENS) - 1
    words = {word: index + shift for word, index in state["vocab"].items() if index > 0}
    special = {token: index for index, token in enumerate(masked.TOKENS)}
    return masked.finish(Tokenizer(models.BPE(vocab=special | words, merges=[tuple(pair) for pair in state["merges"]])))


@torch.no_grad()
def weights(model: RobertaPreLayerNormForMaskedLM, start: GPT2LMHeadModel) -> None:
    """Write the causal model's weights into a masked one of the same shape."""
    config, given = model.config, start.config
    same = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.vocab_size)
    theirs = (given.n_embd, given.n_layer, given.n_head, given.vocab_size + len(masked.TOKENS) - 1)
    if same != theirs or config.max_position_embeddings - masked.PAD - 1 > given.n_positions:
        raise InputError("start", f"width, depth, heads, vocabulary {theirs} differ from {same}", "give that shape")
    old, body, head = start.transformer, model.base_model, model.lm_head
    words, places = body.embeddings.word_embeddings.weight, body.embeddings.position_embeddings.weight
    words[:] = old.wte.weight.mean(0)
    words[masked.BEGIN] = words[masked.END] = old.wte.weight[0]
    words[len(masked.TOKENS):] = old.wte.weight[1:]
    places[masked.PAD + 1:] = old.wpe.weight[: len(places) - masked.PAD - 1]
    body.embeddings.token_type_embeddings.weight.zero_()
    spread = (old.wte.weight[:, None] + old.wpe.weight[None, :32]).std(-1).mean()
    body.embeddings.LayerNorm.weight.fill_(spread)
    for new, block in zip(body.encoder.layer, old.h, strict=True):
        parts = zip(block.attn.c_attn.weight.T.chunk(3), block.attn.c_attn.bias.chunk(3), strict=True)
        attention = new.attention
        maps = (attention.self.query, attention.self.key, attention.self.value)
        for layer, (weight, bias) in zip(maps, parts, strict=True):
            _set(layer, weight, bias)
        _set(attention.output.dense, block.attn.c_proj.weight.T, block.attn.c_proj.bias)
        _set(attention.LayerNorm, block.ln_1.weight, block.ln_1.bias)
        _set(new.intermediate.LayerNorm, block.ln_2.weight, block.ln_2.bias)
        _set(new.intermediate.dense, block.mlp.c_fc.weight.T, block.mlp.c_fc.bias)
        _set(new.output.dense, block.mlp.c_proj.weight.T, block.mlp.c_proj.bias)
    _set(body.LayerNorm, old.ln_f.weight, old.ln_f.bias)
    _set(head.dense, SMALL * torch.eye(config.hidden_size), torch.zeros(config.hidden_size))
    head.layer_norm.weight.fill_(old.ln_f.weight.square().mean().sqrt())


def _set(layer: torch.nn.Module, weight: torch.Tensor, bias: torch.Tensor) -> None:
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)
