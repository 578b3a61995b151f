"""The rungs of the ladder: each a frozen dataclass of its options with one pure method."""

from refold.stages.clamp import Clamp
from refold.stages.dedupe import Dedupe
from refold.stages.densify import Densify
from refold.stages.fold import Fold
from refold.stages.mask import Mask
from refold.stages.offload import Offload
from refold.stages.prune import Prune
from refold.stages.stage import Stage
from refold.stages.truncate import Truncate
from refold.stages.window import Window

STAGES: dict[str, type[Stage]] = {
    stage.name: stage for stage in (Densify, Truncate, Dedupe, Offload, Mask, Fold, Prune, Window, Clamp)
}
