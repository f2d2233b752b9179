"""Charts of results: SVG files, and lines of characters for a terminal."""
import html
import math
import pathlib

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 460, 70, 150, 50, 60
COLOURS = ('#0b6e99', '#c4551d', '#3c8d40', '#7b4fa3', '#8a8a8a', '#b5a000', '#c2477f', '#4c4c4c', '#2ea6a0')
BLOCKS = ' ▁▂▃▄▅▆▇█'


def size_name(count):
    """4096 -> 4K."""
    for unit, name in ((1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')):
        if count >= unit and count % unit == 0:
            return f'{count // unit}{name}'
    return str(count)


def round_step(span):
    """A step of 1, 2 or 5 times a power of ten that divides the span into four to eight parts."""
    power = 10 ** math.floor(math.log10(span / 4))
    return next(factor * power for factor in (5, 2, 1) if span / (factor * power) >= 4)


class Plot:
    """One SVG chart: lines over a logarithmic x axis (linear without a base) and a linear y axis."""

    def __init__(self, title, x_label, y_label, x_range, y_top, base):
        self.base = base
        self.x_from, self.x_to = (self.scaled(x) for x in x_range)
        self.y_top = y_top
        self.names = []
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="{TOP - 22}" font-size="17">{html.escape(title)}</text>',
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle">{html.escape(x_label)}</text>',
            f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_label)}</text>',
        ]

    def scaled(self, value):
        return value if self.base is None else math.log(value, self.base)

    def x(self, value):
        share = (self.scaled(value) - self.x_from) / (self.x_to - self.x_from)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return HEIGHT - BOTTOM - min(1.0, value / self.y_top) * (HEIGHT - TOP - BOTTOM)

    def grid(self, x_ticks, y_step, y_name):
        for value, name in x_ticks:
            x = self.x(value)
            self.parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>'
                              f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{name}</text>')
        value = 0
        while value <= self.y_top * 1.0001:
            y = self.y(value)
            self.parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>'
                              f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{y_name(value)}</text>')
            value += y_step
        self.parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#555"/>')

    def line(self, name, points, dashed=False, dots=True):
        colour = COLOURS[len(self.names) % len(COLOURS)]
        path = 'M' + 'L'.join(f'{self.x(x):.1f} {self.y(y):.1f}' for x, y in points)
        dash = ' stroke-dasharray="6 4"' if dashed else ''
        self.parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if dots:
            self.parts += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        at = TOP + 10 + 20 * len(self.names)
        self.parts.append(f'<path d="M{WIDTH - RIGHT + 12} {at}h20" stroke="{colour}" stroke-width="2"{dash}/>'
                          f'<text x="{WIDTH - RIGHT + 38}" y="{at + 4}">{html.escape(name)}</text>')
        self.names.append(name)

    def write(self, path):
        pathlib.Path(path).write_text('\n'.join([*self.parts, '</svg>', '']), encoding='utf-8')


def draw_bandwidth(path, curves, limits):
    """Bandwidth over message size. curves: {name: [{bytes, gbps}]}; limits: the same for the machine."""
    sizes = [row['bytes'] for rows in curves.values() for row in rows]
    top = max(row['gbps'] for rows in [*curves.values(), limits] for row in rows) * 1.05
    plot = Plot('Bandwidth over message size', 'message size (bytes)', 'Gb/s', (min(sizes), max(sizes)), top, 2)
    ticks = [(1 << n, size_name(1 << n)) for n in range(1, 31, 2) if min(sizes) <= 1 << n <= max(sizes)]
    plot.grid(ticks, round_step(top), lambda value: f'{value:g}')
    for name, rows in curves.items():
        plot.line(name, [(row['bytes'], row['gbps']) for row in rows])
    plot.line('machine limit', [(row['bytes'], row['gbps']) for row in limits if row['bytes'] >= min(sizes)], dashed=True)
    plot.write(path)


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def draw_latency(path, samples):
    """Cumulative distribution of latency. samples: {name: microseconds, ascending}."""
    least = min(values[0] for values in samples.values())
    most = max(percentile(values, 0.999) for values in samples.values()) * 1.2
    plot = Plot('Latency of 8-byte messages', 'microseconds, no longer than', 'share of all messages',
                (max(least * 0.9, 0.01), most), 1.0, 10)
    ticks = [(factor * 10 ** power, f'{factor * 10 ** power:g}') for power in range(-2, 6) for factor in (1, 2, 5)
             if least * 0.9 <= factor * 10 ** power <= most]
    plot.grid(ticks, 0.25, lambda value: f'{value:.0%}')
    for name, values in samples.items():
        steps = [(percentile(values, i / 1000), i / 1000) for i in range(1000)]
        plot.line(name, steps, dots=False)
    plot.write(path)


def draw_over_time(path, title, y_label, lines, step_ms, dashed=None):
    """Values sampled every step_ms. lines: {name: [value]}; dashed: one of the names."""
    top = max(value for values in lines.values() for value in values) * 1.05 or 1
    end = step_ms * max(len(values) for values in lines.values())
    plot = Plot(title, 'milliseconds', y_label, (0, end), top, None)
    step = round_step(end)
    plot.grid([(n * step, f'{n * step:g}') for n in range(int(end / step) + 1)], round_step(top), lambda value: f'{value:g}')
    for name, values in lines.items():
        plot.line(name, [((i + 1) * step_ms, value) for i, value in enumerate(values)], dashed=name == dashed, dots=False)
    plot.write(path)


def time_line(values, width=60):
    """One line of blocks: the mean of each interval, relative to the greatest."""
    parts = [values[i * len(values) // width:(i + 1) * len(values) // width] or [0] for i in range(min(width, len(values)))]
    means = [sum(part) / len(part) for part in parts]
    top = max(means) or 1
    return ''.join(BLOCKS[math.ceil(mean / top * (len(BLOCKS) - 1))] for mean in means)


def bars(rows, width=48):
    """Lines of a bar chart: rows of (name, value, text)."""
    top = max(value for _, value, _ in rows) or 1
    lines = []
    for name, value, text in rows:
        eighths = round(8 * width * value / top)
        bar = '█' * (eighths // 8) + ('▏▎▍▌▋▊▉'[eighths % 8 - 1] if eighths % 8 else '')
        lines.append(f'{name:>10} {bar:<{width}} {text}')
    return lines


def histogram_line(values, width=60):
    """One line: histogram from the smallest value to the 99.5th percentile, on a logarithmic scale."""
    least, most = values[0], percentile(values, 0.995)
    if least <= 0 or most <= least:
        return ''
    span = math.log(most / least)
    counts = [0] * width
    for value in values:
        place = int(width * math.log(max(value, least) / least) / span)
        if place < width:
            counts[place] += 1
    top = max(counts)
    drawing = ''.join(BLOCKS[math.ceil(count / top * (len(BLOCKS) - 1))] for count in counts)
    return f'{least:7.2f} us |{drawing}| {most:.2f} us'
