"""Panels of bars, which `hinterland bench plot` draws of a report that has `figures`."""


def panel(figure: str, caption: str, measure: str, groups: list[str], series: dict[str, list[float | None]]) -> dict:
    """A panel: the figure's number in the paper, what it shows, what the values are, and for each series a value for each group, or none."""
    rounded = {name: [None if value is None else round(value, 3) for value in values] for name, values in series.items()}
    return {"figure": figure, "caption": caption, "measure": measure, "groups": groups, "series": rounded}
