"""What the name of a reference model says: its role and its training seed.

A suite has one model per p, an oracle and a placebo; a second training seed of one is named with
`-seedN` behind. A model is compared with the oracle and with `p000` of its own seed, so that no
difference between seeds counts as forgetting.
"""

import re
from typing import Final

ORACLE: Final = "oracle"
"""The model that never saw the forget domain."""
ENTANGLED: Final = "p000"
"""The model trained without SGTM, the entangled end of the axis."""
_SEED: Final = re.compile(r"(?P<base>.+?)(?P<seed>-seed\d+)?")


def base_of(member: str) -> str:
    """The name without its training seed."""
    return _parts(member)[0]


def sibling(name: str, member: str) -> str:
    """The model `name` of the training seed of `member`."""
    return name + _parts(member)[1]


def is_oracle(member: str) -> bool:
    """Whether it is an oracle, of any seed."""
    return base_of(member) == ORACLE


def _parts(member: str) -> tuple[str, str]:
    match = _SEED.fullmatch(member)
    return (match["base"], match["seed"] or "") if match else (member, "")
