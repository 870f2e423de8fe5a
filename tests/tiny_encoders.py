"""Small random BERTs in transformers' layout, and small files of SNLI and ANLI."""

import json
import pathlib

import transformers

from tests.models.test_networks import filled
from winobench.checkpoints import encoder_layouts
from winobench.models.bert import BertConfig, BertForSequenceClassification

NOUNS, COLORS = ["ball", "cube", "car", "hat", "cup", "box"], ["red", "blue", "green", "black"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "is", "the", "and", ".", *NOUNS, *COLORS]


def make_tokenizer(folder: pathlib.Path):
    """BERT's tokenizer for ``VOCABULARY``, whose file is left in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return transformers.BertTokenizerFast.from_pretrained(folder)


def bert_config(**options) -> BertConfig:
    """The shape of a small BERT."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": len(VOCABULARY), "max_position_embeddings": 64}
    return BertConfig(**{**sizes, "labels": ("contradiction", "Entailment", "neutral"), **options})


def write_bert(folder: pathlib.Path, **options) -> pathlib.Path:
    """Writes a BERT with random weights, the same at every call; ``options`` are the config's."""
    model = filled(BertForSequenceClassification, bert_config(**options))
    encoder_layouts.save_bert(folder, model, make_tokenizer(folder))
    return folder


def write_nli(folder: pathlib.Path) -> pathlib.Path:
    """Writes SNLI and ANLI in miniature, in which colors decide; some pairs have labels that are left out."""

    def write(name, rows):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    for split, nouns in (("train", NOUNS[:4]), ("dev", NOUNS[4:])):
        pairs = [
            (f"the {noun} is {color}", f"a {color if same else COLORS[number - 1]} {noun}", same)
            for noun in nouns
            for number, color in enumerate(COLORS)
            for same in (True, False)
        ]
        snli = [
            {"sentence1": first, "sentence2": second, "gold_label": "entailment" if same else "contradiction"}
            for first, second, same in pairs
        ]
        other = [{"sentence1": "a ball", "sentence2": "a car", "gold_label": label} for label in ("-", "neutral")]
        write(f"snli_1.0_{split}.jsonl", snli + other)
        for n in (1, 2, 3):
            anli = [
                {"context": f"{first} . {first} .", "hypothesis": second, "label": "e" if same else "c", "uid": f"{n}"}
                for first, second, same in pairs[n::3]
            ]
            write(f"anli_v1.0/R{n}/{split}.jsonl", [*anli, {"context": "a", "hypothesis": "b", "label": "n"}])
    return folder
