"""Statistics of repeated measurements."""

import statistics


def spread(values):
    """Mean, standard deviation of the sample (0 for a single value), least and most."""
    return {
        "mean": statistics.fmean(values),
        "stddev": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }
