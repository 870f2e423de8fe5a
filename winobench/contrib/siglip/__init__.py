"""SigLIP and SigLIP 2, scored by `winobench.scorers.contrastive`."""

from winobench.checkpoints import fast_tokenizers
from winobench.contrib.siglip.network import SiglipModel
from winobench.contrib.siglip.siglip_files import load_siglip, siglip_ids
from winobench.scorers.contrastive import TEXTS_OF, Texts

TEXTS_OF[SiglipModel] = Texts(siglip_ids, fast_tokenizers.fast_identity)

__all__ = ["SiglipModel", "load_siglip"]
