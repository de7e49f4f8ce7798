"""How long the property tests of the log look: `HYPOTHESIS_PROFILE=long` explores for hours, at random.

Otherwise they are few and always the same, so that a run in continuous integration does not fail for somebody else.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

# A first example pays for imports and the machine may be busy: neither is a finding.
examined = settings(
    max_examples=2_000 if LONG else 50,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
