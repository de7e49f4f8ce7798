"""Benchmarks: Headwater against its peers, as ratios taken in the same run on the same machine."""
