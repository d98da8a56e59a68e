"""What the significance rules mean, in the plainest Python: look back over what happened.

Shares no code with `denwatch.watchdog`.
"""


class History:
    """Decides for one subscription by its past."""

    def __init__(self, s):
        self.s = s
        self.samples = []  # whether each of the last 15 matched
        self.sent = None  # (second, values) of the last time
        self.episode_sent = False
        self.is_active = False

    def decide(self, second, values, degree, matched):
        """Return whether a sample with this degree is to be sent."""
        rules = self.s.significance
        threshold = self.s.threshold
        began = self.is_active and rules.hysteresis > 0
        self.is_active = matched or (began and degree >= threshold - rules.hysteresis)
        self.samples = self.samples[-14:] + [self.is_active]
        recent = sum(self.samples[-rules.window :])
        lasts = recent >= rules.hits if rules.window else self.is_active
        if not lasts:
            self.episode_sent = False
        if not (lasts and self.is_active):
            return False
        if rules.quiet and self.sent and second - self.sent[0] < duration(rules.quiet):
            return False
        if self.episode_sent and (rules.bands or rules.relative):
            moved = self.has_moved(values, self.sent[1])
            beat = rules.heartbeat and second - self.sent[0] >= duration(rules.heartbeat)
            if not moved and not beat:
                return False
        self.sent = (second, list(values))
        self.episode_sent = True
        return True

    def has_moved(self, values, last):
        rules = self.s.significance
        names = sorted({p.attribute for p in self.s.predicates})
        wide = {p.attribute: p.wide for p in self.s.predicates}
        for i in range(len(names)):
            name = names[i]
            band = rules.bands[i] if rules.bands else 0
            if wide[name]:
                band = band * 65535 / 255
            change = abs(values[name] - last[name])
            if change != 0 and change >= band and 255 * change >= rules.relative * last[name]:
                return True
        return False


def duration(code):
    """Return the seconds of a duration code."""
    exponent, mantissa = code // 8, code % 8
    return mantissa if exponent == 0 else (8 + mantissa) * 2 ** (exponent - 1)
