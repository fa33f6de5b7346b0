"""Methods' names in the papers."""

from __future__ import annotations

from bench.registry import own_methods

_PUBLISHED = {
    "is_bert": "IS-BERT",
    "rankcse_uc": "RankCSE+UC",
    "rankcse_uc_d": "RankCSE+UC D",
    "bert_base": "BERT-base",
    "roberta_base": "RoBERTa-base",
    "all_MiniLM_L6_v2": "MiniLM",
    "all_MiniLM_L6_v2_lm": "MiniLM-LM",
    "bert_whitening": "BERT-whitening",
    "roberta_whitening": "RoBERTa-whitening",
    "empirical_baseline": "Empirical baseline",
    "mat": "MAT",
    "paradigm": "Gradient paradigm",
    "static": "Static vectors",
    "tncse_single": "TNCSE, one encoder",
}
"""Printed names of backbones, of published rows without a method here, and of methods whose card has none."""


def printed_name(name: str) -> str:
    """Return a method's printed name in the papers, by default the name itself.

    >>> printed_name("simcse"), printed_name("bert_base"), printed_name("mine")
    ('SimCSE', 'BERT-base', 'mine')
    """
    method = own_methods().get(name)
    return (method.card.printed if method else "") or _PUBLISHED.get(name, name)
