"""How values of many variables are put on a grid, as loops over everything that came, from the documented rules."""

import math
from fractions import Fraction


class NaiveTable:
    """Keeps every value; see `cometad.connect.tags.TagTable` for the rules."""

    def __init__(self, names, period, hold):
        self.names, self.period, self.hold = names, Fraction(round(period * 1e6)), hold
        self.values = []  # (name, time in microseconds, value), in order of arrival
        self.next = self.first = None

    def add(self, name, at, value):
        moment = round(at * 1e6)
        number = math.ceil(moment / self.period)
        if self.next is None:
            self.next = self.first = number
        self.values.append((name, moment, value))
        if number < self.next:
            return []
        last = self.next - 1
        while self._is_complete(last + 1):
            last += 1
        return self._rows(last)

    def until(self, now):
        return [] if self.next is None else self._rows(math.floor(round(now * 1e6) / self.period))

    def _is_complete(self, number):
        edge = number * self.period
        everyone = all(any(moment > edge for who, moment, _ in self.values if who == name) for name in self.names)
        return everyone or any(moment > edge + 2 * self.period for _, moment, _ in self.values)

    def _rows(self, last):
        rows = []
        while self.next <= last:
            numbers = [math.ceil(moment / self.period) for _, moment, _ in self.values]
            following = min([number for number in numbers if number >= self.next] + [last + 1])
            if self.hold is None and following - self.next > 1000:
                self.next = following
                continue
            row = self._row(self.next)
            if row is not None:
                rows.append((float(self.next * self.period / 10**6), row))
            self.next += 1
        return rows

    def _row(self, number):
        edge, row, seen = number * self.period, [], 0
        for name in self.names:
            known = [(moment, i) for i, (who, moment, _) in enumerate(self.values) if who == name and moment <= edge]
            seen += bool(known)
            value = math.nan
            if known:
                moment, i = max(known)
                if self.hold is None or moment > edge - self.hold * self.period:
                    value = self.values[i][2]
            row.append(value)
        waits = seen < len(self.names) and number < self.first + (self.hold or 10)
        return None if waits or all(map(math.isnan, row)) else row
