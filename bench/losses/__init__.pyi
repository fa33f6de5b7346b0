"""Public names, which ``__init__.py`` loads at first use."""

from bench.losses import modified_noncontrastive as modified_noncontrastive
from bench.losses import paradigm_losses as paradigm_losses
from bench.losses.contrastive import check_same_shape as check_same_shape
from bench.losses.contrastive import check_tau as check_tau
from bench.losses.contrastive import cosine_matrix as cosine_matrix
from bench.losses.contrastive import hard_negative_nce as hard_negative_nce
from bench.losses.contrastive import info_nce as info_nce
from bench.losses.contrastive import near_nce as near_nce
from bench.losses.contrastive import queue_nce as queue_nce
from bench.losses.decorrelation import BarlowTwins as BarlowTwins
from bench.losses.decorrelation import CorInfoMax as CorInfoMax
from bench.losses.decorrelation import barlow_twins as barlow_twins
from bench.losses.decorrelation import byol_loss as byol_loss
from bench.losses.decorrelation import vicreg as vicreg
from bench.losses.masked_lm import masked_lm_loss as masked_lm_loss
from bench.losses.twin_losses import cross_nce as cross_nce
from bench.losses.twin_losses import ltn as ltn
from bench.losses.twin_losses import tower_nce as tower_nce
