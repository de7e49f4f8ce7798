"""How long the property tests of the log look: `HYPOTHESIS_PROFILE=long` for a night, `quick` by default."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A first example pays for imports and the machine may be busy: neither is a finding.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile("quick", max_examples=50, derandomize=True, **_COMMON)
settings.register_profile("long", max_examples=2_000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
