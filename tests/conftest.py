"""What holds for every test: nothing is judged by a stopwatch."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("headwater", deadline=None)
settings.load_profile("headwater")
