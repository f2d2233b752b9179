"""The table of results: measurement, result, limit, share of the limit, target, and whether the target is reached."""


class Table:
    """Rows as dictionaries (the JSON's `results`) and as text."""

    HEADINGS = ('what', 'result', 'limit', 'share', 'wanted', '')

    def __init__(self):
        self.rows = []
        self.notes = []  # sentences that belong to no row

    def add(self, what, result, unit, *, limit=None, share=None, wanted=None, ok=None, note=None):
        """`ok`: None without a target; `share`: fraction of the limit."""
        self.rows.append({'what': what, 'result': result, 'unit': unit, 'limit': limit, 'share': share, 'wanted': wanted, 'ok': ok,
                          **({'note': note} if note else {})})

    def fail(self, what, why):
        """Adds a failed measurement, which counts as below its target."""
        self.rows.append({'what': what, 'result': None, 'unit': '', 'limit': None, 'share': None, 'wanted': 'a result', 'ok': False,
                          'note': why})

    @property
    def short(self):
        return [row for row in self.rows if row['ok'] is False]

    def lines(self):
        cells = [self.HEADINGS]
        for row in self.rows:
            number = '-' if row['result'] is None else f'{figures(row["result"])} {row["unit"]}'
            limit = '' if row['limit'] is None else f'{figures(row["limit"])} {row["unit"]}'
            share = '' if row['share'] is None else f'{row["share"]:.0%}'
            verdict = {True: 'ok', False: 'SHORT', None: ''}[row['ok']]
            cells.append((row['what'], number, limit, share, row['wanted'] or '', verdict))
        widths = [max(len(line[column]) for line in cells) for column in range(len(self.HEADINGS))]
        text = ['  '.join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
        text.insert(1, '  '.join('-' * width for width in widths).rstrip())
        notes = [f'{row["what"]}: {row["note"]}' for row in self.rows if 'note' in row] + self.notes
        return text + ([''] + notes if notes else [])


def figures(value):
    """Three significant digits."""
    if isinstance(value, int) or value >= 100:
        return f'{value:,.0f}'
    return f'{value:.3g}' if value >= 1 else f'{value:.2g}'
