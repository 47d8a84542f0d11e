"""Colours of every picture and page, told apart by colour-blind readers too. Nothing is said by colour alone."""

# Levels 1 to 4, one hue a level: on white, and on a dark ground.
LEVEL_COLORS = ("#a50026", "#e08214", "#4393c3", "#878787")
LEVEL_COLORS_DARK = ("#ff7080", "#f2a33c", "#6bb8ec", "#a8a8a8")

# Series in one chart, after Okabe and Ito (2008).
SERIES_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
SERIES_COLORS_DARK = ("#56b4e9", "#e69f00", "#35c79b", "#e29cc4", "#f0e442", "#ff8f4d")
