"""The widest window of VUS by TSB-AD's rule: a period of the series, found in the autocorrelation of one variable."""

import numpy as np

from cometad.arrays import Floats
from cometad.errors import InputError

ROWS = 20_000  # only the first readings count
LAGS = 400
SKIPPED = 3  # a peak at one of the first lags is noise
SHORTEST, LONGEST = 6, 303  # of a period that counts
DEFAULT_WINDOW = 125  # if there is none


def sliding_window(readings: object) -> int:
    """Return the lag of the highest peak in the autocorrelation of one variable, or 125 if it lies outside 6 to 303.

    TSB-AD takes it from the first variable of the whole series. Of equal peaks, the last counts.

    >>> import numpy as np
    >>> from cometad.metrics import sliding_window
    >>> time = np.arange(1000)
    >>> sliding_window(np.sin(2 * np.pi * time / 40)), sliding_window(np.zeros(1000))
    (40, 125)
    """
    values = np.asarray(readings, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise InputError(
            f"A sliding window needs the finite readings of one variable, got an array of shape {values.shape}. "
            "Pass one column without gaps."
        )
    correlation = _autocorrelation(values[:ROWS])[SKIPPED : LAGS + 1]
    inner = correlation[1:-1]
    peaks = 1 + np.flatnonzero((inner > correlation[:-2]) & (inner > correlation[2:]))
    if not len(peaks):
        return DEFAULT_WINDOW
    highest = peaks[correlation[peaks] == correlation[peaks].max()][-1]
    lag = SKIPPED + int(highest)
    return lag if SHORTEST <= lag <= LONGEST else DEFAULT_WINDOW


def _autocorrelation(values: Floats) -> Floats:
    """The autocorrelation at the lags 0, 1, ..., with the same divisor at all of them; empty for a constant."""
    from scipy.fft import next_fast_len  # imported where it is used

    centered = values - values.mean()
    # As long as TSB-AD's transform, whose rounding decides between peaks that are equal but for it.
    spectrum = np.fft.fft(centered, next_fast_len(2 * len(values) + 1, real=True))
    covariance = np.fft.ifft(spectrum * spectrum.conj())[: len(values)].real
    return covariance / covariance[0] if covariance[0] > 0 else covariance[:0]
